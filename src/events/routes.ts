import { type Request, Router } from 'express'
import type { Config } from '../config.ts'
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

/** A body up to here is read to its end when it is refused, so that its connection can be kept. */
const MOST_BYTES_TO_SKIP = 64 * 1024

/**
 * `POST /webhooks/:source`: 2xx means committed, 401 never says why, and nothing is kept of what isn't verified. `GET` answers
 * where a provider checks its endpoint so.
 */
export function eventRoutes(deps: EventRoutesDeps): Router {
  const admission = createAdmission(deps.recorder.delayMs, deps.mostUnderWay)
  const shedding = createShedding((source, requests) =>
    deps.log.warn({ source, result: 'overloaded', requests }, 'webhooks refused'),
  )
  return Router({ caseSensitive: true, strict: true })
    .post('/webhooks/:source', async (req, res) => {
      const started = performance.now()
      const source = deps.config().sources.get(req.params.source)
      // Refused with its body unread, a request is still read to its end (for as long as the server gives one): a connection
      // that closes under a sender takes the answer with it.
      if (!source) return void sendProblem(res, 404, 'unknown_source')
      const report = (result: string, facts: object = {}, level: 'info' | 'warn' = 'info') => {
        const seconds = (performance.now() - started) / 1000
        deps.acknowledged(source.name, result, seconds, res.locals.requestId)
        // A refusal is tallied with its cause, which is found out after the answer.
        if (result !== 'refused') deps.tallies.answered(source.name, result, '', seconds)
        deps.log[level](
          { source: source.name, result, ms: Math.round(seconds * 10_000) / 10, request: res.locals.requestId, ...facts },
          'webhook',
        )
      }

      const bytes = mostBytesOf(req, source.maxBodyBytes)
      const leave = admission.enter(source, bytes)
      if (!leave) {
        if (bytes > MOST_BYTES_TO_SKIP) res.set('Connection', 'close')
        await shedding.refused(source.name)
        const seconds = (performance.now() - started) / 1000
        deps.acknowledged(source.name, 'overloaded', seconds, res.locals.requestId)
        deps.tallies.answered(source.name, 'overloaded', '', seconds)
        return void sendStorageProblem(res, 'too much is under way; deliver again later')
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
        return void sendProblem(res, body.status, body.code as 'bad_body', body.message)
      }

      await reached('ingest.read')
      const request = { headers: req.headersDistinct, body, query: queryOf(req) }
      const received = await receive(deps, source, request, res.locals.requestId).catch(asValue(NotRecorded))
      if (received instanceof NotRecorded) {
        report('not_recorded', { error: received.cause ?? received }, 'warn')
        return void sendStorageProblem(res, 'not acknowledged; deliver again later')
      }
      if (!received.ok && received.reason === 'key_unavailable') {
        report('key_unavailable', {}, 'warn')
        return void sendStorageProblem(
          res,
          'the key of this signature could not be fetched; deliver again later',
          'key_unavailable',
        )
      }
      if (!received.ok) {
        report('refused', { reason: received.reason, bytes: body.length })
        res.status(401).end()
        return deps.refusals.refused(source, request, received.reason)
      }
      report(received.status, { events: received.events.length, bytes: body.length })
      if (received.answer !== undefined) res.type('text/plain').send(received.answer)
      else res.json({ status: received.status, events: received.events })
      await reached('ingest.acked')
    })
    .get('/webhooks/:source', (req, res, next) => {
      const source = deps.config().sources.get(req.params.source)
      const answer = source?.provider.challenge?.(queryOf(req), source.secrets)
      if (answer === undefined) return next()
      res.type('text/plain').send(answer)
    })
    .all('/webhooks/:source', (req, res) => {
      if (!deps.config().sources.has(req.params.source)) return void sendProblem(res, 404, 'unknown_source')
      sendProblem(res.set('Allow', 'POST'), 405, 'method_not_allowed', 'webhooks are posted')
    })
}

function queryOf({ originalUrl }: Request): string {
  const at = originalUrl.indexOf('?')
  return at < 0 ? '' : originalUrl.slice(at + 1)
}

/** Turns one expected class of rejection into a value; all others go on to the error handler. */
function asValue<Expected>(expected: new (...args: never[]) => Expected): (error: unknown) => Expected {
  return (error) => {
    if (error instanceof expected) return error
    throw error
  }
}
