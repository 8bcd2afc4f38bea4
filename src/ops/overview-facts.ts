import type { Db } from '../db.ts'
import { findIdBounds } from '../events/id-bounds.ts'
import { EVENTS_OF_JOBS } from '../follow-ups/queue.ts'
import { type Status, statuses } from '../sends/lifecycle.ts'
import { ackQuantiles } from './ack-times.ts'
import { findProcesses } from './processes.ts'

// Read-only: what the overview is made of. Everything is counted over an index and never further than a bound.

/** Counts of what is open stop beyond this, and those of a day beyond ten times as many. */
const MOST_OPEN = 10_000
const MOST_OF_DAY = 100_000

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const before = (now: Date, ms: number) => new Date(now.getTime() - ms)

/** What sources answered lately, and when each last verified something. */
export interface ReceivingFacts {
  /** Requests of the last 10 minutes, those with a wrong signature, and those answered 503. */
  requests: number
  refused: number
  unavailable: number
  ack_p99_ms: number | null
  last_verified: { source: string; at: Date }[]
}

export async function findReceiving(db: Db, now: Date): Promise<ReceivingFacts> {
  const since = before(now, 10 * 60_000)
  const { rows: answers } = await db.query<Pick<ReceivingFacts, 'requests' | 'refused' | 'unavailable'>>(
    `select coalesce(sum(count), 0)::float8 as requests, coalesce(sum(count) filter (where outcome = 'refused'), 0)::float8 as refused,
       coalesce(sum(count) filter (where outcome in ('overloaded', 'not_recorded', 'key_unavailable')), 0)::float8 as unavailable
     from source_minutes where minute > $1 and minute <= $2`,
    [since, now],
  )
  const { rows: last_verified } = await db.query<{ source: string; at: Date }>(
    'select source, max(last_verified_at) as at from source_secrets group by source order by at desc',
  )
  const [ack] = await ackQuantiles(db, since, 1, { now })
  return { ...(answers[0] ?? { requests: 0, refused: 0, unavailable: 0 }), ack_p99_ms: ack?.p99_ms ?? null, last_verified }
}

/**
 * The longest time without a verified event that each source had at this time of day, in milliseconds, in 4 weeks: of each day the gap
 * that lies around it. A source without such days isn't in it.
 */
export async function findLongestGaps(db: Db, sources: readonly string[], now: Date): Promise<Map<string, number>> {
  const verified = `outcome in ('accepted', 'duplicate', 'quarantined')`
  const { rows } = await db.query<{ source: string; ms: number }>(
    `select source, max(extract(epoch from later - earlier) * 1000)::float8 as ms
     from unnest($1::text[]) source cross join generate_series(1, 28) days
       cross join lateral (select $2::timestamptz - days * interval '1 day' as at) moment
       cross join lateral (select minute as earlier from source_minutes
         where source_minutes.source = source.source and minute <= at and ${verified} order by minute desc limit 1) last_before
       cross join lateral (select minute as later from source_minutes
         where source_minutes.source = source.source and minute > at and ${verified} order by minute limit 1) first_after
     group by source`,
    [sources, now],
  )
  return new Map(rows.map(({ source, ms }) => [source, ms]))
}

export interface ProcessingFacts {
  waiting: number
  oldest_at: Date | null
  /** Of the last 24 hours. */
  failed: number
  quarantined: number
  /** Events that wait for more than a minute and have no job; null where there are too many jobs to tell. */
  orphans: number | null
}

/** A job comes with its event, and is at work within a second; the sweep mends what has none. */
const ORPHAN_AFTER_MS = 60_000
const MOST_JOBS = 5_000

export async function findProcessing(db: Db, now: Date): Promise<ProcessingFacts> {
  const { low } = await findIdBounds(db, before(now, DAY_MS), undefined)
  const count = (where: string) =>
    `(select count(*)::int from (select from webhook_events where ${where} limit ${MOST_OPEN + 1}) counted)`
  const { rows } = await db.query<Omit<ProcessingFacts, 'orphans'>>(
    `select ${count(`status = 'pending'`)} as waiting, (select received_at from webhook_events where status = 'pending' order by id limit 1) as oldest_at,
       ${count(`status = 'failed' and id >= $1 and received_at > $2`)} as failed,
       ${count(`status = 'quarantined' and id >= $1 and received_at > $2`)} as quarantined`,
    [low ?? '0', before(now, DAY_MS)],
  )
  const [facts] = rows
  if (!facts) throw new Error('a select without a table has no row')
  const isOld = facts.oldest_at !== null && facts.oldest_at < before(now, ORPHAN_AFTER_MS)
  return { ...facts, orphans: isOld ? await countOrphans(db, before(now, ORPHAN_AFTER_MS)) : 0 }
}

async function countOrphans(db: Db, receivedBefore: Date): Promise<number | null> {
  const { rows } = await db.query<{ orphans: number | null }>(
    `with jobs as materialized (
       select event from ${EVENTS_OF_JOBS} jobs where state < 'completed' limit ${MOST_JOBS + 1}
     )
     select case when (select count(*) from jobs) <= ${MOST_JOBS} then (
       select count(*)::int from (select id from webhook_events where status = 'pending' and received_at < $1 order by id limit 1000) waiting
       where id::text not in (select event from jobs where event is not null)) end as orphans`,
    [receivedBefore],
  )
  return rows[0]?.orphans ?? null
}

