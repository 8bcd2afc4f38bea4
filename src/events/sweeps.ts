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

/**
 * Empties bodies and headers of closed events older than this. The rows stay for ever, as they make a redelivery months later
 * harmless. What is pending, failed, quarantined, parked or in conflict keeps its body. Answers how many were emptied.
 */
export async function emptyOldBodies(db: Db, keepDays: number): Promise<number> {
  let emptied = 0
  for (let last = MOST_AT_ONCE; last === MOST_AT_ONCE; emptied += last) last = await emptySome(db, keepDays)
  return emptied
}

/** Few enough that no lock is held for long. */
const MOST_AT_ONCE = 5_000

async function emptySome(db: Db, keepDays: number): Promise<number> {
  const { rows } = await db.query<{ emptied: number }>(
    `with old as (
       select id from webhook_events events
       where received_at < now() - $1::int * interval '1 day' and body_emptied_at is null and status in ('processed', 'ignored')
         and not exists (select from webhook_conflicts where event = events.id)
         and not exists (select from delivery_reports where event = events.id and attempt is null)
       order by id limit $2 for update skip locked
     ), emptied as (
       update webhook_events events set body = null, headers = '{}', body_emptied_at = now() from old where events.id = old.id
       returning events.body_sha256
     ), shared as (
       update webhook_bodies set body = null where sha256 in (select body_sha256 from emptied) and not exists (
         select from webhook_events others where others.body_sha256 = webhook_bodies.sha256 and others.body_emptied_at is null
           and others.id not in (select id from old))
     )
     select count(*)::int as emptied from emptied`,
    [keepDays, MOST_AT_ONCE],
  )
  return rows[0]?.emptied ?? 0
}
