import type { IncomingMessage, ServerResponse } from 'node:http'
import { Router } from 'express'
import type { Config, Source } from '../config.ts'
import { reached } from '../fault-points.ts'
import type { Log } from '../log.ts'
import { sendProblem, sendStorageProblem } from '../problem.ts'
import { type AdmissionLimits, createAdmission } from './admission.ts'
import { NotRecorded } from './batch.ts'
import { BadBody, mostBytesOf, readRawBody } from './raw-body.ts'
import { type ReceiveDeps, receive } from './receive.ts'
import type { Refusals } from './refusals.ts'
import { createShedding } from './shedding.ts'
import type { Tallies } from './tallies.ts'
import { createTurns } from './turns.ts'

export interface EventRoutesDeps extends ReceiveDeps {
  config(): Config
  log: Log
  /** Counts one answer of a source and the seconds it took; told with the ID of its request. */
  acknowledged(source: string, result: string, seconds: number, requestId: string): void
  /** Told of each request that is taken, and again, negative, when it ends. */
  underWay?(requests: number, bytes: number): void
  tallies: Tallies
  refusals: Refusals
  mostUnderWay?: AdmissionLimits
}

/** So many are verified in one turn of the event loop: some half a millisecond. */
const MOST_IN_TURN = 8
/** A body up to here is read to its end when it is refused, so that its connection can be kept. */
const MOST_BYTES_TO_SKIP = 64 * 1024

/** Answers one POST to a source; rejects with what nobody expected. */
export type Acknowledge = (source: Source, req: IncomingMessage, res: ServerResponse, requestId: string) => Promise<void>

/** 2xx means committed, 401 never says why, and nothing is kept of what isn't verified. */
export function createAcknowledge(deps: EventRoutesDeps): Acknowledge {
  const turns = createTurns(MOST_IN_TURN)
  const admission = createAdmission(deps.recorder.delayMs, deps.mostUnderWay)
  const shedding = createShedding((source, requests) =>
    deps.log.warn({ source, result: 'overloaded', requests }, 'webhooks refused'),
  )
  return async (source, req, res, requestId) => {
    const started = performance.now()
    const report = (result: string, facts: object = {}, level: 'info' | 'warn' = 'info') => {
      const seconds = (performance.now() - started) / 1000
      deps.acknowledged(source.name, result, seconds, requestId)
      // A refusal is tallied with its cause, which is found out after the answer.
      if (result !== 'refused') deps.tallies.answered(source.name, result, '', seconds)
      deps.log[level](
        { source: source.name, result, ms: Math.round(seconds * 10_000) / 10, request: requestId, ...facts },
        'webhook',
      )
    }

    const bytes = mostBytesOf(req, source.maxBodyBytes)
    const leave = admission.enter(source, bytes)
    if (!leave) {
      // Refused with its body unread, a request is still read to its end (for as long as the server gives one): a connection
      // that closes under a sender takes the answer with it.
      if (bytes > MOST_BYTES_TO_SKIP) res.setHeader('Connection', 'close')
      await shedding.refused(source.name)
      const seconds = (performance.now() - started) / 1000
      deps.acknowledged(source.name, 'overloaded', seconds, requestId)
      deps.tallies.answered(source.name, 'overloaded', '', seconds)
      return sendStorageProblem(res, 'too much is under way; deliver again later')
    }
    deps.underWay?.(1, bytes)
    res.once('close', () => {
      leave()
      deps.underWay?.(-1, -bytes)
    })

    const body = await readRawBody(req, source.maxBodyBytes).catch(asValue(BadBody))
    if (body instanceof BadBody) {
      report(body.code)
      if (body.aborted) return void res.destroy()
      return sendProblem(res, body.status, body.code as 'bad_body', body.message)
    }

    await reached('ingest.read')
    const wait = turns.take()
    if (wait) {
      // Whoever doesn't wait for the answer delivers again; what they sent must not wait without the place that they gave back.
      if (res.closed) wait.drop()
      else res.once('close', wait.drop)
      if (!(await wait.turn)) return report('aborted')
      res.off('close', wait.drop)
    }
    const request = { headers: req.headersDistinct, body, query: queryOf(req) }
    const received = await receive(deps, source, request, requestId).catch(asValue(NotRecorded))
    if (received instanceof NotRecorded) {
      report('not_recorded', { error: received.cause ?? received }, 'warn')
      return sendStorageProblem(res, 'not acknowledged; deliver again later')
    }
    if (!received.ok && received.reason === 'key_unavailable') {
      report('key_unavailable', {}, 'warn')
      return sendStorageProblem(res, 'the key of this signature could not be fetched; deliver again later', 'key_unavailable')
    }
    if (!received.ok) {
      report('refused', { reason: received.reason, bytes: body.length })
      res.statusCode = 401
      res.end()
      return deps.refusals.refused(source, request, received.reason)
    }
    if (received.answer !== undefined) send(res, 'text/plain', received.answer)
    else send(res, 'application/json', JSON.stringify({ status: received.status, events: received.events }))
    report(received.status, { events: received.events.length, bytes: body.length })
    await reached('ingest.acked')
  }
}

/** What stands under `/webhooks/:source`: `POST`, and `GET` where a provider checks its endpoint so. */
export function eventRoutes(deps: EventRoutesDeps, acknowledge = createAcknowledge(deps)): Router {
  const { config } = deps
  return Router({ caseSensitive: true, strict: true })
    .post('/webhooks/:source', (req, res) => {
      const source = config().sources.get(req.params.source)
      if (!source) return void sendProblem(res, 404, 'unknown_source')
      return acknowledge(source, req, res, res.locals.requestId)
    })
    .get('/webhooks/:source', (req, res, next) => {
      const source = config().sources.get(req.params.source)
      const answer = source?.provider.challenge?.(queryOf(req), source.secrets)
      if (answer === undefined) return next()
      send(res, 'text/plain', answer)
    })
    .all('/webhooks/:source', (req, res) => {
      if (!config().sources.has(req.params.source)) return void sendProblem(res, 404, 'unknown_source')
      sendProblem(res.set('Allow', 'POST'), 405, 'method_not_allowed', 'webhooks are posted')
    })
}

function send(res: ServerResponse, type: string, text: string): void {
  res.setHeader('Content-Type', `${type}; charset=utf-8`)
  res.end(text)
}

function queryOf({ url = '' }: IncomingMessage): string {
  const at = url.indexOf('?')
  return at < 0 ? '' : url.slice(at + 1)
}

/** Turns one expected class of rejection into a value; all others go on to the error handler. */
function asValue<Expected>(expected: new (...args: never[]) => Expected): (error: unknown) => Expected {
  return (error) => {
    if (error instanceof expected) return error
    throw error
  }
}
