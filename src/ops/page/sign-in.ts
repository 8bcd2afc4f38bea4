import express, { type Request, type RequestHandler, type Response, Router } from 'express'
import { ipKeyGenerator, rateLimit } from 'express-rate-limit'
import { z } from 'zod'
import { PasswordsBusyError } from '../passwords.ts'
import { endedCookie, endSession, readSession, sessionCookie, startSessionByLink, tokenOfCookies } from '../sessions.ts'
import { type SignInDeps, signIn } from '../sign-in.ts'
import { isCode, readSignInLink } from '../sign-in-links.ts'
import { durationText } from '../words.ts'
import { field } from './components.ts'
import { type Html, html } from './html.ts'
import { carryForm, filledForm, type KeptForm, keptFormOf, localPath, MOST_KEPT_BYTES, readKeptForm } from './kept-form.ts'
import type { Page } from './layout.ts'
import { isSecure, type PageServer, refusalPage, sendPage } from './page.ts'
import { sameOrigin } from './visit.ts'

export type SignInServer = PageServer & SignInDeps

const BUSY_SECONDS = 2
const LINE_LENGTH = 4_100
/** Three for each byte of a form that is carried, and what signing in takes. */
const MOST_BYTES = 100_000
const read = express.urlencoded({ extended: false, limit: MOST_BYTES, parameterLimit: 20 })
const readForm = express.urlencoded({ extended: false, limit: MOST_KEPT_BYTES, parameterLimit: 2_000 })
/** From one address, by whom nobody knows: more than people send whose session is over. */
const UNKNOWN_FORMS_A_MINUTE = 60

const signInForm = z.strictObject({
  name: z.string().max(1_000),
  password: z.string().max(10_000),
  to: z.string().max(LINE_LENGTH).optional(),
  kept_path: z.string().max(LINE_LENGTH).optional(),
  kept: z.string().max(MOST_BYTES).optional(),
})
const linkForm = z.strictObject({ code: z.string().refine(isCode) })

/** Signing in and out: the only pages and forms for somebody who isn't known yet. */
export function signInRoutes(server: SignInServer): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const ours = sameOrigin(server.publicUrl, (req, res) => sendPage(server, req, res, foreignPage))
  const postOnly: RequestHandler = (req, res) => sendPage(server, req, res.set('Allow', 'POST'), onlyByForm)

  router
    .route('/ops/sign-in')
    .get(async (req, res) => {
      const { code, to } = req.query
      if (typeof code === 'string') return sendPage(server, req, res, await linkPage(server, code))
      if (await currentSession(server, req)) return res.redirect(303, localPath(to) ?? '/ops')
      await sendPage(server, req, res, signInPage({ to: localPath(to) }))
    })
    .post(ours, read, (req, res) => signInByPassword(server, req, res))
    .all((req, res) => sendPage(server, req, res.set('Allow', 'GET, HEAD, POST'), onlyByForm))

  router
    .route('/ops/sign-in/link')
    .post(ours, read, async (req, res) => {
      const { data } = linkForm.safeParse(req.body)
      const token = data && (await startSessionByLink(server.pool, data.code))
      if (token !== undefined) {
        await takeSession(server, req, res, token)
        return res.redirect(303, '/ops')
      }
      // The second of two clicks.
      if (await currentSession(server, req)) return res.redirect(303, '/ops')
      await sendPage(server, req, res, spentLinkPage)
    })
    .all(postOnly)

  router
    .route('/ops/sign-out')
    .post(ours, async (req, res) => {
      const token = tokenOf(server, req)
      if (token !== undefined) await endSession(server.pool, token)
      res.set('Set-Cookie', endedCookie(isSecure(req, server.publicUrl))).redirect(303, '/ops/sign-in')
    })
    .all(postOnly)
  return router
}

async function signInByPassword(server: SignInServer, req: Request, res: Response): Promise<void> {
  const { data } = signInForm.safeParse(req.body)
  if (!data)
    return sendPage(server, req, res, refusalPage(400, 'This form is incomplete', html`<a href="/ops/sign-in">Sign in</a>`))
  const { name, password } = data
  const to = localPath(data.to)
  const kept = readKeptForm(data.kept_path, data.kept)
  const again = (status: number, problem: string) => sendPage(server, req, res, signInPage({ to, kept, name, problem, status }))

  const signedIn = await signIn(server, { name, password, address: ipKeyGenerator(req.ip ?? '') }).catch((error: unknown) => {
    if (error instanceof PasswordsBusyError) return { outcome: 'busy' as const }
    throw error
  })
  if (signedIn.outcome !== 'signed_in')
    server.log.warn({ outcome: signedIn.outcome, request: res.locals.requestId }, 'sign-in refused')
  if (signedIn.outcome === 'refused') return again(401, 'The name or the password is wrong.')
  if (signedIn.outcome === 'busy') {
    res.set('Retry-After', String(BUSY_SECONDS))
    return again(503, 'Too many people sign in at this moment. Try again.')
  }
  if (signedIn.outcome === 'throttled') {
    res.set('Retry-After', String(signedIn.retryAfterSeconds))
    const wait = durationText(signedIn.retryAfterSeconds * 1_000)
    return again(429, `Too many tries with this name, or from this address. Try again in ${wait}, or sign in by a one-time link.`)
  }
  await takeSession(server, req, res, signedIn.token)
  if (kept) return sendPage(server, req, res, { title: 'Send the form again?', main: filledForm(kept) })
  res.redirect(303, to ?? '/ops')
}

