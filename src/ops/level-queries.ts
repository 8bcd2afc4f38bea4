import type { Db } from '../db.ts'
import type { Status } from '../sends/lifecycle.ts'

// Read-only, for /metrics: over indexes of what is open, and never further than a bound.

/** One value that stands in the tables: which metric it belongs to, and the label that it has there, if any. */
export interface Level {
  metric: string
  label: string
  value: number
}

/** Counts stop here: a queue that long is as clear, and costs the database no more. */
const MOST_COUNTED = 100_000

// Each value stands in the text by itself: only so does the planner know which partial index holds it.
const each = (values: readonly string[], statement: (value: string) => string) => values.map(statement).join(' union all ')
const openSends = each(
  ['queued', 'claimed', 'sending', 'needs_review', 'rejected'] satisfies Status[],
  (status) =>
    `select 'sends', '${status}', (select count(*) from (select from email_sends where status = '${status}' limit $1) counted)`,
)
const openEvents = each(
  ['pending', 'failed', 'quarantined'],
  (status) =>
    `select 'events', '${status}', (select count(*) from (select from webhook_events where status = '${status}' limit $1) counted)`,
)
const sendsOfLastDay = each(
  ['queued', 'claimed', 'sending', 'sent', 'delivered', 'bounced', 'needs_review', 'rejected', 'abandoned'] satisfies Status[],
  (status) => `select 'sends_last_day' as metric, '${status}' as label, (
    select count(*) from email_sends where status = '${status}' and queued_at > now() - interval '24 h')::float8 as value`,
)
const settlementsOfLastDay = each(
  ['A', 'B', 'C', 'P'],
  (grade) => `select 'settlements_last_day', '${grade}', (
    select count(*) from settlements where grade = '${grade}' and at > now() - interval '24 h')`,
)

/** How much is open now, how old the oldest of it is, and what is held. */
export async function findLevels(db: Db): Promise<Level[]> {
  const { rows } = await db.query<Level>({
    name: 'find-levels',
    text: `select 'parked' as metric, '' as label, (
          select count(*) from (select from delivery_reports where attempt is null limit $1) counted)::float8 as value
      union all
      ${openSends}
      union all
      ${openEvents}
      union all
      select 'oldest_event', '', coalesce(extract(epoch from now() - (
        select received_at from webhook_events where status = 'pending' order by id limit 1)), 0)
      union all
      -- One that is to be sent later waits since then.
      select 'oldest_send', '', coalesce(extract(epoch from now() - (
        select greatest(queued_at, send_after) from email_sends where state = 'queued' and (send_after is null or send_after <= now())
        order by queued_at limit 1)), 0)
      union all
      select 'oldest_review', '', coalesce(extract(epoch from now() - (
        select queued_at from email_sends where status = 'needs_review' order by queued_at limit 1)), 0)
      union all
      select 'held', 'sending', (held_reason is not null)::int from sending_control
      union all
      select 'held', 'matching', (matching = 'suggest')::int from sending_control
      union all
      select 'next_call', '', greatest(0, coalesce(extract(epoch from max(next_at) - now()), 0)) from rate_slots
      union all
      select 'processes', kind, (select count(*) from processes where processes.kind = kinds.kind
          and ended_at is null and seen_at > now() - interval '30 s')
        from (values ('serve'), ('worker')) as kinds (kind)
      union all
      select 'last_sweep', '', extract(epoch from now() - max(swept_at)) from processes having max(swept_at) is not null`,
    values: [MOST_COUNTED],
  })
  return rows
}

/** What was asked for in the last 24 hours, by its status now, and what was settled, by its grade. For once a minute: it counts a day. */
export async function findLastDay(db: Db): Promise<Level[]> {
  const { rows } = await db.query<Level>({
    name: 'find-last-day',
    text: `${sendsOfLastDay} union all ${settlementsOfLastDay}`,
  })
  return rows
}
