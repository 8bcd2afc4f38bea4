import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { inTransaction } from '../src/db.ts'
import type { CallOutcome } from '../src/sends/outcome.ts'
import { recordOutcome } from '../src/sends/record.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { insertSend } from './support/ops-rows.ts'
import {
  attemptsOf,
  callsTo,
  finishJobs,
  insertCall,
  interceptQueries,
  jobsOf,
  message,
  patientDatabase,
  queueSend,
  resetControl,
  sendRow,
  untilWaiting,
} from './support/sends.ts'
import { connect, testService } from './support/service.ts'

const database = await patientDatabase()
const { pool } = database
const service = await testService(database, { sources: {} })
const { deps, sandbox } = service

let number = 0
let key = ''
let to = ''

// A key and a recipient for each test.
beforeEach(() => {
  number += 1
  key = `k${number}`
  to = `k${number}@example.com`
})

afterEach(async () => {
  await resetControl(pool)
  vi.restoreAllMocks()
  sandbox.disarm()
})

const row = (...fields: string[]) => sendRow(pool, key, ...fields)
const makeDue = () => pool.query(`update email_sends set send_after = now() - interval '1 s' where dedupe_key = $1`, [key])
const waitOf = async () => (await row(`extract(epoch from send_after - now())::float8 as seconds`))?.seconds
/** A call that ends as said, and its count. */
const calling = (end: () => CallOutcome | Promise<CallOutcome>) => vi.fn(async () => end())
const accepted = (): CallOutcome => ({ kind: 'accepted', messageId: `m-${key}` })

/** A call that lasts until it is given its answer. */
function heldCall() {
  const begun = Promise.withResolvers<void>()
  const answer = Promise.withResolvers<CallOutcome>()
  const call = vi.fn(() => {
    begun.resolve()
    return answer.promise
  })
  return { call, begun: begun.promise, answer: answer.resolve }
}

/** A worker that stands still between claim and call: its first rate slot is stale, and the second one has to be waited for. */
function pausedWorker() {
  const paused = Promise.withResolvers<void>()
  const gate = Promise.withResolvers<void>()
  let taken = 0
  const takeSlot = async () => {
    taken += 1
    if (taken === 1) return { waitMs: 0, at: performance.now() - 5_000 }
    paused.resolve()
    await gate.promise
    return { waitMs: 0, at: performance.now() }
  }
  return { takeSlot, call: calling(accepted), paused: paused.promise, goOn: gate.resolve }
}