/** A page or a form that needs a person: signing in leads back to it, and a filled form comes back filled, not sent. */
export function askToSignIn(server: SignInServer): RequestHandler {
  const bounded = rateLimit({
    windowMs: 60_000,
    limit: UNKNOWN_FORMS_A_MINUTE,
    keyGenerator: (req) => ipKeyGenerator(req.ip ?? ''),
    standardHeaders: false,
    legacyHeaders: false,
    // What it would check is how the app is set up behind a proxy, which TRUST_PROXY says.
    validate: false,
    handler: (req, res) => sendPage(server, req, res.set('Retry-After', '60'), tooManyForms),
  })
  return async (req, res, next) => {
    if (req.method === 'GET' || req.method === 'HEAD') {
      const to = localPath(req.originalUrl)
      return res.redirect(303, to === undefined || to === '/ops' ? '/ops/sign-in' : `/ops/sign-in?to=${encodeURIComponent(to)}`)
    }
    const answer = (kept: KeptForm | undefined) =>
      sendPage(server, req, res, signInPage({ kept, to: undefined, status: 401, problem: overText(kept) }))
    if (req.method !== 'POST') return answer(undefined)
    const keep = (error?: unknown) =>
      void answer(error === undefined ? keptFormOf(req.originalUrl, req.body) : undefined).catch(next)
    // What another site has sent is not shown again, and no other type of body is kept. One that is too large isn't even read.
    const isShort = Number(req.get('content-length') ?? Number.POSITIVE_INFINITY) <= MOST_KEPT_BYTES
    sameOrigin(server.publicUrl, () => sendPage(server, req, res, foreignPage))(req, res, () =>
      bounded(req, res, (error?: unknown) => {
        if (error !== undefined) return next(error)
        if (isShort) return readForm(req, res, keep)
        answer(undefined).catch(next)
      }),
    )
  }
}

const overText = (kept: KeptForm | undefined) =>
  kept
    ? 'Your session is over, and nothing was changed. Sign in: what you sent comes back filled.'
    : 'Your session is over, and nothing was changed. Sign in and do it again.'

/** Signs in with a new session, whatever was there before. */
async function takeSession(server: SignInServer, req: Request, res: Response, token: string): Promise<void> {
  const before = tokenOf(server, req)
  if (before !== undefined) await endSession(server.pool, before)
  res.set('Set-Cookie', sessionCookie(token, isSecure(req, server.publicUrl)))
}

async function currentSession(server: SignInServer, req: Request) {
  const token = tokenOf(server, req)
  return token === undefined ? undefined : readSession(server.pool, token)
}

const tokenOf = (server: SignInServer, req: Request) => tokenOfCookies(req.get('cookie'), isSecure(req, server.publicUrl))

function signInPage(given: {
  to: string | undefined
  kept?: KeptForm | undefined
  name?: string
  problem?: string
  status?: number
}): Page {
  const { to, kept, name, problem, status = 200 } = given
  return {
    title: problem === undefined ? 'Sign in' : 'Error: Sign in',
    status,
    main: html`<h1>Sign in</h1>${problem !== undefined && summary(problem)}
<form action="/ops/sign-in" method="post">${field({ name: 'name', label: 'Name', value: name, required: true, maxLength: 100, autocomplete: 'username' })}
${field({ name: 'password', label: 'Password', type: 'password', required: true, maxLength: 1_000, autocomplete: 'current-password' })}
${to !== undefined && html`<input type="hidden" name="to" value="${to}">`}${kept && carryForm(kept)}<button class="main">Sign in</button></form>
<h2>No password, or forgotten?</h2><p>Whoever runs this service makes a one-time link: <code>oncehook user link NAME</code>, and adds people: <code>oncehook user create NAME --role operator</code>.</p>`,
  }
}

const summary = (problem: string) =>
  html`<div class="errors" role="alert" tabindex="-1" id="errors"><h2>There is a problem</h2><p><a href="#field-name">${problem}</a></p></div>`

async function linkPage(server: SignInServer, code: string): Promise<Page> {
  const link = isCode(code) ? await readSignInLink(server.reads, code) : undefined
  if (!link) return spentLinkPage
  return {
    title: 'Sign in',
    main: html`<h1>Sign in as ${link.name}</h1><p>This link works once.</p>
<form action="/ops/sign-in/link" method="post"><input type="hidden" name="code" value="${code}"><button class="main">Sign in</button></form>`,
  }
}

const more: Html = html`Make another one with <code>oncehook user link NAME</code>, or <a href="/ops/sign-in">sign in with a password</a>.`
const spentLinkPage = refusalPage(410, 'This link can’t be used', html`It was used before, or its time is over. ${more}`)
const foreignPage = refusalPage(
  403,
  'This was not sent from a page of ours',
  'Nothing was changed. Open the page and use its own form.',
)
const tooManyForms = refusalPage(
  429,
  'Too many forms from this address',
  html`Nobody is signed in by them, and nothing was changed. <a href="/ops/sign-in">Sign in</a>, or wait a minute.`,
)
const onlyByForm = refusalPage(405, 'Nothing is done by this address', 'Use the form on its page.')
