import type pg from 'pg'
import { z } from 'zod'
import { inTransaction } from '../db.ts'
import type { Decided } from '../sends/decide.ts'
import { type Switched, switchMatching, switchSending } from '../sends/hold.ts'
import { type DecideDeps, decideSend, messageIdSchema, reasonSchema, SECOND_PERSON } from './decide-send.ts'
import { sendKey } from './filters.ts'
import { type Route, refuse, reply, route } from './route.ts'
import { sendingSchema } from './run-schemas.ts'
import { findSend } from './send-queries.ts'
import { sendSchema } from './send-schemas.ts'
import { findSending } from './sending-queries.ts'
import { etagOf } from './wire.ts'

export interface DecisionRouteDeps extends DecideDeps {
  reads: pg.Pool
  sendsPerMinute?: number | undefined
}

/** What only a retry comes to. */
type OneOfTwo = { outcome: 'asked' | 'second_person_needed' | 'no_person' }

const MAX_BODY_BYTES = 20_000
const params = z.strictObject({ key: sendKey })
const missing = 'no send has this key'
const headers = { ETag: 'its version, for `If-Match`' }

/** Of the body; it may come by `If-Match` instead. */
export const versionSchema = z
  .int()
  .min(1)
  .max(2_147_483_647)
  .optional()
  .meta({ description: 'The version that was seen; or give it by `If-Match`', example: 4 })
const version = versionSchema
const reason = reasonSchema.meta({ description: 'Why, for the audit', example: 'seen in the dashboard, 14:02' })

const resolution = z
  .discriminatedUnion('decision', [
    z.strictObject({ version, decision: z.literal('sent'), message_id: messageIdSchema.optional(), reason }),
    z.strictObject({ version, decision: z.enum(['abandoned', 'retry']), reason }),
  ])
  .meta({ id: 'Resolution', example: { version: 4, decision: 'sent', message_id: 'm_93c', reason: 'in the dashboard, 14:02' } })
const reopening = z
  .strictObject({ version, reason })
  .meta({ id: 'Reopening', example: { version: 5, reason: 'that was another email' } })
const sendingSwitch = z
  .strictObject({ version, paused: z.boolean(), reason })
  .meta({ id: 'SendingSwitch', example: { version: 3, paused: false, reason: 'the key is right again' } })
const matchingSwitch = z
  .strictObject({ version, mode: z.enum(['auto', 'suggest']), reason })
  .meta({ id: 'MatchingSwitch', example: { version: 3, mode: 'auto', reason: 'the account is ours alone' } })

/** What people decide: each with the version that they saw, and a reason; whoever comes second gets 409. */
export function decisionRoutes(deps: DecisionRouteDeps): Route[] {
  const { pool, reads, sendsPerMinute } = deps

  const answerTo = async (key: string, decided: Exclude<Decided, OneOfTwo>) => {
    if (decided.outcome === 'not_found') return undefined
    if (decided.outcome === 'message_taken')
      return refuse(
        409,
        'message_taken',
        'another call has this message ID, its events name another recipient, or no call of this send can have it',
      )
    if (decided.outcome !== 'decided') {
      const { outcome, status: send_status, version } = decided
      return outcome === 'stale'
        ? refuse(409, 'stale_version', 'the send has changed since', { send_status, version })
        : refuse(409, 'not_allowed', `a send that is ${send_status} can't be decided so`, { send_status, version })
    }
    const send = await findSend(pool, key, sendsPerMinute)
    return send && reply(200, send, { ETag: etagOf(send) })
  }
  const answerToSwitch = async (switched: Switched) => {
    if (switched.outcome === 'stale') return refuse(409, 'stale_version', 'it has changed since', { version: switched.version })
    const sending = await findSending(pool)
    return reply(200, sending, { ETag: etagOf(sending) })
  }

  return [
    route({
      id: 'resolveSend',
      method: 'post',
      path: '/v1/sends/:key/resolve',
      tag: 'Decisions',
      summary: 'Decide a send whose outcome nobody could tell',
      description:
        'Only from `needs_review`. `retry` sends the email again: if the first one did go out, it arrives twice. Audited.',
      roles: ['operator'],
      params,
      missing,
      versioned: true,
      body: { schema: resolution, limit: MAX_BODY_BYTES },
      answers: { 200: { description: 'The send as it is now', schema: sendSchema, headers } },
      problems: { 409: ['stale_version', 'not_allowed', 'message_taken', 'second_person_needed'] },
      async handle({ params: { key }, body, version, actor, requestId }) {
        const by = { reason: body.reason, version, actor, via: 'api', requestId }
        const request =
          body.decision === 'sent'
            ? { decision: body.decision, messageId: body.message_id, ...by }
            : { decision: body.decision, ...by }
        const decided = await decideSend(deps, key, request)
        return decided.outcome === 'asked' || decided.outcome === 'second_person_needed' || decided.outcome === 'no_person'
          ? refuse(409, 'second_person_needed', SECOND_PERSON)
          : answerTo(key, decided)
      },
    }),
    route({
      id: 'reopenSend',
      method: 'post',
      path: '/v1/sends/:key/reopen',
      tag: 'Decisions',
      summary: 'Bring a closed send back to `needs_review`',
      description: 'From `sent`, `delivered`, `bounced` or `abandoned`. Audited.',
      roles: ['operator'],
      params,
      missing,
      versioned: true,
      body: { schema: reopening, limit: MAX_BODY_BYTES },
      answers: { 200: { description: 'The send as it is now', schema: sendSchema, headers } },
      problems: { 409: ['stale_version', 'not_allowed', 'message_taken'] },
      async handle({ params: { key }, body: { reason }, version, actor, requestId }) {
        const decided = await decideSend(deps, key, { decision: 'reopen', reason, version, actor, via: 'api', requestId })
        return answerTo(key, decided as Exclude<Decided, OneOfTwo>) // it is no retry
      },
    }),
    route({
      id: 'findSending',
      method: 'get',
      path: '/v1/sending',
      tag: 'Sending',
      summary: 'Whether sending runs',
      roles: ['reader', 'operator'],
      answers: { 200: { description: 'How it stands', schema: sendingSchema, headers } },
      async handle() {
        const sending = await findSending(reads)
        return reply(200, sending, { ETag: etagOf(sending) })
      },
    }),
    route({
      id: 'switchSending',
      method: 'post',
      path: '/v1/sending',
      tag: 'Sending',
      summary: 'Hold sending for all processes, or let it go on',
      description: 'Audited.',
      roles: ['operator'],
      versioned: true,
      body: { schema: sendingSwitch, limit: MAX_BODY_BYTES },
      answers: { 200: { description: 'How it stands now', schema: sendingSchema, headers } },
      problems: { 409: ['stale_version'] },
      async handle({ body, version, actor }) {
        const by = { ...body, version, actor, via: 'api' }
        return answerToSwitch(await inTransaction(pool, (tx) => switchSending(tx, by)))
      },
    }),
    route({
      id: 'switchMatching',
      method: 'post',
      path: '/v1/matching',
      tag: 'Sending',
      summary: 'Let events that name only a recipient settle sends, or not',
      description: 'Audited.',
      roles: ['operator'],
      versioned: true,
      body: { schema: matchingSwitch, limit: MAX_BODY_BYTES },
      answers: { 200: { description: 'How it stands now', schema: sendingSchema, headers } },
      problems: { 409: ['stale_version'] },
      async handle({ body, version, actor }) {
        const by = { ...body, version, actor, via: 'api' }
        return answerToSwitch(await inTransaction(pool, (tx) => switchMatching(tx, by)))
      },
    }),
  ]
}