describe('one call', () => {
  test('I1 C-34 twenty callers race for one key: one email', async () => {
    await queueSend(service, key)

    const results = await Promise.all(Array.from({ length: 20 }, () => sendOnce(deps, key)))

    expect(results.filter((it) => it === 'done')).toHaveLength(1)
    expect(callsTo(service, to)).toBe(1)
    expect(await row('state', 'version')).toEqual({ state: 'sent', version: 4 })
    expect(await attemptsOf(pool, key)).toEqual([
      { number: 1, outcome: 'accepted', http_status: null, error: null, message_id: expect.any(String) },
    ])
  })

  test('I1 the job that runs again and the key that is triggered again call nothing', async () => {
    await queueSend(service, key)
    await sendOnce(deps, key)

    const triggered = await queueSend(service, key)
    const again = await sendOnce(deps, key)

    expect(triggered).toEqual({ outcome: 'held', key, status: 'sent', recipient: to, differs: [] })
    expect(again).toBe('nothing to do')
    expect(callsTo(service, to)).toBe(1)
  })

  test('I1 twenty triggers and ten workers at once make one email', async () => {
    const triggers = await Promise.all(
      Array.from({ length: 20 }, async (_, index) => {
        const triggered = await queueSend(service, key)
        if (index % 2 === 0) await sendOnce(deps, key)
        return triggered.outcome
      }),
    )

    await sendOnce(deps, key)
    expect(triggers.filter((it) => it === 'queued')).toHaveLength(1)
    expect(callsTo(service, to)).toBe(1)
  })

  test('a key that nobody asked for is nothing to do', async () => {
    expect(await sendOnce(deps, key)).toBe('nothing to do')
  })

  test.each(['claimed', 'sending', 'sent', 'rejected', 'needs_review', 'abandoned'])(
    'I1 I7 a send that is %s is not called',
    async (state) => {
      await insertSend(pool, key, { state })
      const before = await row('*')
      const call = calling(accepted)

      expect(await sendOnce({ ...deps, call }, key)).toBe('nothing to do')

      expect(call).not.toHaveBeenCalled()
      expect(await row('*')).toEqual(before)
    },
  )

  test('a send that is not due waits', async () => {
    await insertSend(pool, key, { send_after: new Date(Date.now() + 60_000) })
    const call = calling(accepted)

    expect(await sendOnce({ ...deps, call }, key)).toBe('nothing to do')
    expect(call).not.toHaveBeenCalled()
  })

  test('a job with nothing to do uses no place under the rate limit', async () => {
    const takeSlot = vi.fn(deps.takeSlot)

    await sendOnce({ ...deps, takeSlot }, key)

    expect(takeSlot).not.toHaveBeenCalled()
  })

  test('C-57 the claim is committed, and the call noted, before the request', async () => {
    const other = await connect(database.url)
    await queueSend(service, key)
    const seen: unknown[] = []
    const call = calling(async () => {
      const { rows } = await other.query(
        `select state, outcome, claim_token = id as is_its_own, called_at is not null as is_noted
         from email_sends join send_attempts using (dedupe_key) where dedupe_key = $1`,
        [key],
      )
      seen.push(...rows)
      return accepted()
    })

    await sendOnce({ ...deps, call }, key)
    await other.end()

    expect(seen).toEqual([{ state: 'sending', outcome: 'in_flight', is_its_own: true, is_noted: true }])
  })

  test('I1 while the call lasts nobody else can claim, trigger or send', async () => {
    await queueSend(service, key)
    const { call, begun, answer } = heldCall()
    const sending = sendOnce({ ...deps, call }, key)
    await begun

    const others = await Promise.all([sendOnce(deps, key), sendOnce(deps, key), queueSend(service, key)])
    answer(accepted())

    expect(others).toEqual([
      'nothing to do',
      'nothing to do',
      { outcome: 'held', key, status: 'sending', recipient: to, differs: [] },
    ])
    expect(await sending).toBe('done')
    expect(callsTo(service, to)).toBe(0)
    expect(await row('state', 'message_id')).toEqual({ state: 'sent', message_id: `m-${key}` })
  })
})

describe('message ids', () => {
  test('C-55 an accepted email without a message id is sent', async () => {
    sandbox.arm({ kind: 'null_id' })
    await queueSend(service, key)
    await sendOnce(deps, key)

    await queueSend(service, key)
    await sendOnce(deps, key)

    expect(callsTo(service, to)).toBe(1)
    expect(await row('state', 'message_id', 'completed_at is not null as is_complete')).toEqual({
      state: 'sent',
      message_id: null,
      is_complete: true,
    })
  })

  test('I10 a message id that the API gives out twice stays with its first attempt, and the second email counts as sent', async () => {
    sandbox.arm([
      { kind: 'ok', messageId: 'twice' },
      { kind: 'ok', messageId: 'twice' },
    ])
    await queueSend(service, key)
    await queueSend(service, `${key}-other`)

    await Promise.all([sendOnce(deps, key), sendOnce(deps, `${key}-other`)])

    const { rows } = await pool.query(
      `select sends.state, outcome, attempts.message_id, sends.message_id is not distinct from attempts.message_id as is_the_same
       from email_sends sends join send_attempts attempts using (dedupe_key) where dedupe_key like $1 order by attempts.message_id`,
      [`${key}%`],
    )
    expect(rows).toEqual([
      { state: 'sent', outcome: 'accepted', message_id: 'twice', is_the_same: true },
      { state: 'sent', outcome: 'accepted', message_id: null, is_the_same: true },
    ])
  })
})

