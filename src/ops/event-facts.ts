import type { Db } from '../db.ts'

// Read-only: what the event's screen shows beside the event.

/** The bytes of a conflict of this event. */
export async function findConflictBody(db: Db, event: string, conflict: string): Promise<Buffer | undefined> {
  const { rows } = await db.query<{ body: Buffer }>('select body from webhook_conflicts where event = $1 and id = $2', [
    event,
    conflict,
  ])
  return rows[0]?.body
}

/** How many sends each of these events made, and how many of its follow-ups failed. */
export async function countSendsOf(db: Db, events: readonly string[]): Promise<Map<string, { made: number; failed: number }>> {
  const { rows } = await db.query<{ event: string; made: number; failed: number }>(
    `select event, count(*) filter (where outcome = 'queued')::int as made,
       count(*) filter (where outcome in ('failed', 'key_taken'))::int as failed
     from follow_ups where event = any ($1) group by event`,
    [events],
  )
  return new Map(rows.map(({ event, made, failed }) => [event, { made, failed }]))
}

/** Whether no event has come yet. */
export async function isWithoutEvents(db: Db): Promise<boolean> {
  const { rows } = await db.query<{ is_empty: boolean }>('select not exists (select from webhook_events) as is_empty')
  return rows[0]?.is_empty ?? false
}
