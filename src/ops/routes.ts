import express, { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from 'express'
import { ipKeyGenerator, rateLimit } from 'express-rate-limit'
import type pg from 'pg'
import type { z } from 'zod'
import type { Config } from '../config.ts'
import type { Fingerprints } from '../events/fingerprint.ts'
import type { Replayed } from '../events/replay.ts'
import type { Log } from '../log.ts'
import { type ProblemCode, sendProblem } from '../problem.ts'
import type { EnqueueSends } from '../sends/trigger.ts'
import { findEvent, findEventBody, listEvents } from './event-queries.ts'
import { eventFilter, problemsOf, readRowId, sendFilter } from './filters.ts'
import { createWaitingRoom, isTooDeep, isUnderWay, requestSend, sendRequestSchema, waitSeconds } from './request-send.ts'
import { findSend, listSends } from './send-queries.ts'
import { findSource, listSources, type Setup } from './source-queries.ts'
import { authenticate, type Role } from './tokens.ts'

export interface OpsDeps {
  pool: pg.Pool
  log: Log
  replay(id: string, actor: string, via: string): Promise<Replayed>
  enqueueSends: EnqueueSends
  config(): Config
  fingerprints: Fingerprints
  publicUrl?: string | undefined
  now?: (() => Date) | undefined
  /** Aborted when the process stops: who waits for a send then gets it as it is. */
  stopping?: AbortSignal | undefined
}

const MAX_BODY_BYTES = 1_500_000
const FAILED_SIGN_INS_A_MINUTE = 100
const MAX_TOKEN_LENGTH = 500

/** The JSON API under /v1. Whatever no route here takes ends as 404, so other routes of /v1 stand before it. */
export function opsRoutes(deps: OpsDeps): Router {
  const { pool, log, replay, enqueueSends, config, fingerprints, publicUrl, now = () => new Date(), stopping } = deps
  const setup = (): Setup => ({ config: config(), fingerprints, publicUrl, now: now() })
  const waitingRoom = createWaitingRoom(pool)
  const router = Router({ caseSensitive: true, strict: true })
  router.use('/v1', neverCached, bearer(pool))

  router
    .route('/v1/sends')
    .get(only('reader', 'operator'), async (req, res) => {
      const filter = checked(res, sendFilter(now), req.query)
      if (filter) res.json(await listSends(pool, filter))
    })
    .post(only('operator', 'sender'), express.json({ limit: MAX_BODY_BYTES }), async (req, res) => {
      if (isTooDeep(req.body)) return void sendProblem(res, 400, 'invalid_request', 'the body is nested too deeply')
      const body = checked(res, sendRequestSchema, req.body)
      if (!body) return
      const requested = await requestSend(pool, enqueueSends, body, `token:${callerOf(res).name}`)
      log.info({ outcome: requested.outcome, by: callerOf(res).name, request: res.locals.requestId }, 'send requested')
      if (requested.outcome === 'conflict') {
        const { status: send_status, fields } = requested
        return void sendProblem(res, 409, 'key_conflict', 'another message holds this key', { fields, send_status })
      }
      const seconds = waitSeconds(req.get('prefer'))
      if (seconds === 0) return void res.status(requested.outcome === 'queued' ? 202 : 200).json(requested.send)

      const send = await waitingRoom.wait(requested.send, seconds, untilGone(res, stopping))
      res.set('Preference-Applied', `wait=${seconds}`)
      res.status(isUnderWay(send) ? 202 : 200).json(send)
    })
    .all(methodNotAllowed('GET, HEAD, POST'))

  router
    .route('/v1/sends/:key')
    .get(async (req, res) => {
      const key = req.params.key
      const send = key.includes('\0') ? undefined : await findSend(pool, key)
      if (!send) return void sendProblem(res, 404, 'not_found', 'no send has this key')
      res.json(send)
    })
    .all(methodNotAllowed('GET, HEAD'))

  router
    .route('/v1/events')
    .get(only('reader', 'operator'), async (req, res) => {
      const filter = checked(res, eventFilter(now), req.query)
      if (filter) res.json(await listEvents(pool, filter))
    })
    .all(methodNotAllowed('GET, HEAD'))

  router
    .route('/v1/events/:id')
    .get(only('reader', 'operator'), async (req, res) => {
      const id = readRowId(req.params.id)
      const event = id && (await findEvent(pool, id))
      if (!event) return void sendProblem(res, 404, 'not_found', 'no event has this id')
      res.json(event)
    })
    .all(methodNotAllowed('GET, HEAD'))

  router
    .route('/v1/events/:id/body')
    .get(only('reader', 'operator'), async (req, res) => {
      const id = readRowId(req.params.id)
      const found = id && (await findEventBody(pool, id))
      if (!found) return void sendProblem(res, 404, 'not_found', 'no event has this id')
      if (!found.body) return void sendProblem(res, 410, 'body_emptied', 'retention has emptied this body')
      res.set('Content-Disposition', `attachment; filename="event-${id}.bin"`).type('application/octet-stream').send(found.body)
    })
    .all(methodNotAllowed('GET, HEAD'))

  router
    .route('/v1/events/:id/replay')
    .post(only('operator'), async (req, res) => {
      const id = readRowId(req.params.id)
      const replayed: Replayed = id ? await replay(id, `token:${callerOf(res).name}`, 'api') : { outcome: 'not_found' }
      const refusal = replayRefusals[replayed.outcome]
      if (refusal) return void sendProblem(res, ...refusal)
      res.status(202).json(replayed)
    })
    .all(methodNotAllowed('POST'))

  router
    .route('/v1/sources')
    .get(only('reader', 'operator'), async (_req, res) => void res.json(await listSources(pool, setup())))
    .all(methodNotAllowed('GET, HEAD'))

  router
    .route('/v1/sources/:name')
    .get(only('reader', 'operator'), async (req, res) => {
      const source = await findSource(pool, setup(), req.params.name)
      if (!source) return void sendProblem(res, 404, 'not_found', 'no source has this name')
      res.json(source)
    })
    .all(methodNotAllowed('GET, HEAD'))

  router.use('/v1', (_req, res) => sendProblem(res, 404, 'not_found'))
  router.use(onBadRequest)
  return router
}

const replayRefusals: { [Outcome in Replayed['outcome']]?: [number, ProblemCode, string] } = {
  not_found: [404, 'not_found', 'no event has this id'],
  pending: [409, 'already_running', 'this event waits to be processed already'],
  unknown_source: [409, 'unknown_source', 'the source of this event is not configured'],
  emptied: [410, 'body_emptied', 'retention has emptied the body of this event'],
}

const neverCached: RequestHandler = (_req, res, next) => {
  res.set({ 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff' })
  next()
}

/** Lets known tokens in. Only failures are counted, so that one caller's wrong tokens don't shut out those beside it. */
function bearer(pool: pg.Pool): RequestHandler {
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
      return next()
    }
    await refuse(req, res, () => {
      sendProblem(res.set('WWW-Authenticate', 'Bearer realm="oncehook"'), 401, 'unauthorized', 'needs a valid token')
    })
  }
}

// Set by `bearer`, through which every request has come; locals are untyped.
const callerOf = (res: Response) => res.locals.caller as { name: string; role: Role }

function only(...allowed: Role[]): RequestHandler {
  return (_req, res, next) => {
    if (allowed.includes(callerOf(res).role)) return next()
    sendProblem(res, 403, 'forbidden', `needs role ${allowed.join(' or ')}`)
  }
}

function methodNotAllowed(allow: string): RequestHandler {
  return (_req, res) => sendProblem(res.set('Allow', allow), 405, 'method_not_allowed')
}

/** The input as its schema reads it, or undefined after answering what is wrong with it. */
function checked<Schema extends z.ZodType>(res: Response, schema: Schema, input: unknown): z.output<Schema> | undefined {
  const parsed = schema.safeParse(input)
  if (parsed.success) return parsed.data
  const detail = input === undefined ? 'needs a JSON body with Content-Type: application/json' : undefined
  sendProblem(res, 400, 'invalid_request', detail, { errors: problemsOf(parsed.error) })
  return undefined
}

/** Aborted when the client goes away or the process stops. */
function untilGone(res: Response, stopping: AbortSignal | undefined): AbortSignal {
  const gone = new AbortController()
  res.once('close', () => gone.abort())
  // It may have gone while its send was being stored.
  if (res.destroyed) gone.abort()
  return stopping ? AbortSignal.any([gone.signal, stopping]) : gone.signal
}

/** What the body parser finds wrong, by its own types; the texts of its errors hold parts of the body. */
const bodyProblems: Record<string, [number, ProblemCode]> = {
  'entity.too.large': [413, 'body_too_large'],
  'entity.parse.failed': [400, 'invalid_json'],
  'encoding.unsupported': [415, 'unsupported_encoding'],
  'charset.unsupported': [415, 'unsupported_encoding'],
  'request.size.invalid': [400, 'bad_body'],
  'request.aborted': [400, 'aborted'],
}

const onBadRequest: ErrorRequestHandler = (error: { type?: string; status?: number }, _req: Request, res, next) => {
  if (error instanceof URIError) return sendProblem(res, 400, 'invalid_request', 'the path is not valid percent-encoding')
  const problem = bodyProblems[error.type ?? '']
  if (problem) return sendProblem(res.set('Connection', 'close'), ...problem)
  // Broken compression has a status, but no type of its own.
  if (error.status === 400) return sendProblem(res.set('Connection', 'close'), 400, 'bad_body')
  next(error)
}