describe('recording', () => {
  /** The next updates of this test's attempt fail, as often as said. */
  async function failRecording(times: number, code: string) {
    await pool.query(`create sequence faults_${key}`)
    await pool.query(
      `create function fail_${key}() returns trigger language plpgsql as $$ begin
         if new.dedupe_key = '${key}' and new.ended_at is not null and nextval('faults_${key}') <= ${times} then
           raise exception 'armed' using errcode = '${code}';
         end if;
         return new;
       end $$`,
    )
    await pool.query(`create trigger fail_${key} before update on send_attempts for each row execute function fail_${key}()`)
    return () => pool.query(`drop function fail_${key} cascade`)
  }

  test('C-57 a failure while recording is overcome, and the next run calls nothing', async () => {
    const repair = await failRecording(2, '57P03')
    await queueSend(service, key)

    await sendOnce(deps, key)
    await repair()

    expect(await row('state')).toEqual({ state: 'sent' })
    expect(await sendOnce(deps, key)).toBe('nothing to do')
    expect(callsTo(service, to)).toBe(1)
  })

  test('C-57 storage that is away for long is waited for, even by a process that is to stop: three times', async () => {
    const repair = await failRecording(1_000, '57P03')
    await queueSend(service, key)
    const stopping = new AbortController()
    const call = calling(() => {
      stopping.abort()
      return accepted()
    })

    await expect(sendOnce({ ...deps, call, stopping: stopping.signal }, key)).rejects.toThrow('armed')
    await repair()

    const { rows } = await pool.query(`select last_value::int as tries from faults_${key}`)
    expect(rows).toEqual([{ tries: 3 }])
    expect(await row('state')).toEqual({ state: 'sending' })
  })

  test('I7 an answer that a bug keeps from being recorded ends before a person', async () => {
    const repair = await failRecording(1_000, 'P0001')
    await queueSend(service, key)
    await expect(sendOnce(deps, key)).rejects.toThrow('armed')
    await repair()
    await pool.query(`update email_sends set sending_at = now() - interval '1 h' where dedupe_key = $1`, [key])

    await service.sweep(300_000)

    expect(await row('state')).toEqual({ state: 'needs_review' })
    expect(await sendOnce(deps, key)).toBe('nothing to do')
    expect(callsTo(service, to)).toBe(1)
  })

  test('what is recorded twice, as after a commit in doubt, is written once', async () => {
    for (const outcome of [
      accepted(),
      { kind: 'refused', httpStatus: 422, code: 'c', message: 'm', error: '422 c: m' },
      { kind: 'not_sent', code: 'c', error: 'connection refused' },
      { kind: 'rate_limited', retryAfterSeconds: 9, code: 'c', message: '', error: '429 c' },
      { kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' },
      { kind: 'unknown', reason: 'unknown_status', messageId: `odd-${key}`, error: 'unknown status' },
    ] satisfies CallOutcome[]) {
      key = `${key}+`
      const claim = await insertCall(pool, key)
      const record = () => inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, claim, outcome))
      const first = await record()
      const rows = () =>
        pool.query('select * from email_sends join send_attempts using (dedupe_key) where dedupe_key = $1', [key])
      const before = (await rows()).rows

      expect([first, await record()]).toEqual(['moved', 'repeated'])
      expect((await rows()).rows).toEqual(before)
    }
  })

  test('what an attempt says is written once: the database refuses to change it', async () => {
    const { attempt } = await insertCall(pool, key)
    const update = (values: string) =>
      pool.query(`update send_attempts set ${values} where id = $1`, [attempt]).then(
        () => 'taken',
        () => 'refused',
      )

    expect(await update(`outcome = 'unknown'`)).toBe('taken')
    expect(await update(`outcome = 'accepted', message_id = 'once-${key}'`)).toBe('taken')
    for (const values of [
      `outcome = 'refused'`,
      `outcome = 'unknown'`,
      `outcome = 'in_flight'`,
      `message_id = null`,
      `message_id = 'x'`,
    ])
      expect([values, await update(values)]).toEqual([values, 'refused'])
  })

  test('the sweep that gives up on a call and the call that is recorded do not deadlock', async () => {
    const claim = await insertCall(pool, key)
    const sweep = await connect(database.url)
    await sweep.query('begin')
    await sweep.query('select from email_sends where dedupe_key = $1 for no key update', [key])
    const recording = inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, claim, accepted()))
    await untilWaiting(pool)

    await sweep.query(`update send_attempts set outcome = 'unknown', ended_at = now() where id = $1`, [claim.attempt])
    await sweep.query(`update email_sends set state = 'needs_review' where dedupe_key = $1`, [key])
    await sweep.query('commit')
    await sweep.end()

    expect(await recording).toBe('moved')
    expect(await row('state', 'message_id')).toEqual({ state: 'sent', message_id: `m-${key}` })
    expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'accepted', message_id: `m-${key}` }])
  })
})

