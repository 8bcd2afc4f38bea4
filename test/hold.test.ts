import type pg from 'pg'
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { inTransaction, openPool } from '../src/db.ts'
import { createMetrics } from '../src/ops/metrics.ts'
import { askLeave, noteOutcome, switchMatching, switchSending } from '../src/sends/hold.ts'
import type { CallOutcome } from '../src/sends/outcome.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import { finishJobs, jobsOf, patientDatabase, queueSend, resetControl, sendRow } from './support/sends.ts'
import { testService } from './support/service.ts'

const database = await patientDatabase()
const { pool } = database
const service = await testService(database, { sources: {} })
const other = openPool({ url: database.url, name: 'second process', max: 10, connectionTimeout: 20_000 })

afterAll(() => other.end())

let number = 0
let key = ''

beforeEach(() => {
  number += 1
  key = `k${number}`
})

// What is held is looked for among all rows, so no test leaves any for the next.
afterEach(async () => {
  await pool.query(
    'truncate email_sends, send_attempts, follow_ups, delivery_reports, settlements, webhook_events, audit_log cascade',
  )
  await pool.query('delete from pgboss.job')
  await resetControl(pool)
})

const accepted: CallOutcome = { kind: 'accepted', messageId: null }
const unknown: CallOutcome = { kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' }
const refused = (httpStatus: number): CallOutcome => ({
  kind: 'refused',
  httpStatus,
  code: 'c',
  message: 'm',
  error: `${httpStatus} c: m`,
})

/** Sends this key, the call ending as said. */
const sending = (name: string, outcome: CallOutcome, onPool: pg.Pool = pool) =>
  sendOnce({ ...service.deps, pool: onPool, call: async () => outcome }, name)
const note = (outcome: CallOutcome, isProbe = false) => inTransaction(pool, (tx) => noteOutcome(tx, outcome, isProbe, 60_000))
const control = async (...columns: string[]) => (await pool.query(`select ${columns.join(', ')} from sending_control`)).rows[0]
/** A probe's time has come. */
const passAMinute = () => pool.query(`update sending_control set next_probe_at = now() where next_probe_at is not null`)
const byPerson = (paused: boolean, version: number) =>
  inTransaction(pool, (tx) => switchSending(tx, { paused, reason: 'because', version, actor: 'ada', via: 'api' }))

/** Runs every waiting send once, eight at a time, on two processes. */
async function runAll(names: readonly string[], call: (name: string) => Promise<CallOutcome>) {
  const left = [...names]
  const worker = async (onPool: pg.Pool): Promise<void> => {
    const name = left.shift()
    if (name === undefined) return
    await sendOnce({ ...service.deps, pool: onPool, call: () => call(name) }, name)
    return worker(onPool)
  }
  await Promise.all(Array.from({ length: 8 }, (_, index) => worker(index % 2 === 0 ? pool : other)))
}
const inReview = async () =>
  (await pool.query<{ count: number }>('select count(*)::int from email_sends where needs_review')).rows[0]?.count ?? 0

describe('I15 an outage of the email API', () => {
  test('costs a review for 5 + one per worker + one a minute, and everything that waited goes out once afterwards', async () => {
    const names = Array.from({ length: 60 }, (_, index) => `${key}-${index}`)
    for (const name of names) await queueSend(service, name)
    const calls = vi.fn(async (_name: string): Promise<CallOutcome> => unknown)

    await runAll(names, calls)
    const atOnce = await inReview()
    const perMinute: number[] = []
    for (let minute = 1; minute <= 4; minute += 1) {
      await passAMinute()
      const before = await inReview()
      await runAll(names, calls)
      perMinute.push((await inReview()) - before)
    }
    const reviews = await inReview()
    // It is over: one probe, then all.
    calls.mockImplementation(async () => accepted)
    await passAMinute()
    await runAll(names, calls)
    await runAll(names, calls)

    expect(atOnce).toBeGreaterThanOrEqual(5)
    expect(atOnce).toBeLessThanOrEqual(13)
    expect(perMinute).toEqual([1, 1, 1, 1])
    expect(await control('held_reason', 'unknown_in_a_row')).toEqual({ held_reason: null, unknown_in_a_row: 0 })
    const { rows } = await pool.query('select status, count(*)::int from email_sends group by status order by status')
    expect(rows).toEqual([
      { status: 'needs_review', count: reviews },
      { status: 'sent', count: 60 - reviews },
    ])
    expect(new Set(calls.mock.calls.map(([name]) => name)).size).toBe(60)
    expect(calls).toHaveBeenCalledTimes(60)
  })

  test('the sweep makes one job while sending is held, for the probe, and all the others afterwards', async () => {
    const names = [1, 2, 3, 4].map((index) => `${key}-${index}`)
    for (const name of names) {
      await queueSend(service, name)
      await finishJobs(pool, 'key', name)
    }
    await note(refused(401))

    const held = await service.sweep(300_000)
    const [oldest = ''] = names
    expect(await jobsOf(pool, oldest)).toHaveLength(1)
    await passAMinute()
    await sending(oldest, accepted)
    const after = await service.sweep(300_000)

    expect([held.orphanSends, after.orphanSends]).toEqual([1, 3])
  })

  test('only unknown answers count, only an accepted one begins anew, and the fifth holds', async () => {
    const turns: boolean[] = []
    for (const outcome of [unknown, unknown, unknown, unknown, accepted, unknown, unknown, refused(422), unknown, unknown])
      turns.push(await note(outcome))
    const before = await control('held_reason', 'unknown_in_a_row')

    turns.push(await note(unknown))

    expect(turns).toEqual([...Array(10).fill(false), true])
    expect(before).toEqual({ held_reason: null, unknown_in_a_row: 4 })
    expect(await control('held_reason', 'held_by', 'version')).toEqual({
      held_reason: '5 calls in a row ended unknown',
      held_by: 'oncehook',
      version: 2,
    })
  })

  test('twenty unknown answers at once are all counted, and hold once', async () => {
    const turns = await Promise.all(Array.from({ length: 20 }, () => note(unknown)))

    expect(turns.filter(Boolean)).toHaveLength(1)
    expect(await control('unknown_in_a_row', 'version')).toEqual({ unknown_in_a_row: 20, version: 2 })
  })

  test('an answer that is recorded twice, as after a commit in doubt, counts once', async () => {
    await queueSend(service, key)
    let doubts = 1
    const connectDoubtfully = async () => {
      const client = await pool.connect()
      const query = async (config: string, values?: unknown[]) => {
        const result = await client.query(config, values)
        if (config === 'commit' && doubts-- > 0) throw new Error('Connection terminated')
        return result
      }
      return Object.assign(Object.create(client) as pg.PoolClient, { query })
    }
    // The pool's own statements come with a callback, transactions without.
    type Callback = Parameters<typeof pool.connect>[0]
    const connect = (callback?: Callback) => (callback ? pool.connect(callback) : connectDoubtfully())
    const doubtful = Object.assign(Object.create(pool) as pg.Pool, { connect })

    await sending(key, unknown, doubtful)

    expect(doubts).toBeLessThan(0)
    expect(await control('unknown_in_a_row')).toEqual({ unknown_in_a_row: 1 })
  })

  test('a recording that fails counts nothing', async () => {
    const failing = inTransaction(pool, async (tx) => {
      await noteOutcome(tx, refused(401), false, 60_000)
      throw new Error('killed')
    })
    await expect(failing).rejects.toThrow('killed')

    expect(await control('held_reason', 'version')).toEqual({ held_reason: null, version: 1 })
  })
})

const audits = async () => (await pool.query('select actor, via, action, subject, reason from audit_log order by id')).rows
const ITSELF = { actor: 'oncehook', via: 'oncehook', subject: 'sending' }

test('I12 what holds sending by itself, and lifts that, is audited, once each and with its reason', async () => {
  await Promise.all(Array.from({ length: 8 }, () => note(unknown)))
  await note(accepted)
  await Promise.all([note(accepted, true), note(accepted, true)])
  await note(refused(401))

  expect(await audits()).toEqual([
    { ...ITSELF, action: 'pause sending', reason: '5 calls in a row ended unknown' },
    { ...ITSELF, action: 'resume sending', reason: 'Inboxili took the send that was tried' },
    { ...ITSELF, action: 'pause sending', reason: 'Inboxili refuses the API key: 401 c: m' },
  ])
})

test('I12 a hold whose transaction fails is neither there nor audited', async () => {
  await expect(
    inTransaction(pool, async (tx) => {
      await noteOutcome(tx, refused(401), false, 60_000)
      throw new Error('crash')
    }),
  ).rejects.toThrow('crash')

  expect(await control('held_reason')).toEqual({ held_reason: null })
  expect(await audits()).toEqual([])
})

describe('a key that is refused', () => {
  test.each([401, 403])('%i holds all sends at once, and frees its own', async (status) => {
    await queueSend(service, key)
    await queueSend(service, `${key}-next`)
    await sending(key, refused(status))

    expect(await sending(`${key}-next`, accepted)).toBe('nothing to do')
    expect(await sendRow(pool, key, 'state')).toEqual({ state: 'rejected' })
    expect(await sendRow(pool, `${key}-next`, 'state')).toEqual({ state: 'queued' })
    expect(await control('held_reason')).toEqual({ held_reason: `Inboxili refuses the API key: ${status} c: m` })
  })

  test.each([400, 404, 422])('%i holds nothing', async (status) => {
    expect(await note(refused(status))).toBe(false)
    expect(await control('held_reason')).toEqual({ held_reason: null })
  })
})

describe('the probe', () => {
  test('one of twenty callers in two processes gets it, each minute', async () => {
    await note(refused(401))
    const ask = () => Promise.all(Array.from({ length: 20 }, (_, index) => askLeave(index % 2 === 0 ? pool : other, 60_000)))

    const early = await ask()
    await passAMinute()
    const due = await ask()
    const again = await ask()
    await passAMinute()
    const next = await ask()

    const probes = [early, due, again, next].map((answers) => answers.filter((it) => it === 'probe').length)
    expect(probes).toEqual([0, 1, 0, 1])
    expect([early, due, again, next].flat().filter((it) => it === 'free')).toEqual([])
    const { rows } = await pool.query(`select extract(epoch from next_probe_at - now())::float8 as seconds from sending_control`)
    expect(rows[0].seconds).toBeGreaterThan(50)
    expect(rows[0].seconds).toBeLessThanOrEqual(60)
  })

  test.each<[string, CallOutcome, boolean]>([
    ['accepted', accepted, true],
    ['unknown', unknown, false],
    ['refused for its own sake', refused(422), false],
    ['refused for the key', refused(401), false],
    ['not sent', { kind: 'not_sent', code: 'ECONNREFUSED', error: 'connection refused' }, false],
  ])('that ends %s: %s', async (_, outcome, lifts) => {
    await note(refused(403))
    await queueSend(service, key)
    await passAMinute()

    expect(await sending(key, outcome)).toBe('done')

    expect(await askLeave(pool, 60_000)).toBe(lifts ? 'free' : 'held')
  })

  test('whose process dies is followed by the next one a minute later', async () => {
    await note(refused(403))
    await queueSend(service, key)
    await passAMinute()
    const lost = await askLeave(pool, 60_000)
    const meanwhile = await sending(key, accepted)
    await passAMinute()

    expect([lost, meanwhile, await sending(key, accepted)]).toEqual(['probe', 'nothing to do', 'done'])
    expect(await control('held_reason')).toEqual({ held_reason: null })
  })

  test('alone lifts: a call that had begun before does not', async () => {
    await note(refused(401))

    await note(accepted)

    expect(await askLeave(pool, 60_000)).toBe('held')
  })

  test('is not made when a person pauses before its claim', async () => {
    await note(refused(401))
    await queueSend(service, key)
    await passAMinute()
    const call = vi.fn(async () => accepted)
    const takeSlot = async () => {
      expect(await byPerson(true, 2)).toMatchObject({ outcome: 'done' })
      return service.deps.takeSlot()
    }

    expect(await sendOnce({ ...service.deps, takeSlot, call }, key)).toBe('nothing to do')

    expect(call).not.toHaveBeenCalled()
  })
})

describe('a person', () => {
  test('pauses: nothing goes out, no probe either, and no answer lifts it', async () => {
    await queueSend(service, key)
    await note(unknown)
    await byPerson(true, 1)

    await note(accepted)
    await note(accepted, true)
    await passAMinute()

    expect(await askLeave(pool, 60_000)).toBe('held')
    expect(await sending(key, accepted)).toBe('nothing to do')
    expect(await control('held_reason', 'held_by', 'next_probe_at')).toEqual({
      held_reason: 'because',
      held_by: 'person:ada',
      next_probe_at: null,
    })
  })

  test('keeps the pause through refused keys and unknown answers, and begins anew by ending it', async () => {
    await queueSend(service, key)
    await byPerson(true, 1)
    for (const outcome of [unknown, unknown, unknown, unknown, unknown, unknown, refused(401)]) await note(outcome)
    const paused = await control('held_by')

    await byPerson(false, 2)

    expect(paused).toEqual({ held_by: 'person:ada' })
    expect(await control('held_reason', 'unknown_in_a_row')).toEqual({ held_reason: null, unknown_in_a_row: 0 })
    expect(await sending(key, accepted)).toBe('done')
  })

  test('lifts what calls have held', async () => {
    await note(refused(401))

    expect(await byPerson(false, 2)).toEqual({ outcome: 'done', version: 3 })
    expect(await askLeave(pool, 60_000)).toBe('free')
  })

  test('I12 I16 of two at once one wins, and each change is audited with its reason', async () => {
    const results = await Promise.all([byPerson(true, 1), byPerson(true, 1), byPerson(false, 1)])

    expect(results.filter((it) => it.outcome === 'done')).toHaveLength(1)
    expect(results.filter((it) => it.outcome === 'stale')).toEqual(Array(2).fill({ outcome: 'stale', version: 2 }))
    const { rows } = await pool.query('select actor, via, subject, reason from audit_log')
    expect(rows).toEqual([{ actor: 'ada', via: 'api', subject: 'sending', reason: 'because' }])
  })

  test('closes the breaker again, and what was parked meanwhile settles', async () => {
    await insertSend(pool, key, { state: 'needs_review' })
    await insertAttempt(pool, key, { outcome: 'unknown', called_at: new Date(), ended_at: new Date() })
    const report = async (messageId: string, recipient: string) => {
      const event = await insertEvent(pool, messageId, { source: 'inboxili' })
      await inTransaction(pool, (tx) =>
        settle(tx, { event, kind: 'delivered', messageId, recipient, occurredAt: new Date(), hasOwnTime: true }, true),
      )
    }
    await report('of-others', 'nobody@example.com')
    await report(`m-${key}`, 'ada@example.com')
    const open = [await control('matching', 'version'), await sendRow(pool, key, 'status')]
    const stale = await inTransaction(pool, (tx) =>
      switchMatching(tx, { mode: 'auto', reason: 'a test of ours', version: 1, actor: 'ada', via: 'api' }),
    )
    await inTransaction(pool, (tx) =>
      switchMatching(tx, { mode: 'auto', reason: 'a test of ours', version: 2, actor: 'ada', via: 'api' }),
    )

    const { joinedMessages } = await service.sweep(300_000)

    expect(open).toEqual([{ matching: 'suggest', version: 2 }, { status: 'needs_review' }])
    expect(stale).toEqual({ outcome: 'stale', version: 2 })
    expect(joinedMessages).toBe(1)
    expect(await sendRow(pool, key, 'status', 'message_id')).toEqual({ status: 'delivered', message_id: `m-${key}` })
    // The same foreign event doesn't open it again.
    expect(await control('matching')).toEqual({ matching: 'auto' })
    const { rows } = await pool.query('select action, reason, before from audit_log')
    expect(rows).toEqual([{ action: 'matching auto', reason: 'a test of ours', before: 'suggest' }])
  })
})

test('the metrics say what is held', async () => {
  const metrics = createMetrics()
  const lines = async () => (await metrics.text(pool)).split('\n').filter((line) => line.startsWith('oncehook_held{'))
  const before = await lines()
  await note(refused(401))
  await pool.query(`update sending_control set matching = 'suggest'`)

  expect(before.sort()).toEqual(['oncehook_held{what="matching"} 0', 'oncehook_held{what="sending"} 0'])
  expect((await lines()).sort()).toEqual(['oncehook_held{what="matching"} 1', 'oncehook_held{what="sending"} 1'])
})

describe('a restored database', () => {
  const anotherServer = () => pool.query(`update sending_control set database_id = '7000000000000000000/00000001'`)

  test('sends nothing, probes nothing and matches nothing by recipient until a person has looked', async () => {
    await queueSend(service, key)
    await anotherServer()

    const first = await sending(key, accepted)
    await note(accepted, true)
    await passAMinute()

    expect([first, await sending(key, accepted)]).toEqual(['nothing to do', 'nothing to do'])
    expect(await control('held_by', 'matching', 'version')).toEqual({ held_by: 'restore', matching: 'suggest', version: 2 })
    await byPerson(false, 2)
    expect(await sending(key, accepted)).toBe('done')
  })

  test('is noticed once, however many look', async () => {
    for (const name of ['a', 'b', 'c', 'd']) await queueSend(service, `${key}-${name}`)
    await anotherServer()

    await Promise.all(['a', 'b', 'c', 'd'].map((name) => sending(`${key}-${name}`, accepted)))

    expect(await control('version')).toEqual({ version: 2 })
  })
})
