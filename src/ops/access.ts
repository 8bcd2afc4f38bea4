import type { RequestHandler, Response } from 'express'
import { ipKeyGenerator, rateLimit } from 'express-rate-limit'
import type pg from 'pg'
import { sendProblem } from '../problem.ts'
import { authenticate, type Role } from './tokens.ts'

const FAILED_SIGN_INS_A_MINUTE = 100
const MAX_TOKEN_LENGTH = 500

/** Answers are about now, and are JSON whatever a browser may think. */
export const neverCached: RequestHandler = (req, res, next) => {
  // An ETag is the version to decide on; what is told beside it may change without it, so it proves no answer to be the same.
  delete req.headers['if-none-match']
  res.set({ 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff' })
  next()
}

/** Lets known tokens in. Only failures are counted, so that one caller's wrong tokens don't shut out those beside it. */
export function bearer(pool: pg.Pool): RequestHandler {
  const refuse = rateLimit({
    windowMs: 60_000,
    limit: FAILED_SIGN_INS_A_MINUTE,
    keyGenerator: (req) => ipKeyGenerator(req.ip ?? ''),
    standardHeaders: false,
    // What it would check is how the app is set up behind a proxy, which TRUST_PROXY says.
    validate: false,
    handler: (_req, res) => sendProblem(res, 429, 'rate_limited', 'too many requests without a valid token'),
  })
  return async (req, res, next) => {
    const [, token] = /^Bearer +(\S+) *$/i.exec(req.get('authorization') ?? '') ?? []
    const caller = token && token.length <= MAX_TOKEN_LENGTH ? await authenticate(pool, token) : undefined
    if (caller) {
      res.locals.caller = caller
      res.locals.isStillAllowed = async () => (await authenticate(pool, token ?? '')) !== undefined
      return next()
    }
    await refuse(req, res, () => {
      sendProblem(res.set('WWW-Authenticate', 'Bearer realm="oncehook"'), 401, 'unauthorized', 'needs a valid token')
    })
  }
}

/** Who asks. Set by `bearer`, through which every request has come; locals are untyped. */
export const callerOf = (res: Response) => res.locals.caller as { name: string; role: Role }

/** Whether the token of a request that lasts would still be let in. Set by `bearer`, too. */
export const isStillAllowed = (res: Response): Promise<boolean> => (res.locals.isStillAllowed as () => Promise<boolean>)()

/** Lets only these roles through. */
export function only(...allowed: Role[]): RequestHandler {
  return (_req, res, next) => {
    if (allowed.includes(callerOf(res).role)) return next()
    sendProblem(res, 403, 'forbidden', `needs role ${allowed.join(' or ')}`)
  }
}

/** The last handler of a path. */
export function methodNotAllowed(allow: string): RequestHandler {
  return (_req, res) => sendProblem(res.set('Allow', allow), 405, 'method_not_allowed')
}