describe('C-60 a worker that stops', () => {
  const age = (column: 'claimed_at' | 'sending_at') =>
    pool.query(`update email_sends set ${column} = now() - interval '301 s' where dedupe_key = $1`, [key])

  test('I13 during the call: a person decides, and a fresh call is left alone', async () => {
    const fresh = await insertCall(pool, `${key}-fresh`)
    await insertCall(pool, key)
    await age('sending_at')

    await service.sweep(300_000)

    expect(await row('state', 'last_error')).toEqual({ state: 'needs_review', last_error: 'worker stopped during send' })
    expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'unknown', error: 'worker stopped during send' }])
    expect(await sendRow(pool, fresh.key, 'state')).toEqual({ state: 'sending' })
    expect(await sendOnce(deps, key)).toBe('nothing to do')
    expect(await queueSend(service, key, message('ada@example.com'))).toMatchObject({ outcome: 'held', status: 'needs_review' })
    expect(await jobsOf(pool, key)).toEqual([])
  })

  test('the answer that comes after the sweep still counts: sent', async () => {
    await queueSend(service, key)
    const { call, begun, answer } = heldCall()
    const sending = sendOnce({ ...deps, call }, key)
    await begun
    await age('sending_at')
    await service.sweep(300_000)
    const swept = await row('state')

    answer(accepted())
    await sending

    expect(swept).toEqual({ state: 'needs_review' })
    expect(await row('state', 'last_error')).toEqual({ state: 'sent', last_error: null })
    expect(await attemptsOf(pool, key)).toMatchObject([{ number: 1, outcome: 'accepted', message_id: expect.any(String) }])
  })

  const late: [string, CallOutcome, object, object][] = [
    [
      'a refusal',
      { kind: 'refused', httpStatus: 422, code: 'c', message: 'm', error: '422 c: m' },
      { state: 'rejected', last_error: '422 c: m' },
      { outcome: 'refused', error: '422 c: m' },
    ],
    [
      'a 429, which is no longer repeated',
      { kind: 'rate_limited', retryAfterSeconds: 2, code: 'c', message: '', error: '429 c' },
      { state: 'rejected', last_error: '429 c' },
      { outcome: 'refused', error: '429 c' },
    ],
    [
      'a timeout',
      { kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' },
      { state: 'needs_review', last_error: 'worker stopped during send' },
      { outcome: 'unknown', error: 'worker stopped during send' },
    ],
    [
      'an unknown status with a message id',
      { kind: 'unknown', reason: 'unknown_status', messageId: 'late-odd', error: 'unknown status' },
      { state: 'needs_review', last_error: 'worker stopped during send' },
      { outcome: 'unknown', error: 'unknown status', message_id: 'late-odd' },
    ],
  ]

  test.each(late)('the answer that comes after the sweep: %s', async (_, outcome, send, attempt) => {
    const claim = await insertCall(pool, key)
    await age('sending_at')
    await service.sweep(300_000)

    await inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, claim, outcome))

    expect(await row('state', 'last_error')).toEqual(send)
    expect(await attemptsOf(pool, key)).toMatchObject([attempt])
    expect(await jobsOf(pool, key)).toEqual([])
  })

  test('the answer that comes after a person has decided is kept with its attempt only', async () => {
    const claim = await insertCall(pool, key)
    await age('sending_at')
    await service.sweep(300_000)
    await pool.query(`update email_sends set state = 'abandoned', version = version + 1 where dedupe_key = $1`, [key])

    const moved = await inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, claim, accepted()))

    expect(moved).toBe('kept')
    expect(await row('state', 'message_id')).toEqual({ state: 'abandoned', message_id: null })
    expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'accepted', message_id: `m-${key}` }])
  })

  describe('and whose send a person has queued again', () => {
    /** The resend of a swept call: waiting, or under way as a second attempt. */
    async function resend(isUnderWay: boolean) {
      const first = await insertCall(pool, key)
      await age('sending_at')
      await service.sweep(300_000)
      await pool.query(`update email_sends set state = 'queued', version = version + 1 where dedupe_key = $1`, [key])
      if (!isUnderWay) return { first, sending: undefined, second: undefined }
      const second = heldCall()
      const sending = sendOnce({ ...deps, call: second.call }, key)
      await second.begun
      return { first, sending, second }
    }

    test('the late answer "accepted" makes a waiting resend needless', async () => {
      const { first } = await resend(false)

      await inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, first, accepted()))

      expect(await row('state', 'message_id')).toEqual({ state: 'sent', message_id: `m-${key}` })
      expect(await sendOnce(deps, key)).toBe('nothing to do')
      expect(callsTo(service, to)).toBe(0)
    })

    test('the late answer "refused" leaves a waiting resend as it is', async () => {
      const { first } = await resend(false)

      await inTransaction(pool, (tx) =>
        recordOutcome(tx, deps.enqueue, first, { kind: 'refused', httpStatus: 422, code: 'c', message: 'm', error: '422 c: m' }),
      )

      expect(await row('state')).toEqual({ state: 'queued' })
    })

    test.each<[string, CallOutcome]>([
      ['accepted', { kind: 'accepted', messageId: null }],
      ['refused', { kind: 'refused', httpStatus: 422, code: 'c', message: 'm', error: '422 c: m' }],
    ])('I1 the late answer "%s" does not speak for the call that is under way', async (kind, outcome) => {
      const { first, sending, second } = await resend(true)

      const moved = await inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, first, outcome))
      const during = await row('state')
      second?.answer(accepted())
      await sending

      expect(moved).toBe('kept')
      expect(during).toEqual({ state: 'sending' })
      expect(await row('state', 'message_id')).toEqual({ state: 'sent', message_id: `m-${key}` })
      expect((await attemptsOf(pool, key)).map((it) => it.outcome)).toEqual([kind, 'accepted'])
    })
  })

  test('I1 between claim and call: the send waits again, goes out once, and the old worker can no longer call', async () => {
    await queueSend(service, key)
    const zombie = pausedWorker()
    const stuck = sendOnce({ ...deps, ...zombie }, key)
    await zombie.paused
    await age('claimed_at')
    await finishJobs(pool, 'key', key)

    await service.sweep(300_000)
    const swept = await row('state', 'claim_token')
    const jobs = await jobsOf(pool, key)
    await sendOnce(deps, key)
    zombie.goOn()

    expect(await stuck).toBe('nothing to do')
    expect(swept).toEqual({ state: 'queued', claim_token: null })
    expect(jobs).toHaveLength(1)
    expect(zombie.call).not.toHaveBeenCalled()
    expect(callsTo(service, to)).toBe(1)
    expect((await attemptsOf(pool, key)).map((it) => it.outcome)).toEqual(['never_called', 'accepted'])
  })

  test('I1 the old worker cannot start while the new one has only claimed', async () => {
    await queueSend(service, key)
    const old = pausedWorker()
    const stuck = sendOnce({ ...deps, ...old }, key)
    await old.paused
    await age('claimed_at')
    await service.sweep(300_000)
    const next = pausedWorker()
    const sending = sendOnce({ ...deps, ...next }, key)
    await next.paused

    old.goOn()
    expect(await stuck).toBe('nothing to do')
    next.goOn()
    expect(await sending).toBe('done')

    expect(old.call).not.toHaveBeenCalled()
    expect(next.call).toHaveBeenCalledTimes(1)
  })

  test('a process that is to stop claims nothing more', async () => {
    await queueSend(service, key)
    const stopping = new AbortController()
    const takeSlot = async () => {
      stopping.abort()
      return { waitMs: 3_600_000, at: performance.now() }
    }

    await expect(sendOnce({ ...deps, takeSlot, stopping: stopping.signal }, key)).rejects.toThrow('stopping')

    expect(await row('state')).toEqual({ state: 'queued' })
    expect(await attemptsOf(pool, key)).toEqual([])
  })

  test('a process that is to stop finishes the call that it has begun', async () => {
    await queueSend(service, key)
    const stopping = new AbortController()
    const call = calling(() => {
      stopping.abort()
      return accepted()
    })

    expect(await sendOnce({ ...deps, call, stopping: stopping.signal }, key)).toBe('done')
    expect(await row('state')).toEqual({ state: 'sent' })
  })
})

