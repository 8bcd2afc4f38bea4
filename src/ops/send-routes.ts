import type pg from 'pg'
import { z } from 'zod'
import type { Log } from '../log.ts'
import { type EnqueueSends, enqueueFor } from '../sends/trigger.ts'
import { exportCsv } from './csv-export.ts'
import { asCsv, csvReply } from './csv-reply.ts'
import { sendFilter, sendKey } from './filters.ts'
import { createWaitingRoom, isUnderWay, requestSend, sendRequestSchema, waitSeconds } from './request-send.ts'
import { type Route, refuse, reply, route } from './route.ts'
import { findSend, listSends } from './send-queries.ts'
import { sendPageSchema, sendSchema } from './send-schemas.ts'
import { etagOf } from './wire.ts'

export interface SendRouteDeps {
  pool: pg.Pool
  reads: pg.Pool
  enqueueSends: EnqueueSends
  sendsPerMinute?: number | undefined
  now: () => Date
  log: Log
}

/** What a message with its bodies may have. */
const MAX_BODY_BYTES = 1_500_000
const tag = 'Sends'
const etag = { ETag: 'its version, for `If-Match`' }
const ofSend = { ...etag, 'Preference-Applied': 'as far as it was waited, by `Prefer: wait`' }

/** Asking for sends, and looking at them. */
export function sendRoutes({ pool, reads, enqueueSends, sendsPerMinute, now, log }: SendRouteDeps): Route[] {
  const waitingRoom = createWaitingRoom(pool, sendsPerMinute)
  return [
    route({
      id: 'listSends',
      method: 'get',
      path: '/v1/sends',
      tag,
      summary: 'List sends, newest first',
      roles: ['reader', 'operator'],
      query: sendFilter(now),
      answers: { 200: { description: 'One page', schema: sendPageSchema, others: asCsv } },
      async handle({ query, prefers, actor, mask }) {
        if (prefers('text/csv'))
          return csvReply(
            'sends',
            await exportCsv({ pool, reads }, { list: 'sends', filter: query }, { actor, via: 'api', mask }),
          )
        return reply(200, await listSends(reads, { ...query, withoutAddresses: mask.isOn }, sendsPerMinute))
      },
    }),
    route({
      id: 'requestSend',
      method: 'post',
      path: '/v1/sends',
      tag,
      summary: 'Ask for one email',
      description:
        'The same request twice is one send, so double clicks and retries are harmless. A key that a `rejected` send holds is taken over with the new message.',
      roles: ['operator', 'sender'],
      headers: {
        Prefer: {
          description: '`wait=N` (seconds, at most 30) waits until the send is out of `queued`, `claimed` and `sending`',
          example: 'wait=1',
        },
      },
      body: { schema: sendRequestSchema, limit: MAX_BODY_BYTES },
      answers: {
        200: {
          description: 'A send of the same message holds the key; or, after `Prefer: wait`, the send is closed',
          schema: sendSchema,
          headers: ofSend,
        },
        202: { description: 'Queued', schema: sendSchema, headers: ofSend },
      },
      problems: { 401: ['unauthorized'], 409: ['key_conflict'], 429: ['rate_limited'] },
      async handle({ body, actor, caller, requestId, header, signal, isStillAllowed }) {
        const requested = await requestSend(pool, enqueueFor(enqueueSends, requestId), body, {
          requestedBy: actor,
          sendsPerMinute,
        })
        log.info({ outcome: requested.outcome, by: caller.name, request: requestId }, 'send requested')
        if (requested.outcome === 'conflict') {
          const { status: send_status, fields } = requested
          return refuse(409, 'key_conflict', 'another message holds this key', { fields, send_status })
        }
        if (requested.outcome === 'rate_limited')
          return {
            ...refuse(429, 'rate_limited', 'this recipient has had as many emails of this kind as may be'),
            headers: { 'Retry-After': String(requested.retryAfterSeconds) },
          }
        const seconds = waitSeconds(header('prefer'))
        if (seconds === 0)
          return reply(requested.outcome === 'queued' ? 202 : 200, requested.send, { ETag: etagOf(requested.send) })

        const send = await waitingRoom.wait(requested.send, seconds, signal)
        // Meanwhile the token may have been revoked.
        if (!(await isStillAllowed()))
          return {
            ...refuse(401, 'unauthorized', 'needs a valid token'),
            headers: { 'WWW-Authenticate': 'Bearer realm="oncehook"' },
          }
        return reply(isUnderWay(send) ? 202 : 200, send, { ETag: etagOf(send), 'Preference-Applied': `wait=${seconds}` })
      },
    }),
    route({
      id: 'findSend',
      method: 'get',
      path: '/v1/sends/:key',
      tag,
      summary: 'One send, with all that is known about it',
      roles: ['reader', 'operator', 'sender'],
      params: z.strictObject({ key: sendKey }),
      missing: 'no send has this key',
      answers: { 200: { description: 'The send', schema: sendSchema, headers: etag } },
      async handle({ params }) {
        const send = await findSend(reads, params.key, sendsPerMinute)
        return send && reply(200, send, { ETag: etagOf(send) })
      },
    }),
  ]
}
