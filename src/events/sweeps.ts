import type pg from 'pg'
import { type Db, inTransaction, type Tx } from '../db.ts'

/** Makes a job for each pending event that has none: nothing that was acknowledged is ever only in the queue. */
export async function sweepEvents(
  pool: pg.Pool,
  findOrphans: (tx: Tx) => Promise<string[]>,
  enqueue: (tx: Tx, events: readonly string[]) => Promise<void>,
): Promise<number> {
  return inTransaction(pool, async (tx) => {
    const events = await findOrphans(tx)
    await enqueue(tx, events)
    return events.length
  })
}

/** Few enough that no lock is held for long. */
const MOST_AT_ONCE = 5_000

/**
 * Empties bodies and headers of closed events older than this, and forgets what they named but the object they are about, until all
 * are or the process stops. The rows stay for ever, as they make a redelivery months later harmless. What is pending, failed,
 * quarantined, parked or in conflict keeps its body. Answers how many were emptied.
 */
export async function emptyOldBodies(db: Db, keepDays: number, stopping?: AbortSignal): Promise<number> {
  let emptied = 0
  for (let last = MOST_AT_ONCE; last === MOST_AT_ONCE && !stopping?.aborted; emptied += last) last = await emptySome(db, keepDays)
  await emptySharedBodies(db, keepDays)
  return emptied
}

/** Forgets what the sources answered longer ago than this, and how fast. Answers how many rows went. */
export async function forgetOldMinutes(db: Db, days: number, stopping?: AbortSignal): Promise<number> {
  let forgotten = 0
  for (let last = MOST_AT_ONCE; last === MOST_AT_ONCE && !stopping?.aborted; forgotten += last) {
    const { rowCount } = await db.query(
      `with old as (
         select minute, source, outcome, cause from source_minutes where minute < now() - $1::int * interval '1 day'
         order by minute, source, outcome, cause limit $2 for update skip locked
       )
       delete from source_minutes using old
       where (source_minutes.minute, source_minutes.source, source_minutes.outcome, source_minutes.cause)
         = (old.minute, old.source, old.outcome, old.cause)`,
      [days, MOST_AT_ONCE],
    )
    last = rowCount ?? 0
  }
  return forgotten + (await forgetOldTimes(db, days))
}

/** It looks through the whole table, which is no large one: at most a row per source and minute of the days that are kept. */
async function forgetOldTimes(db: Db, days: number): Promise<number> {
  const { rowCount } = await db.query(
    `with old as (
       select source, minute from ack_minutes where minute < now() - $1::int * interval '1 day' order by source, minute for update skip locked
     )
     delete from ack_minutes times using old where times.source = old.source and times.minute = old.minute`,
    [days],
  )
  return rowCount ?? 0
}

async function emptySome(db: Db, keepDays: number): Promise<number> {
  const { rowCount } = await db.query(
    `with old as (
       select id, object_ref from webhook_events events
       where received_at < now() - $1::int * interval '1 day' and body_emptied_at is null and status in ('processed', 'ignored')
         and not exists (select from webhook_conflicts where event = events.id)
         and not exists (select from delivery_reports where event = events.id and attempt is null)
       order by received_at limit $2 for update skip locked
     ), forgotten as (
       delete from event_refs using old where event_id = old.id and ref is distinct from lower(btrim(object_ref))
     )
     update webhook_events events set body = null, headers = '{}', body_emptied_at = now() from old where events.id = old.id`,
    [keepDays, MOST_AT_ONCE],
  )
  return rowCount ?? 0
}

/** The bytes of a POST with several events go when the last of its events no longer needs them. */
async function emptySharedBodies(db: Db, keepDays: number): Promise<void> {
  await db.query(
    `update webhook_bodies bodies set body = null
     where body is not null and received_at < now() - $1::int * interval '1 day'
       and not exists (select from webhook_events where body_sha256 = bodies.sha256 and body is null and body_emptied_at is null)`,
    [keepDays],
  )
}
