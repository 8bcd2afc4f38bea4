import { beforeEach, describe, expect, test } from 'vitest'
import { planOf, recordingDb, scansOf } from '../bench/ops-plans.ts'
import { listSendsCommand, showSendCommand } from '../src/cli/sends.ts'
import { findEtas } from '../src/ops/eta.ts'
import { sendFilter } from '../src/ops/filters.ts'
import { findSend, listSends } from '../src/ops/send-queries.ts'
import { takeRateSlot } from '../src/sends/rate-slots.ts'
import { insertSend } from './support/ops-rows.ts'
import { patientDatabase, resetControl } from './support/sends.ts'

const { pool } = await patientDatabase()
const PER_MINUTE = 60
const at = (seconds: number) => new Date(Date.UTC(2026, 10, 29, 14, 0, seconds))
const filter = (query: Record<string, string> = {}) => sendFilter(() => new Date()).parse(query)

beforeEach(async () => {
  await pool.query('truncate email_sends, rate_slots cascade')
  await resetControl(pool)
})

/** Seconds between now, as the database has it, and what is said of each send. */
async function secondsUntil(keys: readonly string[]): Promise<(number | null)[]> {
  const { rows } = await pool.query<{ now: Date }>('select now()')
  const now = rows[0]?.now.getTime() ?? 0
  return Promise.all(
    keys.map(async (key) => {
      const eta = (await findSend(pool, key, PER_MINUTE))?.eta
      return eta ? Math.round((eta.getTime() - now) / 1_000) : null
    }),
  )
}

