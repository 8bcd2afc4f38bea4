import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express'
import type pg from 'pg'
import { isPoolFull, isStorageAway } from '../../db.ts'
import type { Log } from '../../log.ts'
import { readSession, tokenOfCookies } from '../sessions.ts'
import { timeText } from '../words.ts'
import { type Html, html, markupOf } from './html.ts'
import { type Frame, type Page, plainPage, signedInPage } from './layout.ts'
import { findShell } from './shell.ts'
import { type Visit, visitFor, visitOf } from './visit.ts'

/** What it takes to answer with a page. */
export interface PageServer {
  pool: pg.Pool
  reads: pg.Pool
  frame: Frame
  log: Log
  publicUrl: string | undefined
  /** Since when the database couldn't be asked who is signed in. */
  storage: { awaySince: Date | undefined }
  now(): Date
}

const compress = promisify(gzip)
const QUERY_CANCELED = '57014'

/** Where a GET leads instead of a page. */
export interface Redirect {
  to: string
}

/** A handler that shows what a screen makes of the visit. */
export function screen(
  server: PageServer,
  render: (visit: Visit, req: Request) => Promise<Page | Redirect> | Page | Redirect,
): RequestHandler {
  return async (req, res) => {
    const answer = await render(visitOf(res), req)
    if ('to' in answer) return void res.redirect(303, answer.to)
    await sendPage(server, req, res, answer)
  }
}

/** Sends a page in its frame. While the database is away the frame goes without it. */
export async function sendPage(server: PageServer, req: Request, res: Response, page: Page): Promise<void> {
  const visit = res.locals.visit as Visit | undefined
  if (!visit) return send(req, res, page, plainPage(server.frame, page))
  // Not among what people look at: one who asks for a lot must not take the frame from the others.
  const shell = await findShell(server.pool, visit.session.person.name, visit.done).catch((error: unknown) => {
    if (isStorageAway(error)) return undefined
    throw error
  })
  await send(req, res, page, signedInPage(server.frame, visit, shell, { ...page, isAnswer: req.method === 'POST' }))
}

async function send(req: Request, res: Response, { status = 200 }: Page, page: Html): Promise<void> {
  const text = Buffer.from(markupOf(page))
  res
    .status(status)
    .set({ 'Cache-Control': 'no-store', 'Content-Type': 'text/html; charset=utf-8', Vary: 'Accept-Encoding, Cookie' })
  if (req.acceptsEncodings('gzip', 'identity') !== 'gzip') return void res.end(text)
  // Nothing on a page is both secret and repeated from the request, so its length tells nothing.
  res.set('Content-Encoding', 'gzip').end(await compress(text))
}

/** Whether cookies of this request are those of HTTPS. */
export function isSecure(req: Request, publicUrl: string | undefined): boolean {
  return req.secure || publicUrl?.startsWith('https:') === true
}

/** Lets in who is signed in; `otherwise` answers the others. */
export function signedIn(server: PageServer, otherwise: RequestHandler): RequestHandler {
  return async (req, res, next) => {
    const token = tokenOfCookies(req.get('cookie'), isSecure(req, server.publicUrl))
    // A page that refreshes itself is no sign of a person.
    const isUse = req.get('x-refresh') === undefined && req.path !== '/stream'
    const session = token === undefined ? undefined : await readSession(server.pool, token, { isUse })
    server.storage.awaySince = undefined
    if (!session) return void (await otherwise(req, res, next))
    res.locals.visit = visitFor(req, res, session, server.now())
    next()
  }
}

/** The page of something that isn't there. */
export function missingPage(what: string, detail: Html | string): Page {
  return { title: what, status: 404, main: html`<h1>${what}</h1><p>${detail}</p>` }
}

/** A page that says why nothing was done. */
export function refusalPage(status: number, heading: string, detail: Html | string): Page {
  return {
    title: `Error: ${heading}`,
    status,
    main: html`<h1>${heading}</h1><p>${detail}</p>`,
  }
}

/** What a page says when something was thrown: what failed, what still works, what to do. */
export function onPageError(server: PageServer): ErrorRequestHandler {
  return async (error: { code?: unknown; status?: unknown; type?: unknown }, req, res, next) => {
    if (res.headersSent) return next(error)
    const request = String(res.locals.requestId ?? '')
    const reference = html`Request <code>${request}</code>.`
    if (error.code === QUERY_CANCELED)
      return sendPage(
        server,
        req,
        res,
        refusalPage(
          503,
          'That took too long',
          html`Narrow the time range, or search for a whole key or ID; the filter is kept in the address. Receiving and sending go on. ${reference}`,
        ),
      )
    // While the database is known to be away, waiting for a connection of a pool says no more than that.
    if (isPoolFull(error) && server.storage.awaySince === undefined) {
      server.log.warn({ error, request }, 'too much is asked at once')
      const detail = html`Receiving and sending go on. Reload this page in a moment; if it was a form, look first at what has become of it. ${reference}`
      return sendPage(
        server,
        req,
        res.set('Retry-After', '5'),
        refusalPage(503, 'Too many are looking at once; try again', detail),
      )
    }
    if (isStorageAway(error)) {
      server.log.warn({ error, request }, 'storage is away')
      server.storage.awaySince ??= server.now()
      const since = html`Since ${timeText(server.storage.awaySince)} UTC.`
      const detail = html`${since} Providers get 503 and will redeliver; nothing that was acknowledged is lost. This request changed nothing, unless the page says so when the database answers again; reload it then. ${reference}`
      return sendPage(server, req, res, { ...refusalPage(503, "Can't reach the database", detail), withPlaces: true })
    }
    if (error instanceof URIError) return sendPage(server, req, res, refusalPage(400, 'This address is not valid', reference))
    if (typeof error.status === 'number' && error.status >= 400 && error.status < 500)
      return sendPage(server, req, res, refusalPage(error.status, 'This request could not be read', reference))
    server.log.error({ error, request }, 'request failed')
    await sendPage(
      server,
      req,
      res,
      refusalPage(500, 'Something went wrong', html`It was logged. The rest of the page and the service go on. ${reference}`),
    )
  }
}
