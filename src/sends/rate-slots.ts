import { createHash } from 'node:crypto'
import type { Db } from '../db.ts'

/** Calls that may follow one another at once after a pause. Per minute + burst stays below Inboxili's limit of 120. */
const BURST = 5

export interface RateSlot {
  /** Milliseconds until the call may be made. */
  waitMs: number
  /** performance.now() of the moment the slot is for, or a little before it; a slot is good for one second from then. */
  at: number
}

/** Takes the next place in the budget that all processes share through the database. */
export async function takeRateSlot(db: Db, apiKey: string, perMinute: number): Promise<RateSlot> {
  // From before the question: a slot whose answer came late is late itself.
  const asked = performance.now()
  const { rows } = await db.query<{ wait_ms: number }>({
    name: 'take-rate-slot',
    text: `insert into rate_slots as slots (api_key_sha256, next_at) values ($1, clock_timestamp() + $2::float8 * interval '1 ms')
      on conflict (api_key_sha256) do update
        set next_at = greatest(slots.next_at, clock_timestamp() - $3::float8 * interval '1 ms') + $2::float8 * interval '1 ms'
      returning greatest(0, extract(epoch from next_at - $2::float8 * interval '1 ms' - clock_timestamp()) * 1000)::float8 as wait_ms`,
    values: [apiKeyHash(apiKey), 60_000 / perMinute, (60_000 / perMinute) * BURST],
  })
  const waitMs = rows[0]?.wait_ms ?? 0
  return { waitMs, at: asked + waitMs }
}

/** After a 429: no slot is given out before Inboxili said that one may call. Those that were given out already may meet a 429 too. */
export async function holdRateSlots(db: Db, apiKey: string, seconds: number): Promise<void> {
  await db.query(
    `update rate_slots set next_at = greatest(next_at, clock_timestamp() + $2::float8 * interval '1 s') where api_key_sha256 = $1`,
    [apiKeyHash(apiKey), seconds],
  )
}

const apiKeyHash = (apiKey: string) => createHash('sha256').update(apiKey).digest('hex')