export interface SendingFacts {
  held_reason: string | null
  held_by: string | null
  held_at: Date | null
  matching: 'auto' | 'suggest'
  matching_reason: string | null
  waiting: number
  /** When the rate limit has its next free place. */
  next_at: Date | null
  /** Calls of the last 10 minutes that were answered 429. */
  rate_limited: number
  /** Calls of the last hour, and those whose outcome is unknown. */
  calls: number
  unknown: number
  /** Calls since so many minutes that the email API has accepted, and when the newest report was read. */
  accepted: number
  last_report_at: Date | null
  /** Sends that need a decision. */
  open: number
  oldest_open_at: Date | null
}

export async function findSendingFacts(db: Db, now: Date, silentMinutes: number): Promise<SendingFacts> {
  const { rows } = await db.query<SendingFacts>(
    `select held_reason, held_by, held_at, matching, matching_reason, (select max(next_at) from rate_slots) as next_at,
       (select count(*)::int from (select from email_sends where state = 'queued' limit ${MOST_OF_DAY + 1}) counted) as waiting,
       (select count(*)::int from send_attempts where claimed_at > $1::timestamptz - interval '10 min' and claimed_at <= $1 and http_status = 429) as rate_limited,
       calls.*,
       (select count(*)::int from send_attempts where claimed_at > $1::timestamptz - $2::int * interval '1 min' and claimed_at <= $1 and outcome = 'accepted') as accepted,
       (select read_at from delivery_reports order by event desc limit 1) as last_report_at,
       (select count(*)::int from (select from email_sends where status = 'needs_review' limit ${MOST_OPEN + 1}) counted) as open,
       (select queued_at from email_sends where status = 'needs_review' order by queued_at limit 1) as oldest_open_at
     from sending_control cross join (
       select count(*) filter (where outcome in ('accepted', 'refused', 'unknown'))::int as calls,
         count(*) filter (where outcome = 'unknown')::int as unknown
       from send_attempts where claimed_at > $1::timestamptz - interval '1 h' and claimed_at <= $1) calls`,
    [now, silentMinutes],
  )
  const [facts] = rows
  if (!facts) throw new Error('the row of sending_control is missing')
  return facts
}

/** Sends asked for in the last 24 hours by their status, and of those older than an hour how many are reported, and how many not. */
export interface DayFacts {
  counts: Map<Status, number>
  reported: number
  unreported: number
}

export async function findDay(db: Db, now: Date): Promise<DayFacts> {
  // Each status has its own index range, and is a literal so that it is planned as one.
  const counted = (status: Status, until: string) =>
    `(select count(*)::int from (select from email_sends where status = '${status}' and queued_at > $1 and queued_at <= ${until} limit ${MOST_OF_DAY + 1}) counted)`
  const { rows } = await db.query<Record<Status | 'reported' | 'unreported', number>>(
    `select ${statuses.map((status) => `${counted(status, '$2')} as "${status}"`).join(', ')},
       ${counted('delivered', '$3')} + ${counted('bounced', '$3')} as reported, ${counted('sent', '$3')} as unreported`,
    [before(now, DAY_MS), now, before(now, HOUR_MS)],
  )
  const {
    reported = 0,
    unreported = 0,
    ...counts
  } = rows[0] ?? ({} as Partial<Record<Status | 'reported' | 'unreported', number>>)
  return { counts: new Map(statuses.map((status) => [status, counts[status] ?? 0])), reported, unreported }
}

/** An event or a send that something went wrong with. */
export interface ProblemRow {
  at: Date
  kind: 'failed' | 'quarantined' | 'needs_review' | 'rejected' | 'bounced' | 'paused' | 'resumed'
  /** Row of the event, key of the send, or row of the audit. */
  id: string
  name: string
  why: string | null
}

/** So many are looked at, so that equal ones can be told as one. */
export const MOST_PROBLEMS = 100

/** The newest of the last 24 hours, `MOST_PROBLEMS` at most: also when sending was held, and ran again, by itself. */
export async function findProblems(db: Db, now: Date): Promise<ProblemRow[]> {
  const ofEvents = (status: string) => `(select received_at as at, '${status}' as kind, id::text, event_id as name, error as why
    from webhook_events where status = '${status}' order by webhook_events.id desc limit ${MOST_PROBLEMS})`
  const ofSends = (status: Status) => `(select queued_at, '${status}', dedupe_key, dedupe_key, last_error
    from email_sends where status = '${status}' and queued_at > $1 order by queued_at desc limit ${MOST_PROBLEMS})`
  const ofSending = `(select at, case action when 'pause sending' then 'paused' else 'resumed' end, id::text, 'sending', reason
    from audit_log where subject = 'sending' and actor = 'oncehook' and at > $1 order by id desc limit 10)`
  const { rows } = await db.query<ProblemRow>(
    `select * from (${[...['failed', 'quarantined'].map(ofEvents), ...(['needs_review', 'rejected', 'bounced'] as const).map(ofSends), ofSending].join(' union all ')}) problems
     where at > $1 order by at desc, id limit ${MOST_PROBLEMS}`,
    [before(now, DAY_MS)],
  )
  return rows
}

/** Seconds since the last sweep of the workers that run, null without any; and whether one runs. */
export async function findSweep(db: Db): Promise<{ seconds: number | null; workers: number }> {
  const workers = (await findProcesses(db)).filter(({ kind, is_alive }) => kind === 'worker' && is_alive)
  const swept = workers.flatMap(({ seconds_since_sweep }) => seconds_since_sweep ?? [])
  return { seconds: swept.length > 0 ? Math.min(...swept) : null, workers: workers.length }
}
