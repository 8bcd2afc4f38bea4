import type { Db } from '../db.ts'

/** Where nobody says how fast the workers call; the default of the settings. */
const SENDS_PER_MINUTE = 110

/** Looked at this far only, which is hours at any pace that emails are sent at: who is further back is told nothing. */
const MOST_COUNTED = 50_000

/**
 * About when each of these sends is called, if it waits and sending isn't held: after all that were asked for before it, at so many
 * a minute from the next free place of the rate limit on. An estimate: what is fresh may overtake, a 429 puts it off.
 */
export async function findEtas(
  db: Db,
  sends: readonly { dedupe_key: string; state: string }[],
  sendsPerMinute = SENDS_PER_MINUTE,
): Promise<Map<string, Date>> {
  const keys = sends.filter(({ state }) => state === 'queued').map((send) => send.dedupe_key)
  if (keys.length === 0) return new Map()
  // One look for all of them, as far as the last one's place: counted one by one it would take a page times the queue. Times are compared
  // before keys, which are the dearer.
  const { rows } = await db.query<{ dedupe_key: string; eta: Date }>({
    name: 'find-etas',
    text: `with wanted as materialized (
        select min(greatest(queued_at, send_after)) as first_due_at, max(greatest(queued_at, send_after)) as last_due_at
        from email_sends where dedupe_key = any ($1) and state = 'queued'
      ), waiting as (
        select dedupe_key, send_after, due_at, row_number() over (order by due_at, dedupe_key) as place
        from (select dedupe_key, send_after, greatest(queued_at, send_after) as due_at from email_sends
          where state = 'queued' and greatest(queued_at, send_after) <= (select last_due_at from wanted)
          order by due_at, dedupe_key limit $3) as line
      )
      select dedupe_key, date_trunc('milliseconds', greatest(send_after,
        greatest(now(), (select max(next_at) from rate_slots)) + (place - 1) * $2::float8 * interval '1 ms')) as eta
      from waiting
      where due_at >= (select first_due_at from wanted) and dedupe_key = any ($1)
        and not exists (select from sending_control where held_reason is not null)`,
    values: [keys, 60_000 / sendsPerMinute, MOST_COUNTED],
  })
  return new Map(rows.map(({ dedupe_key, eta }) => [dedupe_key, eta]))
}
