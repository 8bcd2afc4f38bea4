import type pg from 'pg'
import { z } from 'zod'
import type { Log } from '../log.ts'
import { isZone } from '../sends/sending-log.ts'
import { reasonSchema } from './decide-send.ts'
import { reconcileLog } from './reconcile-log.ts'
import { reconciledSchema } from './review-schemas.ts'
import { type Route, refuse, reply, route } from './route.ts'

const MAX_BODY_BYTES = 5_000_000
/** Told one by one; of the rest there are the counts. */
const MOST_LINES = 1_000

const column = z.string().min(1).max(200).optional()
const asked = z
  .strictObject({
    dry_run: z
      .enum(['true', 'false'])
      .transform((value) => value === 'true')
      .meta({ description: '`true` says what would be done, and does nothing', example: 'true' }),
    reason: reasonSchema.optional().meta({ description: 'Why, for the audit; needed unless it is a dry run' }),
    zone: z
      .string()
      .max(64)
      .refine(isZone, 'there is no such time zone')
      .default('UTC')
      .meta({ description: 'Of times that name none' }),
    recipient_column: column,
    message_id_column: column,
    status_column: column,
    time_column: column,
    subject_column: column,
  })
  .refine(({ dry_run, reason }) => dry_run || reason !== undefined, { path: ['reason'], message: 'must say why' })

/** Settling from the sending log that the Inboxili dashboard exports. */
export function reconcileRoutes({ pool, isExclusive, log }: { pool: pg.Pool; isExclusive(): boolean; log: Log }): Route[] {
  // It has the whole file and its findings in memory, so one at a time.
  let isReconciling = false
  return [
    route({
      id: 'reconcile',
      method: 'post',
      path: '/v1/reconcile',
      tag: 'Decisions',
      summary: 'Settle sends from a sending log (CSV)',
      description: `The file that the Inboxili dashboard exports. Its columns are found by their names unless they are given. The answer has the ${MOST_LINES.toLocaleString('en')} first lines that do something or need a look, and counts of all. The same file again changes nothing. Audited.`,
      roles: ['operator'],
      query: asked,
      body: {
        schema: z.instanceof(Buffer),
        limit: MAX_BODY_BYTES,
        type: 'text/csv',
        example: 'to,message_id,status,time\r\nada@example.com,m_93c,delivered,2026-11-29T14:02:31Z\r\n',
      },
      answers: { 200: { description: 'What was done, or would be', schema: reconciledSchema } },
      problems: { 400: ['unreadable_file'], 409: ['already_running'] },
      async handle({ query, body, actor, requestId }) {
        if (isReconciling) return refuse(409, 'already_running', 'another file is being read')
        isReconciling = true
        const { reason, zone, recipient_column, message_id_column, status_column, time_column, subject_column } = query
        const reconciled = await reconcileLog(
          { pool, isExclusive },
          // A Buffer by itself would be read byte by byte.
          (async function* () {
            yield body
          })(),
          {
            zone,
            howToName: (field) => `name it by ${field}_column`,
            columns: {
              ...(recipient_column && { recipient: recipient_column }),
              ...(message_id_column && { message_id: message_id_column }),
              ...(status_column && { status: status_column }),
              ...(time_column && { time: time_column }),
              ...(subject_column && { subject: subject_column }),
            },
            by: query.dry_run || reason === undefined ? undefined : { actor, via: 'api', reason },
          },
        ).finally(() => {
          isReconciling = false
        })
        if ('problem' in reconciled) return refuse(400, 'unreadable_file', reconciled.problem)
        log.info({ file: reconciled.file_sha256, ...reconciled.summary, by: actor, request: requestId }, 'sending log read')
        const telling = reconciled.lines.filter(({ outcome }) => outcome !== 'known' && outcome !== 'nothing')
        const lines = telling.slice(0, MOST_LINES)
        return reply(200, { ...reconciled, lines, lines_left_out: telling.length - lines.length })
      },
    }),
  ]
}
