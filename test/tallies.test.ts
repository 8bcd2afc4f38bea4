import { Writable } from 'node:stream'
import { pino } from 'pino'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { openPool } from '../src/db.ts'
import { createFingerprints, fingerprintOf, readFingerprintKey } from '../src/events/fingerprint.ts'
import { forgetOldMinutes } from '../src/events/sweeps.ts'
import { createTallies, type Tallies } from '../src/events/tallies.ts'
import { createLog } from '../src/log.ts'
import { ackQuantiles } from '../src/ops/ack-times.ts'
import { testDatabase } from './support/database.ts'
import { lineTo } from './support/line.ts'

const { pool, url } = await testDatabase()
const quiet = createLog('silent', 'test')
const opened: Tallies[] = []
afterAll(() => Promise.all(opened.map((tallies) => tallies.stop())))
beforeEach(() => pool.query('truncate source_minutes, source_secrets, ack_minutes'))

/** One process's tallies, which never write by themselves unless told how often. */
function begin({
  everyMs = 3_600_000,
  now = () => Date.parse('2026-11-29T14:02:06.881Z'),
  log = quiet,
  via = pool,
} = {}): Tallies {
  const tallies = createTallies(via, log, everyMs, now)
  opened.push(tallies)
  return tallies
}

const minutes = async () =>
  (await pool.query('select source, minute, outcome, cause, count from source_minutes order by minute, source, outcome, cause'))
    .rows
const counts = async () => (await minutes()).map(({ outcome, count }) => [outcome, count])
const times = async () => (await pool.query('select source, minute, counts from ack_minutes order by minute, source')).rows
const secrets = async () =>
  (await pool.query('select * from source_secrets order by source, fingerprint')).rows as Record<string, unknown>[]

/** A log that says what it was told, by level and words. */
function listening() {
  const lines: { level: number; msg: string }[] = []
  const out = new Writable({ write: (line, _encoding, done) => done(void lines.push(JSON.parse(String(line)))) })
  return { log: pino(out) as typeof quiet, lines }
}

test('answers add up by source, minute, outcome and cause, and are written by themselves', async () => {
  const clock = { now: Date.parse('2026-11-29T14:02:59.999Z') }
  const tallies = begin({ everyMs: 5, now: () => clock.now })
  tallies.answered('stripe', 'accepted')
  tallies.answered('stripe', 'accepted')
  tallies.answered('stripe', 'refused', 'signature_mismatch')
  clock.now += 1
  tallies.answered('stripe', 'accepted')
  tallies.answered('github', 'accepted')

  await expect.poll(minutes, { interval: 5 }).toEqual([
    { source: 'stripe', minute: new Date('2026-11-29T14:02:00Z'), outcome: 'accepted', cause: '', count: 2 },
    { source: 'stripe', minute: new Date('2026-11-29T14:02:00Z'), outcome: 'refused', cause: 'signature_mismatch', count: 1 },
    { source: 'github', minute: new Date('2026-11-29T14:03:00Z'), outcome: 'accepted', cause: '', count: 1 },
    { source: 'stripe', minute: new Date('2026-11-29T14:03:00Z'), outcome: 'accepted', cause: '', count: 1 },
  ])
})

test('each secret has its count, its first and its last time, whichever process writes first', async () => {
  const early = begin({ now: () => Date.parse('2026-11-29T10:00:00Z') })
  const late = begin({ now: () => Date.parse('2026-11-29T12:00:00Z') })
  early.verified('stripe', 'aaaaaaaa')
  late.verified('stripe', 'aaaaaaaa')
  late.verified('stripe', 'bbbbbbbb')
  late.verified('sns', '')

  await late.stop()
  await early.stop()

  const at = (time: string) => new Date(`2026-11-29T${time}Z`)
  expect(await secrets()).toEqual([
    { source: 'sns', fingerprint: '', verified: '1', first_verified_at: at('12:00:00'), last_verified_at: at('12:00:00') },
    {
      source: 'stripe',
      fingerprint: 'aaaaaaaa',
      verified: '2',
      first_verified_at: at('10:00:00'),
      last_verified_at: at('12:00:00'),
    },
    {
      source: 'stripe',
      fingerprint: 'bbbbbbbb',
      verified: '1',
      first_verified_at: at('12:00:00'),
      last_verified_at: at('12:00:00'),
    },
  ])
})

test('ten processes that write the same rows at once, each in another order, lose and block nothing', async () => {
  const names = Array.from({ length: 400 }, (_, index) => `source${index}`)
  const processes = Array.from({ length: 10 }, () => begin())
  for (const [index, tallies] of processes.entries()) {
    for (const name of index % 2 === 0 ? names : names.toReversed()) {
      tallies.answered(name, 'accepted')
      tallies.verified(name, 'aaaaaaaa')
    }
  }

  await Promise.all(processes.map((tallies) => tallies.stop()))

  const written = await minutes()
  expect(written.length).toBe(400)
  expect(new Set(written.map(({ count }) => count))).toEqual(new Set([10]))
  expect(new Set((await secrets()).map(({ verified }) => verified))).toEqual(new Set(['10']))
})

