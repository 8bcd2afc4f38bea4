import type pg from 'pg'
import { z } from 'zod'
import { attachReport, dismissReport, type ReportDeps } from '../sends/attach.ts'
import { reasonSchema } from './decide-send.ts'
import { versionSchema } from './decision-routes.ts'
import { rowIdSchema, sendKey } from './filters.ts'
import { listReports, reportFilter } from './report-queries.ts'
import { dismissedSchema, reportPageSchema } from './review-schemas.ts'
import { type Route, refuse, reply, route } from './route.ts'
import { findSend } from './send-queries.ts'
import { sendSchema } from './send-schemas.ts'
import { etagOf } from './wire.ts'

export interface ReportRouteDeps extends ReportDeps {
  reads: pg.Pool
  sendsPerMinute?: number | undefined
}

const MAX_BODY_BYTES = 20_000
const tag = 'Decisions'

const attachment = z
  .strictObject({
    version: versionSchema,
    event: rowIdSchema.meta({ description: "The report's event" }),
    other_mailbox: z.boolean().optional().meta({ description: 'It names another address, and is of this send all the same' }),
    reason: reasonSchema,
  })
  .meta({ id: 'Attachment', example: { version: 4, event: '4', reason: 'same subject, one minute later' } })
const dismissal = z
  .strictObject({ reason: reasonSchema })
  .meta({ id: 'Dismissal', example: { reason: 'sent by the newsletter tool' } })

/** Delivery events that found no send, and what people say of them. */
export function reportRoutes(deps: ReportRouteDeps): Route[] {
  const { pool, reads, sendsPerMinute } = deps
  return [
    route({
      id: 'attachReport',
      method: 'post',
      path: '/v1/sends/:key/attach',
      tag,
      summary: 'Say that a report which found no send speaks of this one',
      description: 'A send that needs a decision is settled by it. Audited.',
      roles: ['operator'],
      params: z.strictObject({ key: sendKey }),
      missing: 'no send has this key',
      versioned: true,
      body: { schema: attachment, limit: MAX_BODY_BYTES },
      answers: {
        200: { description: 'The send as it is now', schema: sendSchema, headers: { ETag: 'its version, for `If-Match`' } },
      },
      problems: { 409: ['stale_version', 'not_allowed', 'report_taken', 'message_taken', 'other_mailbox', 'no_call'] },
      async handle({ params: { key }, body, version, actor, requestId }) {
        const { event, other_mailbox: isOtherMailbox, reason } = body
        const attached = await attachReport(deps, key, { event, version, isOtherMailbox, reason, actor, via: 'api', requestId })
        switch (attached.outcome) {
          case 'not_found':
            return undefined
          case 'report_not_found':
            return refuse(404, 'not_found', 'no event with this id is a report')
          case 'stale':
          case 'not_allowed': {
            const { status: send_status, version } = attached
            return attached.outcome === 'stale'
              ? refuse(409, 'stale_version', 'the send has changed since', { send_status, version })
              : refuse(409, 'not_allowed', 'the send is being sent just now', { send_status, version })
          }
          case 'report_taken':
            return refuse(409, 'report_taken', 'this report belongs to a send already')
          case 'message_taken':
            return refuse(409, 'message_taken', 'the message of this report belongs to another call')
          case 'other_mailbox':
            return refuse(409, 'other_mailbox', 'the report names another address; if it is of this send all the same, say so')
          case 'no_call':
            return refuse(409, 'no_call', 'no call of this send may have sent anything')
          case 'attached': {
            const send = await findSend(pool, key, sendsPerMinute)
            return send && reply(200, send, { ETag: etagOf(send) })
          }
        }
      },
    }),
    route({
      id: 'listReports',
      method: 'get',
      path: '/v1/reports',
      tag,
      summary: 'List the delivery events that found no send, newest first, each with the sends that it may be of',
      roles: ['reader', 'operator'],
      query: reportFilter,
      answers: { 200: { description: 'One page', schema: reportPageSchema } },
      handle: async ({ query }) => reply(200, await listReports(reads, query)),
    }),
    route({
      id: 'dismissReport',
      method: 'post',
      path: '/v1/reports/:event/dismiss',
      tag,
      summary: 'Say that a report is of no email of ours',
      description: 'Attaching it to a send takes that back. Audited.',
      roles: ['operator'],
      params: z.strictObject({ event: rowIdSchema }),
      missing: 'no event with this id is a report',
      body: { schema: dismissal, limit: MAX_BODY_BYTES },
      answers: { 200: { description: 'It is dismissed', schema: dismissedSchema } },
      problems: { 409: ['report_taken'] },
      async handle({ params: { event }, body: { reason }, actor, requestId }) {
        const { outcome } = await dismissReport(deps, event, { reason, actor, via: 'api', requestId })
        if (outcome === 'not_found') return undefined
        return outcome === 'report_taken'
          ? refuse(409, 'report_taken', 'this report belongs to a send already')
          : reply(200, { outcome })
      },
    }),
  ]
}
