import { z } from 'zod'
import type { Db } from '../db.ts'
import type { Status } from '../sends/lifecycle.ts'
import { cursor, encodeCursor, limit, readRowId, text } from './filters.ts'

// Read-only: delivery reports that found no call.

export const reportFilter = z.strictObject({
  /** Why it is parked, as `foreign`, `ambiguous` or `no message id`. */
  parked: text.optional(),
  /** Those that a person has said are not ours, instead of all others. */
  dismissed: z
    .enum(['true', 'false'])
    .default('false')
    .transform((value) => value === 'true'),
  limit,
  cursor: cursor(z.tuple([z.string().refine((value) => readRowId(value) !== undefined)])).optional(),
})
export type ReportFilter = z.output<typeof reportFilter>

/** A report that belongs to no send, and those that it may belong to. */
export interface UnmatchedReport {
  /** The row of its event. */
  event: string
  source: string
  event_id: string
  kind: string
  bounce_kind: string | null
  message_id: string | null
  recipient: string | null
  subject: string | null
  occurred_at: Date
  has_own_time: boolean
  received_at: Date
  parked: string
  dismissed_at: Date | null
  dismissed_by: string | null
  /** The nearest first; for one without a message ID those to the same mailbox. */
  candidates: ReportCandidate[]
}

/** A send whose call a report may be of. */
interface ReportCandidate {
  dedupe_key: string
  status: Status
  version: number
  attempt: number
  /** After that call. */
  seconds_after_call: number
}

const MOST_CANDIDATES = 10

/** The reports that found no call, the newest first, with the sends that they may be of. */
export async function listReports(
  db: Db,
  { parked, dismissed, limit, cursor }: ReportFilter,
): Promise<{ reports: UnmatchedReport[]; next_cursor: string | null }> {
  const rows = await select(
    db,
    `dismissed_at is ${dismissed ? 'not' : ''} null and ($1::text is null or parked = $1) and ($2::bigint is null or event < $2)`,
    [parked ?? null, cursor?.[0] ?? null, limit + 1],
  )
  const shown = rows.slice(0, limit)
  const last = rows.length > limit ? shown.at(-1) : undefined
  return { reports: shown, next_cursor: last ? encodeCursor([last.event]) : null }
}

/** One report that belongs to no send, dismissed or not. */
export async function findReport(db: Db, event: string): Promise<UnmatchedReport | undefined> {
  const [report] = await select(db, 'event = $1 and $2::bigint is null', [event, null, 1])
  return report
}

/** Unmatched reports by a condition of ours, with its values; the third is how many at most. */
async function select(db: Db, condition: string, values: unknown[]): Promise<UnmatchedReport[]> {
  const { rows } = await db.query<UnmatchedReport>(
    `select event, source, event_id, kind, bounce_kind, message_id, recipient, subject, reports.occurred_at, has_own_time, received_at, parked,
       dismissed_at, dismissed_by, coalesce(candidates.list, '[]') as candidates
     from (select * from delivery_reports
       where attempt is null and ${condition} order by event desc limit $3) reports
       join webhook_events events on events.id = event
       left join lateral (
         select json_agg(json_build_object('dedupe_key', dedupe_key, 'status', status, 'version', version, 'attempt', number,
           'seconds_after_call', seconds) order by abs(seconds), dedupe_key, number) as list
         from (
           select dedupe_key, status, version, number, round(extract(epoch from reports.occurred_at - calls.claimed_at))::int as seconds
           from send_attempts calls join email_sends using (dedupe_key)
           where calls.id = any (reports.candidates)
             or (reports.message_id is null and calls.match_key = reports.match_key and outcome in ('unknown', 'accepted')
               and calls.message_id is null
               and calls.claimed_at between reports.occurred_at - interval '14 days' and reports.occurred_at + interval '1 hour')
           order by abs(extract(epoch from reports.occurred_at - calls.claimed_at)) limit ${MOST_CANDIDATES}
         ) nearest) candidates on true
     order by event desc`,
    values,
  )
  return rows
}

/** How many reports found no call, by why; together at most `most` + 1 are counted. */
export async function countReports(db: Db, most = 1_000): Promise<Record<string, number>> {
  const { rows } = await db.query<{ parked: string; count: number }>({
    name: 'count-reports',
    text: `select parked, count(*)::int as count from (
        select parked from delivery_reports where attempt is null and dismissed_at is null order by event desc limit $1) reports
      group by parked order by parked`,
    values: [most + 1],
  })
  return Object.fromEntries(rows.map(({ parked, count }) => [parked, count]))
}
