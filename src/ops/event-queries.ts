import type { Db } from '../db.ts'
import { findIdBounds } from '../events/id-bounds.ts'
import type { Status } from '../sends/lifecycle.ts'
import { searchEvents } from './event-search.ts'
import { type EventFilter, type EventStatus, encodeCursor, MOST_COUNTED } from './filters.ts'

// Read-only.

/** One event as a list has it, under the names of its columns. */
export interface EventRow {
  id: string
  source: string
  event_id: string
  id_basis: string
  type: string | null
  livemode: boolean | null
  status: EventStatus
  occurred_at: Date | null
  received_at: Date
  processed_at: Date | null
  error: string | null
  redeliveries: number
  last_redelivered_at: Date | null
  benign_variants: number
  body_sha256: string
  body_emptied_at: Date | null
  /** The ID of the provider's object that it is about. */
  object_ref: string | null
}

/** A send that the event asked for; its key is null when the follow-up failed before it had one. */
interface FollowUp {
  rule: string
  outcome: string
  error: string | null
  at: Date
  dedupe_key: string | null
  status: Status | null
  recipient: string | null
}

/** The same event ID with other content. */
interface Conflict {
  id: string
  body_sha256: string
  received_at: Date
  times: number
}

/** What the event said of a send, if it is a delivery event; the key is null until its send is known. */
interface EventReport {
  kind: string
  message_id: string | null
  recipient: string | null
  bounce_kind: string | null
  occurred_at: Date
  parked: string | null
  dedupe_key: string | null
}

/** The object that an event is about: its newest events, by the provider's time, the first of which tells its state. */
interface ObjectHistory {
  ref: string
  events: Pick<EventRow, 'id' | 'event_id' | 'type' | 'occurred_at' | 'received_at' | 'status'>[]
}

/** One event with all that is known about it but its body. */
export interface WebhookEvent extends EventRow {
  headers: Record<string, string>
  secret_index: number | null
  secret_fingerprint: string | null
  body_bytes: number | null
  sends: FollowUp[]
  conflicts: Conflict[]
  report: EventReport | null
  object: ObjectHistory | null
}

/** Joins `again`, how often each of `events` came again; nothing for most. */
export const REDELIVERIES = 'left join webhook_redeliveries again on again.source = events.source and again.event = events.id'

/** How often that is. The columns of `events` are for versions that count there. */
export const REDELIVERY_COUNT = 'coalesce(again.redeliveries, 0) as redeliveries'

/** The columns of a row, of `events` and `again`. */
export const EVENT_ROW = `events.id, events.source, event_id, id_basis, type, livemode, status, occurred_at, events.received_at, processed_at, error,
  ${REDELIVERY_COUNT}, again.last_redelivered_at, coalesce(again.benign_variants, 0) as benign_variants, encode(body_sha256, 'hex') as body_sha256,
  body_emptied_at, object_ref`

// A body that other events share outlives the emptying of this one; then it is no longer this one's.
const BODY = 'case when body_emptied_at is null then coalesce(events.body, bodies.body) end'

/** The events that a filter wants, newest first, and where the next page begins; null when this is the last. */
export async function listEvents(db: Db, filter: EventFilter): Promise<{ events: EventRow[]; next_cursor: string | null }> {
  const { limit, since, until } = filter
  const search = searchEvents(filter, await findIdBounds(db, since, until), limit + 1)
  // No name, so that each call is planned for its own filters.
  const { rows } = await db.query<EventRow>(
    `select ${EVENT_ROW} from webhook_events events ${REDELIVERIES} where id = any (array(${search.text})) order by id desc limit $10`,
    search.values,
  )
  const events = rows.slice(0, limit)
  const last = rows.length > limit ? events.at(-1) : undefined
  return { events, next_cursor: last ? encodeCursor([last.id]) : null }
}

/** How many events a filter wants, whatever page it is at; `MOST_COUNTED` + 1 where there are more. */
export async function countEvents(db: Db, filter: EventFilter): Promise<number> {
  const bounds = await findIdBounds(db, filter.since, filter.until)
  const search = searchEvents({ ...filter, cursor: undefined }, bounds, MOST_COUNTED + 1, true)
  const { rows } = await db.query<{ count: number }>(
    `select count(*)::int as count from (select from (${search.text}) found limit $10) counted`,
    search.values,
  )
  return rows[0]?.count ?? 0
}

/** One event by its row, with the sends that it caused and what came under its ID with other content. */
export async function findEvent(db: Db, id: string): Promise<WebhookEvent | undefined> {
  const { rows } = await db.query<
    EventRow & Pick<WebhookEvent, 'headers' | 'secret_index' | 'secret_fingerprint' | 'body_bytes'>
  >(
    `select ${EVENT_ROW}, headers, secret_index, secret_fingerprint, length(${BODY}) as body_bytes
     from webhook_events events ${REDELIVERIES} left join webhook_bodies bodies on bodies.sha256 = events.body_sha256 where events.id = $1`,
    [id],
  )
  const row = rows[0]
  if (!row) return undefined
  const { rows: sends } = await db.query<FollowUp>(
    `select rule, outcome, error, at, follow_ups.dedupe_key, status, recipient
     from follow_ups left join email_sends using (dedupe_key) where event = $1 order by at, rule, dedupe_key`,
    [id],
  )
  const { rows: conflicts } = await db.query<Conflict>(
    `select id, encode(body_sha256, 'hex') as body_sha256, received_at, times from webhook_conflicts where event = $1 order by id`,
    [id],
  )
  const { rows: reports } = await db.query<EventReport>(
    `select kind, reports.message_id, reports.recipient, bounce_kind, occurred_at, parked, dedupe_key
     from delivery_reports reports left join send_attempts attempts on attempts.id = reports.attempt where event = $1`,
    [id],
  )
  const object = row.object_ref === null ? null : { ref: row.object_ref, events: await listEventsOfObject(db, row) }
  return { ...row, sends, conflicts, report: reports[0] ?? null, object }
}

/** Of the event's own mode, and without what is quarantined, which says nothing of the object yet. */
async function listEventsOfObject(db: Db, { source, object_ref, livemode }: EventRow): Promise<ObjectHistory['events']> {
  const { rows } = await db.query<ObjectHistory['events'][number]>(
    `select id, event_id, type, occurred_at, received_at, status from webhook_events
     where source = $1 and object_ref = $2 and livemode is not distinct from $3 and status <> 'quarantined'
     order by occurred_at desc nulls last, id desc limit 50`,
    [source, object_ref, livemode],
  )
  return rows
}

/** The bytes of an event as they were received; null once retention has emptied them. */
export async function findEventBody(db: Db, id: string): Promise<{ body: Buffer | null } | undefined> {
  const { rows } = await db.query<{ body: Buffer | null }>(
    `select ${BODY} as body from webhook_events events left join webhook_bodies bodies on bodies.sha256 = events.body_sha256 where events.id = $1`,
    [id],
  )
  return rows[0]
}
