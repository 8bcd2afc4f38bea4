import type { Db } from '../db.ts'
import type { State, Status } from '../sends/lifecycle.ts'
import type { Message } from '../sends/message.ts'
import { findEtas } from './eta.ts'
import { REDELIVERIES, REDELIVERY_COUNT } from './event-queries.ts'
import { encodeCursor, MOST_COUNTED, type SendFilter } from './filters.ts'
import { searchSends } from './send-search.ts'
import { findEventFacts } from './send-story.ts'
import { explanationOf, type Moment, timelineOf } from './timeline.ts'

// Read-only. An attempt is told by its number: its id is a claim token and never leaves the database.

/** One send as a list has it, under the names of its columns. */
export interface SendRow {
  dedupe_key: string
  status: Status
  state: State
  needs_review: boolean
  version: number
  policy: string
  recipient: string
  subject: string | null
  source_event: string | null
  requested_by: string
  queued_at: Date
  send_after: Date | null
  claimed_at: Date | null
  sending_at: Date | null
  message_id: string | null
  completed_at: Date | null
  delivered_at: Date | null
  bounced_at: Date | null
  bounce_kind: string | null
  complained_at: Date | null
  settled_at: Date | null
  settled_by: string | null
  last_error: string | null
  /** About when it is called; null unless it waits and sending runs. */
  eta: Date | null
}

/** As the table has it. */
type StoredSend = Omit<SendRow, 'eta'>

interface Attempt {
  number: number
  outcome: string
  recipient: string
  claimed_at: Date
  called_at: Date | null
  ended_at: Date | null
  http_status: number | null
  error: string | null
  message_id: string | null
}

/** An event that asked for the send, and what came of that. */
interface SendEvent {
  id: string
  source: string
  event_id: string
  type: string | null
  livemode: boolean | null
  occurred_at: Date | null
  received_at: Date
  redeliveries: number
  rule: string
  outcome: string
  error: string | null
  at: Date
}

/** A delivery event that speaks of the send. */
interface Report {
  event: string
  source: string
  event_id: string
  kind: string
  message_id: string | null
  recipient: string | null
  bounce_kind: string | null
  occurred_at: Date
  received_at: Date
  attempt: number
}

interface Settlement {
  id: string
  attempt: number
  event: string | null
  grade: string
  rule_version: number
  from_state: string
  to_state: string
  candidates: { dedupe_key: string; attempt: number }[]
  /** What made it certain; for a line of a sending log its number and hash. */
  evidence: Record<string, unknown> | null
  event_at: Date | null
  actor: string
  at: Date
}

/** One send with all that is known about it. */
export interface Send extends SendRow {
  message: Message
  attempts: Attempt[]
  events: SendEvent[]
  reports: Report[]
  settlements: Settlement[]
  /** Why several events made one email; null where that isn't so. */
  explanation: string | null
  timeline: Moment[]
}

const ROW = `dedupe_key, status, state, needs_review, version, policy, recipient, message ->> 'subject' as subject, source_event, requested_by,
  queued_at, send_after, claimed_at, sending_at, message_id, completed_at, delivered_at, bounced_at, bounce_kind, complained_at, settled_at,
  settled_by, last_error`

/** The sends that a filter wants, newest first, and where the next page begins; null when this is the last. */
export async function listSends(
  db: Db,
  filter: SendFilter,
  sendsPerMinute?: number,
): Promise<{ sends: SendRow[]; next_cursor: string | null }> {
  const { limit } = filter
  // One more than is shown tells whether there is a next page.
  const search = searchSends(filter, limit + 1)
  // No name, so that each call is planned for its own filters.
  const { rows } = await db.query<StoredSend & { place: string }>(
    `${search.with} select ${ROW}, to_char(queued_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as place
     from (${search.text}) found join email_sends using (dedupe_key, queued_at)
     order by queued_at desc, dedupe_key desc limit $9`,
    search.values,
  )
  const shown = rows.slice(0, limit)
  const last = rows.length > limit ? shown.at(-1) : undefined
  const etas = await findEtas(db, shown, sendsPerMinute)
  return {
    sends: shown.map(({ place: _, ...row }) => ({ ...row, eta: etas.get(row.dedupe_key) ?? null })),
    next_cursor: last ? encodeCursor([last.place, last.dedupe_key]) : null,
  }
}

/** How many sends a filter wants, whatever page it is at; `MOST_COUNTED` + 1 where there are more. */
export async function countSends(db: Db, filter: SendFilter): Promise<number> {
  const search = searchSends({ ...filter, cursor: undefined }, MOST_COUNTED + 1, true)
  const { rows } = await db.query<{ count: number }>(
    `${search.with} select count(*)::int as count from (select from (${search.text}) found limit $9) counted`,
    search.values,
  )
  return rows[0]?.count ?? 0
}

/** One send by its key, with its attempts, events, reports, settlements and timeline. */
export async function findSend(db: Db, key: string, sendsPerMinute?: number): Promise<Send | undefined> {
  const { rows } = await db.query<StoredSend & { message: Message }>(
    `select ${ROW}, message from email_sends where dedupe_key = $1`,
    [key],
  )
  const row = rows[0]
  if (!row) return undefined
  const { rows: attempts } = await db.query<Attempt>(
    `select number, outcome, recipient, claimed_at, called_at, ended_at, http_status, error, message_id
     from send_attempts where dedupe_key = $1 order by number`,
    [key],
  )
  const { rows: events } = await db.query<SendEvent>(
    `select events.id, events.source, event_id, type, livemode, occurred_at, received_at, ${REDELIVERY_COUNT}, rule, outcome, follow_ups.error, at
     from follow_ups join webhook_events events on events.id = follow_ups.event ${REDELIVERIES} where dedupe_key = $1 order by at, events.id, rule`,
    [key],
  )
  const { rows: reports } = await db.query<Report>(
    `select event, source, event_id, kind, reports.message_id, reports.recipient, bounce_kind, reports.occurred_at, received_at, number as attempt
     from send_attempts attempts join delivery_reports reports on reports.attempt = attempts.id
       join webhook_events events on events.id = reports.event
     where dedupe_key = $1 order by received_at, event`,
    [key],
  )
  const { rows: settlements } = await db.query<Settlement>(
    `select settlements.id, number as attempt, event, grade, rule_version, from_state, to_state, evidence, event_at, actor, at, (
       select coalesce(json_agg(json_build_object('dedupe_key', candidate.dedupe_key, 'attempt', candidate.number) order by candidate.claimed_at), '[]')
       from send_attempts candidate where candidate.id = any (array(
         select value::uuid from jsonb_array_elements_text(settlements.candidates) value where value ~ '^[0-9a-f-]{36}$'))
     ) as candidates
     from settlements join send_attempts attempts on attempts.id = settlements.attempt where settlements.dedupe_key = $1 order by settlements.id`,
    [key],
  )
  const etas = await findEtas(db, [row], sendsPerMinute)
  const { message, ...stored } = row
  const send = { ...stored, eta: etas.get(key) ?? null, message, attempts, events, reports, settlements }
  return { ...send, explanation: explanationOf(send), timeline: timelineOf(send, await findEventFacts(db, send)) }
}

/** The state of a send, for those who wait for it. */
export async function findState(db: Db, key: string): Promise<State | undefined> {
  const { rows } = await db.query<{ state: State }>({
    name: 'find-state',
    text: 'select state from email_sends where dedupe_key = $1',
    values: [key],
  })
  return rows[0]?.state
}
