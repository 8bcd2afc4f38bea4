import express, { type ErrorRequestHandler, type Request, type Response, Router } from 'express'
import type pg from 'pg'
import type { Config } from '../config.ts'
import type { Fingerprints } from '../events/fingerprint.ts'
import type { Replayed } from '../events/replay.ts'
import type { RunDeps } from '../events/runs.ts'
import type { Log } from '../log.ts'
import { type ProblemCode, sendProblem } from '../problem.ts'
import type { EnqueueSends } from '../sends/trigger.ts'
import { bearer, callerOf, checked, methodNotAllowed, neverCached, only } from './access.ts'
import { decisionRoutes } from './decision-routes.ts'
import { findEvent, findEventBody, listEvents } from './event-queries.ts'
import { eventFilter, readRowId, sendFilter } from './filters.ts'
import { createWaitingRoom, isTooDeep, isUnderWay, requestSend, sendRequestSchema, waitSeconds } from './request-send.ts'
import { runRoutes } from './run-routes.ts'
import { findSend, listSends } from './send-queries.ts'
import { findSource, listSources, type Setup } from './source-queries.ts'

export interface OpsDeps {
  pool: pg.Pool
  log: Log
  replay(id: string, actor: string, via: string): Promise<Replayed>
  runs: RunDeps
  enqueueSends: EnqueueSends
  config(): Config
  fingerprints: Fingerprints
  publicUrl?: string | undefined
  /** As the workers have it, for what is said of those who wait. */
  sendsPerMinute?: number | undefined
  now?: (() => Date) | undefined
  /** Aborted when the process stops: who waits for a send then gets it as it is. */
  stopping?: AbortSignal | undefined
}

const MAX_BODY_BYTES = 1_500_000

/** The JSON API under /v1. Whatever no route here takes ends as 404, so other routes of /v1 stand before it. */
export function opsRoutes(deps: OpsDeps): Router {
  const {
    pool,
    log,
    replay,
    enqueueSends,
    config,
    fingerprints,
    publicUrl,
    sendsPerMinute,
    now = () => new Date(),
    stopping,
  } = deps
  const setup = (): Setup => ({ config: config(), fingerprints, publicUrl, now: now() })
  const waitingRoom = createWaitingRoom(pool, sendsPerMinute)
  const router = Router({ caseSensitive: true, strict: true })
  router.use('/v1', neverCached, bearer(pool))

  router
    .route('/v1/sends')
    .get(only('reader', 'operator'), async (req, res) => {
      const filter = checked(res, sendFilter(now), req.query)
      if (filter) res.json(await listSends(pool, filter, sendsPerMinute))
    })
    .post(only('operator', 'sender'), express.json({ limit: MAX_BODY_BYTES }), async (req, res) => {
      if (isTooDeep(req.body)) return void sendProblem(res, 400, 'invalid_request', 'the body is nested too deeply')
      const body = checked(res, sendRequestSchema, req.body)
      if (!body) return
      const requested = await requestSend(pool, enqueueSends, body, {
        requestedBy: `token:${callerOf(res).name}`,
        sendsPerMinute,
      })
      log.info({ outcome: requested.outcome, by: callerOf(res).name, request: res.locals.requestId }, 'send requested')
      if (requested.outcome === 'conflict') {
        const { status: send_status, fields } = requested
        return void sendProblem(res, 409, 'key_conflict', 'another message holds this key', { fields, send_status })
      }
      if (requested.outcome === 'rate_limited')
        return void sendProblem(res, 429, 'rate_limited', 'this recipient has had as many emails of this kind as may be')
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
      const send = key.includes('\0') ? undefined : await findSend(pool, key, sendsPerMinute)
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

  router.use(decisionRoutes({ pool, enqueueSends, sendsPerMinute, log, isExclusive: () => config().account === 'exclusive' }))
  router.use(runRoutes(deps.runs, { log, now }))
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

/** Aborted when the client goes away or the process stops. */
function untilGone(res: Response, stopping: AbortSignal | undefined): AbortSignal {
  const gone = new AbortController()
  // It may have gone before anybody listened.
  if (res.destroyed) gone.abort()
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