describe('how long the answers took', () => {
  test('is counted for each source and for all together by bucket, of the answers 2xx only, in the minute of the answer', async () => {
    const clock = { now: Date.parse('2026-11-29T14:02:59.999Z') }
    const tallies = begin({ now: () => clock.now })
    tallies.answered('stripe', 'accepted', '', 0.001)
    tallies.answered('stripe', 'duplicate', '', 0.0011)
    tallies.answered('stripe', 'refused', 'signature_mismatch', 0.001)
    tallies.answered('stripe', 'not_recorded', '', 1)
    tallies.answered('stripe', 'accepted')
    clock.now += 1
    tallies.answered('github', 'quarantined', '', 5.001)
    await tallies.stop()

    const at = (time: string) => new Date(`2026-11-29T${time}Z`)
    const first = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    const last = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    expect(await times()).toEqual([
      { source: '', minute: at('14:02:00'), counts: first },
      { source: 'stripe', minute: at('14:02:00'), counts: first },
      { source: '', minute: at('14:03:00'), counts: last },
      { source: 'github', minute: at('14:03:00'), counts: last },
    ])
  })

  test('adds up over processes that write at once, each in another order', async () => {
    const names = Array.from({ length: 50 }, (_, index) => `source${index}`)
    const processes = Array.from({ length: 10 }, () => begin())
    for (const [index, tallies] of processes.entries()) {
      for (const name of index % 2 === 0 ? names : names.toReversed()) tallies.answered(name, 'accepted', '', 0.02)
    }

    await Promise.all(processes.map((tallies) => tallies.stop()))

    const twentyMs = (count: number) => [0, 0, 0, 0, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    const written = await times()
    expect(written.length).toBe(51)
    expect(written.find(({ source }) => source === '')?.counts).toEqual(twentyMs(500))
    expect(written.filter(({ source }) => source !== '').map(({ counts }) => counts)).toEqual(Array(50).fill(twentyMs(10)))
  })

  test('of another number of buckets is refused by the table, as it would be read under wrong bounds', async () => {
    const write = pool.query(`insert into ack_minutes values ('stripe', now(), array[1, 2])`)

    await expect(write).rejects.toMatchObject({ constraint: 'ack_minutes_buckets' })
  })
})

describe('the quantiles of how long they took', () => {
  const begins = Date.parse('2026-11-29T14:00:00Z')
  const fill = (source: string, minute: number, seconds: number, count: number) => {
    const tallies = begin({ now: () => begins + minute * 60_000 })
    for (let answer = 0; answer < count; answer += 1) tallies.answered(source, 'accepted', '', seconds)
    return tallies.stop()
  }
  const quantiles = (options: { source?: string } = {}) =>
    ackQuantiles(pool, new Date(begins), 3, { ...options, now: new Date(begins + 6 * 60_000) })

  test('are the bounds under which half and 99 of 100 are, a gap where there was none, and past the last bound infinite', async () => {
    await fill('stripe', 0, 0.004, 98)
    await fill('stripe', 1, 0.2, 2)
    await fill('github', 5, 6, 1)

    const at = (minute: number) => new Date(begins + minute * 60_000)
    expect(await quantiles()).toEqual([
      { at: at(0), acks: 100, p50_ms: 5, p99_ms: 250 },
      { at: at(2), acks: 0, p50_ms: null, p99_ms: null },
      { at: at(4), acks: 1, p50_ms: Number.POSITIVE_INFINITY, p99_ms: Number.POSITIVE_INFINITY },
    ])
    expect((await quantiles({ source: 'github' })).map(({ acks }) => acks)).toEqual([0, 0, 1])
  })

  test('of exactly 100 answers let one be slower', async () => {
    await fill('stripe', 0, 0.004, 99)
    await fill('stripe', 1, 0.2, 1)

    expect((await quantiles())[0]).toMatchObject({ acks: 100, p99_ms: 5 })
  })

  test('take nothing from before or after', async () => {
    await fill('stripe', -1, 0.004, 1)
    await fill('stripe', 6, 0.004, 1)

    expect((await quantiles()).map(({ acks }) => acks)).toEqual([0, 0, 0])
  })
})

test('stopping writes what is left, and a second time nothing again', async () => {
  const tallies = begin()
  tallies.answered('stripe', 'accepted')

  await tallies.stop()
  await tallies.stop()

  expect(await counts()).toEqual([['accepted', 1]])
})

describe('when the database', () => {
  test('refuses a write, its counts are in the next one, and the log says so once', async () => {
    const { log, lines } = listening()
    await pool.query('alter table source_minutes rename to away')
    const tallies = begin({ everyMs: 1, log })
    tallies.answered('stripe', 'accepted')
    tallies.verified('stripe', 'aaaaaaaa')
    await expect.poll(() => lines.length, { interval: 5 }).toBe(1)
    tallies.answered('stripe', 'accepted')

    await pool.query('alter table away rename to source_minutes')

    await expect.poll(counts, { interval: 5 }).toEqual([['accepted', 2]])
    await expect.poll(secrets, { interval: 5 }).toMatchObject([{ verified: '1' }])
    expect(lines).toMatchObject([{ level: 40, msg: 'tallies not written' }])
  })

  test('gives no connection, nothing is lost', async () => {
    const { log, lines } = listening()
    const narrow = openPool({ url, name: 'narrow', max: 1, connectionTimeout: 10_000 })
    const only = await narrow.connect()
    // From here on: the connection that there is took its time.
    narrow.options.connectionTimeoutMillis = 20
    const tallies = begin({ everyMs: 1, log, via: narrow })
    tallies.answered('stripe', 'accepted')
    await expect.poll(() => lines.length, { interval: 5 }).toBe(1)

    narrow.options.connectionTimeoutMillis = 10_000
    only.release()
    await tallies.stop()

    expect(await counts()).toEqual([['accepted', 1]])
    await narrow.end()
  })

  test('commits and its answer is lost, nothing is counted twice', async () => {
    const line = await lineTo(url)
    const lossy = openPool({ url: line.url, name: 'lossy', max: 1 })
    const tallies = begin({ via: lossy })
    tallies.answered('stripe', 'accepted')
    await tallies.stop()

    line.loseNextAnswer()
    tallies.answered('stripe', 'duplicate')
    await tallies.stop()
    await expect.poll(counts, { interval: 5 }).toEqual([
      ['accepted', 1],
      ['duplicate', 1],
    ])
    tallies.answered('stripe', 'quarantined')
    await tallies.stop()

    expect(await counts()).toEqual([
      ['accepted', 1],
      ['duplicate', 1],
      ['quarantined', 1],
    ])
    await lossy.end()
  })

  test('I18 is away for days, the rows that wait for it are bounded', async () => {
    const clock = { now: Date.parse('2026-11-29T14:00:00Z') }
    const tallies = begin({ now: () => clock.now })
    for (let minute = 0; minute < 10_500; minute += 1) {
      tallies.answered('stripe', 'refused', 'signature_mismatch')
      clock.now += 60_000
    }

    await tallies.stop()

    expect((await minutes()).length).toBe(10_000)
  })
})

describe('fingerprints', () => {
  test('are the first 8 hex digits of the HMAC-SHA256 under the installation’s key', () => {
    // RFC 4231, test cases 1 and 2.
    expect(fingerprintOf(Buffer.alloc(20, 0x0b), 'Hi There')).toBe('b0344c61')
    expect(fingerprintOf(Buffer.from('Jefe'), 'what do ya want for nothing?')).toBe('5bdcc146')
  })

  test('are made once for each list of secrets, in its order', () => {
    const fingerprints = createFingerprints(Buffer.from('Jefe'))
    const list = ['what do ya want for nothing?', 'another']

    const [first, second] = fingerprints(list)

    expect(first).toBe('5bdcc146')
    expect(second).toMatch(/^[0-9a-f]{8}$/)
    expect(fingerprints(list)).toBe(fingerprints(list))
  })

  test('have one key of 32 bytes, which no second row can replace', async () => {
    const key = await readFingerprintKey(pool)

    expect(key.length).toBe(32)
    expect(await readFingerprintKey(pool)).toEqual(key)
    await expect(pool.query('insert into installation default values')).rejects.toMatchObject({ code: '23505' })
    await expect(pool.query('insert into installation (only_row) values (false)')).rejects.toMatchObject({
      constraint: 'installation_once',
    })
  })
})

describe('the sweep of old minutes', () => {
  const fill = (from: number, to: number, unit: 'days' | 'minutes', days = 0) =>
    pool.query(
      `insert into source_minutes (source, minute, outcome, count)
       select 'stripe', date_trunc('minute', now()) - $4 * interval '1 day' - number * ('1 ' || $3)::interval, 'accepted', 1
       from generate_series($1::int, $2::int) number`,
      [from, to, unit, days],
    )

  test('forgets what is older than 35 days, however much it is, and keeps the rest', async () => {
    await fill(1, 34, 'days')
    await fill(1, 10_050, 'minutes', 35)

    expect(await forgetOldMinutes(pool, 35)).toBe(10_050)
    expect((await minutes()).length).toBe(34)
    expect(await forgetOldMinutes(pool, 35)).toBe(0)
  })

  test('forgets the times of the answers as well', async () => {
    await pool.query(
      `insert into ack_minutes (source, minute, counts)
       select source, now() - number * interval '1 day', array_fill(1, array[19])
       from generate_series(34, 36) number, (values (''), ('stripe')) as sources (source)`,
    )

    expect(await forgetOldMinutes(pool, 35)).toBe(4)
    expect((await times()).map(({ source }) => source).sort()).toEqual(['', 'stripe'])
  })

  test('may run in many workers at once', async () => {
    await fill(1, 2_000, 'minutes', 36)

    const forgotten = await Promise.all(Array.from({ length: 8 }, () => forgetOldMinutes(pool, 35)))

    expect(forgotten.reduce((sum, count) => sum + count, 0)).toBe(2_000)
    expect(await minutes()).toEqual([])
  })
})