describe('about when a send goes out', () => {
  test('counts those that were asked for before it, at the pace of the workers', async () => {
    for (const [index, key] of ['a', 'b', 'c'].entries()) await insertSend(pool, key, { queued_at: at(index) })
    await insertSend(pool, 'sent', { state: 'sent', queued_at: at(0) })

    expect(await secondsUntil(['a', 'b', 'c'])).toEqual([0, 1, 2])
    expect((await findSend(pool, 'c', 6))?.eta?.getTime()).toBeGreaterThan(Date.now() + 15_000)
  })

  test('begins where the rate limit has its next free place', async () => {
    await insertSend(pool, 'a', { queued_at: at(0) })
    await insertSend(pool, 'b', { queued_at: at(1) })
    await pool.query(
      `insert into rate_slots values ('key of today', now() + interval '30 s'), ('old key', now() - interval '1 day')`,
    )

    expect(await secondsUntil(['a', 'b'])).toEqual([30, 31])

    await pool.query(`update rate_slots set next_at = now() - interval '1 hour'`)
    expect(await secondsUntil(['a', 'b'])).toEqual([0, 1])
  })

  test('goes by the places that workers have really taken', async () => {
    await insertSend(pool, 'a', { queued_at: at(0) })
    // 5 may follow one another at once; these are a minute and more beyond that.
    for (let call = 0; call < 70; call += 1) await takeRateSlot(pool, 'ik', PER_MINUTE)

    const [seconds] = await secondsUntil(['a'])
    expect(seconds).toBeGreaterThan(55)
    expect(seconds).toBeLessThanOrEqual(70)
  })

  test('is never before send_after, and what may not go yet lets the others by', async () => {
    await pool.query(`insert into rate_slots values ('k', now())`)
    await insertSend(pool, 'later', { queued_at: at(0) })
    await pool.query(`update email_sends set send_after = now() + interval '1 hour'`)
    await insertSend(pool, 'now', { queued_at: at(1) })

    expect(await secondsUntil(['now', 'later'])).toEqual([0, 3_600])
  })

  test('is not told of sends that do not wait, nor while sending is held', async () => {
    for (const state of ['claimed', 'sending', 'sent', 'needs_review', 'rejected', 'abandoned'])
      await insertSend(pool, state, { state })
    await insertSend(pool, 'queued')

    const told = async () =>
      Object.fromEntries((await listSends(pool, filter(), PER_MINUTE)).sends.map((send) => [send.state, send.eta]))
    const { queued, ...others } = await told()
    expect(queued).toBeInstanceOf(Date)
    expect(Object.values(others)).toEqual(Array(6).fill(null))

    await pool.query(`update sending_control set held_reason = 'a pause', held_by = 'person:ann', held_at = now()`)
    expect(await told()).toMatchObject({ queued: null })
    expect((await findSend(pool, 'queued', PER_MINUTE))?.eta).toBeNull()
  })

  test('is one question for a page, whatever its filter, and none where nobody waits', async () => {
    for (let index = 0; index < 40; index += 1)
      await insertSend(pool, `k${String(index).padStart(2, '0')}`, { queued_at: at(index) })
    const asked: string[] = []
    const db = {
      query: (config: { name?: string } | string, values?: unknown[]) => {
        asked.push((typeof config === 'string' ? undefined : config.name) ?? 'list')
        return pool.query(config as string, values)
      },
    } as unknown as typeof pool

    const { sends } = await listSends(db, filter({ q: 'k3' }), PER_MINUTE)
    expect(asked).toEqual(['list', 'find-etas'])
    expect(sends.map(({ dedupe_key }) => dedupe_key)).toHaveLength(10)
    const times = sends.map(({ eta }) => eta?.getTime() ?? 0)
    expect(times.slice(1).map((time, index) => (times[index] ?? 0) - time)).toEqual(Array(9).fill(1_000))

    asked.length = 0
    await listSends(db, filter({ status: 'sent' }), PER_MINUTE)
    expect(asked).toEqual(['list'])
  })

  test('is read from an index in the order of the queue, however many wait, and not told behind the first 50,000', async () => {
    // In steps, as a statement has ten seconds, and all at once may take longer on a slow disk.
    for (let from = 1; from <= 50_001; from += 10_000)
      await pool.query(
        `insert into email_sends (dedupe_key, match_key, state, policy, recipient, message, message_sha256, requested_by, queued_at)
         select 'many:' || n, 'a@example.com', 'queued', 'claim', 'a@example.com', '{}', '', 'token:t', '2026-11-01'::timestamptz + n * interval '1 s'
         from generate_series($1::int, least($1::int + 9999, 50001)) n`,
        [from],
      )
    await pool.query('analyze email_sends')
    const { db, statements } = recordingDb(pool)

    const sends = ['many:9', 'many:50000', 'many:50001'].map((dedupe_key) => ({ dedupe_key, state: 'queued' }))
    const etas = await findEtas(db, sends, PER_MINUTE)

    expect(statements).toHaveLength(1)
    const [statement = { text: '', values: [] }] = statements
    expect(await planOf(pool, statement)).toMatchObject({ indexes: ['email_sends_pkey', 'email_sends_waiting'], scanned: [] })
    expect(await scansOf(pool, statement)).toEqual([])
    const [near = 0, far = 0] = [...etas.values()].map((eta) => eta.getTime())
    expect(etas.size).toBe(2)
    expect(far - near).toBe(49_991_000)
  })
})

test('the commands print it', async () => {
  await insertSend(pool, 'a', { queued_at: at(0) })
  await pool.query(`insert into rate_slots values ('k', '2999-01-01T10:00:00Z')`)

  const list = await listSendsCommand(pool, { width: 120, unicode: true, sendsPerMinute: PER_MINUTE })
  const piped = await listSendsCommand(pool, { sendsPerMinute: PER_MINUTE })
  const show = await showSendCommand(pool, 'a', { width: 120, unicode: true, sendsPerMinute: PER_MINUTE })

  expect(list.stdout).toContain('at about 2999-01-01 10:00:00')
  expect(piped.stdout.trimEnd().split('\t').at(-1)).toBe('2999-01-01T10:00:00.000Z')
  expect(show.stdout).toContain('Waiting to be sent since 2026-11-29 14:00:00 UTC, at about 2999-01-01 10:00:00 UTC.')
})