describe('what comes too late', () => {
  /** Lets the process's own clock jump. */
  const jump = (ms: number) => {
    const now = performance.now.bind(performance)
    vi.spyOn(performance, 'now').mockImplementation(() => now() + ms)
  }

  test('a claim older than 20 s is not called, and given back by the sweep', async () => {
    await queueSend(service, key)
    const call = calling(accepted)
    const jumping = interceptQueries(pool, async (name, run) => {
      const result = await run()
      if (name === 'claim-send') jump(20_001)
      return result
    })

    expect(await sendOnce({ ...deps, pool: jumping, call }, key)).toBe('nothing to do')
    const left = await row('state')
    await pool.query(`update email_sends set claimed_at = now() - interval '301 s' where dedupe_key = $1`, [key])
    await service.sweep(300_000)

    expect(call).not.toHaveBeenCalled()
    expect(left).toEqual({ state: 'claimed' })
    expect(await row('state')).toEqual({ state: 'queued' })
  })

  test.each([
    ['its claim is older than 20 s', 20_001],
    ['its rate slot is older than 1 s', 1_001],
  ])('when %s after the commit of "sending", nothing is called and a repeat is planned', async (_, ms) => {
    await queueSend(service, key)
    const call = calling(accepted)
    const jumping = interceptQueries(pool, async (name, run) => {
      const result = await run()
      if (name === 'start-call') jump(ms)
      return result
    })

    await sendOnce({ ...deps, pool: jumping, call }, key)

    expect(call).not.toHaveBeenCalled()
    expect(await row('state', 'last_error')).toEqual({
      state: 'rejected',
      last_error: 'too late for the call; nothing was sent',
    })
    expect(await waitOf()).toBeGreaterThan(0)
    vi.restoreAllMocks()
    await makeDue()
    await sendOnce(deps, key)
    expect(await row('state')).toEqual({ state: 'sent' })
  })

  test('I14 a rate slot that went stale before the call is replaced', async () => {
    await queueSend(service, key)
    const slots = [performance.now() - 1_001, performance.now() + 60_000]
    const takeSlot = vi.fn(async () => ({ waitMs: 0, at: slots.shift() ?? 0 }))

    await sendOnce({ ...deps, takeSlot }, key)

    expect(takeSlot).toHaveBeenCalledTimes(2)
    expect(callsTo(service, to)).toBe(1)
  })

  test('a claim whose commit is in doubt never calls, and is sent once later', async () => {
    await queueSend(service, key)
    const call = calling(accepted)
    const doubtful = interceptQueries(pool, async (name, run) => {
      const result = await run()
      if (name === 'claim-send') throw new Error('Connection terminated')
      return result
    })
    await expect(sendOnce({ ...deps, pool: doubtful, call }, key)).rejects.toThrow('Connection terminated')
    const left = await row('state')
    await pool.query(`update email_sends set claimed_at = now() - interval '301 s' where dedupe_key = $1`, [key])

    await service.sweep(300_000)
    await sendOnce(deps, key)

    expect(left).toEqual({ state: 'claimed' })
    expect(call).not.toHaveBeenCalled()
    expect(callsTo(service, to)).toBe(1)
  })

  test('a start whose commit is in doubt never calls; a person decides', async () => {
    await queueSend(service, key)
    const call = calling(accepted)
    const doubtful = interceptQueries(pool, async (name, run) => {
      const result = await run()
      if (name === 'start-call') throw new Error('Connection terminated')
      return result
    })
    await expect(sendOnce({ ...deps, pool: doubtful, call }, key)).rejects.toThrow('Connection terminated')
    await pool.query(`update email_sends set sending_at = now() - interval '301 s' where dedupe_key = $1`, [key])

    await service.sweep(300_000)

    expect(call).not.toHaveBeenCalled()
    expect(await row('state')).toEqual({ state: 'needs_review' })
  })
})
