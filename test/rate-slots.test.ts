import { expect, test, vi } from 'vitest'
import { type Db, openPool } from '../src/db.ts'
import { holdRateSlots, type RateSlot, takeRateSlot } from '../src/sends/rate-slots.ts'
import { patientDatabase } from './support/sends.ts'

const { pool, url } = await patientDatabase()

/** Most slots in any window of 60 s that begins with one of them. */
function mostInAMinute(times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b)
  return Math.max(...sorted.map((start) => sorted.filter((at) => at >= start && at <= start + 60_000).length))
}

/** As after a pause of this length. */
const rest = (minutes: number) =>
  pool.query(`update rate_slots set next_at = clock_timestamp() - $1 * interval '1 min'`, [minutes])

/** Four hundred slots as twenty workers of two processes take them, each the next when it has one. */
async function takeMany(apiKey: string): Promise<RateSlot[]> {
  const other = openPool({ url, name: 'other-process', max: 10 })
  other.options.connectionTimeoutMillis = 20_000
  const slots = await Promise.all(
    Array.from({ length: 20 }, async (_, worker) => {
      const taken: RateSlot[] = []
      for (let count = 0; count < 20; count += 1) taken.push(await takeRateSlot(worker % 2 ? pool : other, apiKey, 110))
      return taken
    }),
  )
  await other.end()
  return slots.flat()
}

test('I14 no minute has more than 120 slots, however many processes take them at once, after a pause too', async () => {
  await takeRateSlot(pool, 'key', 110)
  await rest(60)

  const times = (await takeMany('key')).map((slot) => slot.at)

  expect(mostInAMinute(times)).toBeLessThanOrEqual(120)
  // And none is given away.
  expect(mostInAMinute(times)).toBeGreaterThanOrEqual(110)
})

test('I14 even when some are used at the end of their second', async () => {
  await takeRateSlot(pool, 'late', 110)
  await rest(60)
  const slots = await takeMany('late')

  const times = slots
    .map((slot) => slot.at)
    .sort((a, b) => a - b)
    .map((at, index) => (index < 50 ? at + 1_000 : at))

  expect(mostInAMinute(times)).toBeLessThanOrEqual(120)
})

test('after a pause six calls may go at once, the seventh waits for its turn', async () => {
  await takeRateSlot(pool, 'burst', 1)
  await rest(600)

  const waits: number[] = []
  for (let count = 0; count < 7; count += 1) waits.push((await takeRateSlot(pool, 'burst', 1)).waitMs)

  expect(waits.slice(0, 6)).toEqual([0, 0, 0, 0, 0, 0])
  expect(waits[6]).toBeGreaterThan(30_000)
  expect(waits[6]).toBeLessThanOrEqual(60_000)
})

test('the very first calls of a new API key get no burst', async () => {
  const first = await takeRateSlot(pool, 'new', 1)
  const second = await takeRateSlot(pool, 'new', 1)

  expect(first.waitMs).toBe(0)
  expect(second.waitMs).toBeGreaterThan(30_000)
})

test('each API key has a budget of its own, and only its hash is stored', async () => {
  await takeRateSlot(pool, 'ik_live_one', 1)

  expect((await takeRateSlot(pool, 'ik_live_two', 1)).waitMs).toBe(0)
  const { rows } = await pool.query<{ api_key_sha256: string }>('select api_key_sha256 from rate_slots')
  expect(rows.every((row) => /^[0-9a-f]{64}$/.test(row.api_key_sha256))).toBe(true)
})

test('C-54 after a 429 nobody calls before Inboxili said that one may', async () => {
  await takeRateSlot(pool, 'held', 6_000)

  await Promise.all([holdRateSlots(pool, 'held', 300), holdRateSlots(pool, 'held', 2)])
  await holdRateSlots(pool, 'held', 2)

  const waits = await Promise.all(Array.from({ length: 10 }, async () => (await takeRateSlot(pool, 'held', 6_000)).waitMs))
  expect(Math.min(...waits)).toBeGreaterThan(240_000)
  expect(new Set(waits.map((it) => Math.round(it))).size).toBeGreaterThan(1)
})

test('a slot is dated from before the question, so that one whose answer came late is late itself', async () => {
  let answered = 0
  const slow = {
    async query() {
      vi.spyOn(performance, 'now').mockReturnValue(performance.now() + 4_000)
      answered = performance.now()
      return { rows: [{ wait_ms: 500 }] }
    },
  } as unknown as Db // of a database only this is used

  const slot = await takeRateSlot(slow, 'slow', 110)

  expect(slot.waitMs).toBe(500)
  expect(slot.at).toBeLessThanOrEqual(answered - 4_000 + 500)
})
