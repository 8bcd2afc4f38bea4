import { Router } from 'express'
import type { Config } from '../config.ts'
import type { Log } from '../log.ts'
import { sendProblem, sendStorageProblem } from '../problem.ts'
import { BadBody, mostBytesOf, readRawBody } from './raw-body.ts'
import { type ReceiveDeps, receive } from './receive.ts'
import { NotRecorded } from './record.ts'

export interface EventRoutesDeps extends ReceiveDeps {
  config(): Config
  log: Log
  /** Counts one answer of a source and the seconds it took. */
  acknowledged(source: string, result: string, seconds: number): void
  /** Bytes of bodies that may be under way at once, before anybody knows whether they are signed. */
  mostBytesUnderWay?: number
}

const MOST_BYTES_UNDER_WAY = 256 * 1024 * 1024

/** `POST /webhooks/:source`: 2xx means committed, 401 never says why, and nothing is kept of what isn't verified. */
export function eventRoutes(deps: EventRoutesDeps): Router {
  let bytesUnderWay = 0
  return Router({ caseSensitive: true, strict: true })
    .post('/webhooks/:source', async (req, res) => {
      const started = performance.now()
      const source = deps.config().sources.get(req.params.source)
      // Refused with its body unread, a request is still read to its end (for as long as the server gives one): a connection
      // that closes under a sender takes the answer with it.
      if (!source) return void sendProblem(res, 404, 'unknown_source')
      const report = (result: string, facts: object = {}, level: 'info' | 'warn' = 'info') => {
        const seconds = (performance.now() - started) / 1000
        deps.acknowledged(source.name, result, seconds)
        deps.log[level](
          { source: source.name, result, ms: Math.round(seconds * 10_000) / 10, request: res.locals.requestId, ...facts },
          'webhook',
        )
      }

      const bytes = mostBytesOf(req, source.maxBodyBytes)
      if (bytesUnderWay + bytes > (deps.mostBytesUnderWay ?? MOST_BYTES_UNDER_WAY)) {
        report('overloaded')
        return void sendStorageProblem(res.set('Connection', 'close'), 'too much is under way; deliver again later')
      }
      bytesUnderWay += bytes
      res.once('close', () => {
        bytesUnderWay -= bytes
      })

      const body = await readRawBody(req, source.maxBodyBytes).catch(asValue(BadBody))
      if (body instanceof BadBody) {
        report(body.code)
        if (body.aborted) return void res.destroy()
        return void sendProblem(res, body.status, body.code as 'bad_body', body.message)
      }

      const received = await receive(deps, source, { headers: req.headersDistinct, body }).catch(asValue(NotRecorded))
      if (received instanceof NotRecorded) {
        report('not_recorded', { error: received.cause ?? received }, 'warn')
        return void sendStorageProblem(res, 'not acknowledged; deliver again later')
      }
      if (!received.ok) {
        report('refused', { reason: received.reason, bytes: body.length })
        return void res.status(401).end()
      }
      report(received.status, { events: received.events.length, bytes: body.length })
      res.json({ status: received.status, events: received.events })
    })
    .all('/webhooks/:source', (req, res) => {
      if (!deps.config().sources.has(req.params.source)) return void sendProblem(res, 404, 'unknown_source')
      sendProblem(res.set('Allow', 'POST'), 405, 'method_not_allowed', 'webhooks are posted')
    })
}

/** Turns one expected class of rejection into a value; all others go on to the error handler. */
function asValue<Expected>(expected: new (...args: never[]) => Expected): (error: unknown) => Expected {
  return (error) => {
    if (error instanceof expected) return error
    throw error
  }
}
