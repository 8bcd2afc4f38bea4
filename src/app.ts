import { randomUUID } from 'node:crypto'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import express, { type ErrorRequestHandler } from 'express'
import helmet from 'helmet'
import { isPoolFull, isStorageAway } from './db.ts'
import { createAcknowledge, type EventRoutesDeps, eventRoutes } from './events/routes.ts'
import type { Log } from './log.ts'
import { methodNotAllowed } from './ops/access.ts'
import { type PageDeps, pageRoutes } from './ops/page/routes.ts'
import { opsRoutes } from './ops/routes.ts'
import { sendProblem, sendStorageProblem } from './problem.ts'

export interface AppDeps {
  events: EventRoutesDeps
  ops: PageDeps
  log: Log
  trustProxy?: string | undefined
  /** Why the process is not ready for traffic; undefined when it is. */
  notReady(): Promise<string | undefined>
  metrics(): Promise<{ text: string; contentType: string }>
}

/** The path of a webhook, in the form in which all are posted. Whatever else means the same goes through the router. */
const WEBHOOK = /^\/webhooks\/([\w-]+)(?:\?|$)/

/** The whole HTTP surface. A webhook is acknowledged before Express, which would take a sixth of all that an ack costs. */
export function createApp({ events, ops, log, trustProxy, notReady, metrics }: AppDeps): RequestListener {
  const acknowledge = createAcknowledge(events)
  const app = express()
  app.disable('x-powered-by')
  app.set('etag', false)
  if (trustProxy !== undefined) app.set('trust proxy', /^\d+$/.test(trustProxy) ? Number(trustProxy) : trustProxy)

  app.use(eventRoutes(events, acknowledge))

  app.use(
    helmet({
      contentSecurityPolicy: {
        useDefaults: false,
        directives: {
          defaultSrc: ["'none'"],
          scriptSrc: ["'self'"],
          styleSrc: ["'self'"],
          imgSrc: ["'self'", 'data:'],
          connectSrc: ["'self'"],
          formAction: ["'self'"],
          frameAncestors: ["'none'"],
          baseUri: ["'none'"],
        },
      },
      referrerPolicy: { policy: 'no-referrer' },
    }),
  )
  app.get('/healthz', (_req, res) => void res.json({ status: 'ok' }))
  app.get('/readyz', async (_req, res) => {
    const reason = await notReady()
    res
      .status(reason === undefined ? 200 : 503)
      .json(reason === undefined ? { status: 'ready' } : { status: 'not ready', reason })
  })
  app.get('/metrics', async (_req, res) => {
    const { text, contentType } = await metrics()
    res.set('Content-Type', contentType).send(text)
  })
  app.all(['/healthz', '/readyz', '/metrics'], methodNotAllowed('GET, HEAD'))
  app.use(pageRoutes(ops))
  app.use(opsRoutes(ops))
  app.use((_req, res) => sendProblem(res, 404, 'not_found'))

  const fail = (error: unknown, res: ServerResponse, request: string): void => {
    if (res.headersSent) return void res.destroy()
    if (isPoolFull(error)) {
      log.warn({ error, request }, 'too much is asked at once')
      return void sendStorageProblem(
        res,
        'too much is asked at once; try again, and read first what has become of a change',
        'busy',
      )
    }
    if (isStorageAway(error)) {
      log.warn({ error, request }, 'storage is away')
      return void sendStorageProblem(res, 'storage does not answer; try again, and read first what has become of it')
    }
    // What Express itself found wrong with the request, such as a path that is no valid percent-encoding.
    const { status } = error as { status?: unknown }
    if (typeof status === 'number' && status >= 400 && status < 500) return void sendProblem(res, status, 'invalid_request')
    log.error({ error, request }, 'request failed')
    sendProblem(res, 500, 'internal_error')
  }
  const onError: ErrorRequestHandler = (error, _req, res, _next) => fail(error, res, res.locals.requestId)
  app.use(onError)

  return (req, res) => {
    const requestId = identify(req, res)
    const name = req.method === 'POST' ? WEBHOOK.exec(req.url ?? '')?.[1] : undefined
    const source = name === undefined ? undefined : events.config().sources.get(name)
    if (source) return void acknowledge(source, req, res, requestId).catch((error) => fail(error, res, requestId))
    app(req, Object.assign(res, { locals: { requestId } }))
  }
}

/** Gives an answer the ID of its request, and what keeps a browser from taking it for a page; what stands below sets its own. */
function identify(req: IncomingMessage, res: ServerResponse): string {
  const given = req.headers['x-request-id']
  const id = typeof given === 'string' && /^[\w.-]{1,64}$/.test(given) ? given : randomUUID()
  res.setHeader('x-request-id', id)
  res.setHeader('X-Content-Type-Options', 'nosniff')
  res.setHeader('Content-Security-Policy', "default-src 'none'; frame-ancestors 'none'")
  return id
}
