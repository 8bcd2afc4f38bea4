import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Inboxili } from '#inboxili'
import type { Fault } from '../src/sandbox/inboxili/faults.ts'
import { type CallOutcome, outcomeOf } from '../src/sends/outcome.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { insertSend } from './support/ops-rows.ts'
import {
  attemptsOf,
  callsTo,
  finishJobs,
  jobsOf,
  message,
  patientDatabase,
  queueSend,
  resetControl,
  sendRow,
} from './support/sends.ts'
import { API_KEY, testService } from './support/service.ts'

const database = await patientDatabase()
const { pool } = database
const service = await testService(database, { sources: {} })
const impatient = await testService(database, { sources: {} }, { callTimeoutMs: 250 })
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
const makeDue = () =>
  pool.query(`update email_sends set send_after = now() - interval '1 s' where dedupe_key = $1 and send_after is not null`, [key])
const waitOf = async () => (await row(`extract(epoch from send_after - now())::float8 as seconds`))?.seconds
/** A call that ends as said, and its count. */
const calling = (end: () => CallOutcome | Promise<CallOutcome>) => vi.fn(async () => end())

describe('refusals', () => {
  test.each([400, 401, 403, 404, 422])('I8 C-56 after %i the key is free, and only a trigger sends again', async (status) => {
    sandbox.arm({ kind: 'status', status, code: 'sender_not_verified', message: 'nope' })
    await queueSend(service, key)
    await sendOnce(deps, key)
    const refused = await row('state', 'send_after', 'last_error', 'message_id')
    const rerun = await sendOnce(deps, key)
    const callsBefore = callsTo(service, to)

    const triggered = await queueSend(service, key, message(to, 'Another subject'))
    // A refused key holds all sends; then this one is the probe.
    await pool.query('update sending_control set next_probe_at = now() where held_reason is not null')
    await sendOnce(deps, key)

    expect(refused).toEqual({
      state: 'rejected',
      send_after: null,
      last_error: `${status} sender_not_verified: nope`,
      message_id: null,
    })
    expect(rerun).toBe('nothing to do')
    expect(callsBefore).toBe(1)
    expect(triggered).toEqual({ outcome: 'queued', key })
    expect(callsTo(service, to)).toBe(2)
    expect(sandbox.ledger.at(-1)?.message?.subject).toBe('Another subject')
    expect(await row('state', 'last_error')).toEqual({ state: 'sent', last_error: null })
    expect(await attemptsOf(pool, key)).toEqual([
      { number: 1, outcome: 'refused', http_status: status, error: `${status} sender_not_verified: nope`, message_id: null },
      { number: 2, outcome: 'accepted', http_status: null, error: null, message_id: expect.any(String) },
    ])
  })

  test('I8 ten triggers of a rejected send queue it once', async () => {
    await insertSend(pool, key, { state: 'rejected' })

    const triggered = await Promise.all(Array.from({ length: 10 }, () => queueSend(service, key, message('ada@example.com'))))

    expect(triggered.filter((it) => it.outcome === 'queued')).toHaveLength(1)
    expect(await jobsOf(pool, key)).toHaveLength(1)
  })
})

describe('unknown outcomes', () => {
  const unknowns: Record<string, [Fault, string]> = {
    'a page instead of JSON with 504': [
      { kind: 'status', status: 504, body: '<html>Gateway timeout</html>', accepted: true },
      '504 after the request',
    ],
    '500': [{ kind: 'status', status: 500, code: 'internal', accepted: true }, '500 after the request'],
    '502': [{ kind: 'status', status: 502 }, '502 after the request'],
    '503': [{ kind: 'status', status: 503 }, '503 after the request'],
    '408': [{ kind: 'status', status: 408 }, '408 after the request'],
    '409': [{ kind: 'status', status: 409 }, '409 after the request'],
    '425': [{ kind: 'status', status: 425 }, '425 after the request'],
    '302': [{ kind: 'status', status: 302, headers: { location: '/api/v1/transactional/send' } }, '302 after the request'],
    '307': [{ kind: 'status', status: 307, headers: { location: '/api/v1/transactional/send' } }, '307 after the request'],
    'an unreadable 2xx': [{ kind: 'unreadable' }, '200 with an unreadable answer'],
    'an unknown status': [{ kind: 'odd_status' }, 'unknown status "weird" in a 2xx answer'],
    'a connection cut after the email went out': [{ kind: 'cut_after_accept' }, 'connection closed before the whole answer'],
    'a connection cut before it did': [{ kind: 'cut_before_accept' }, 'connection closed before the whole answer'],
  }

  test.each(Object.keys(unknowns))('I7 C-53 %s needs review, and is never repeated', async (name) => {
    const [fault, error] = unknowns[name] ?? []
    if (fault) sandbox.arm(fault)
    await queueSend(service, key)
    await sendOnce(deps, key)

    const triggered = await queueSend(service, key)
    await sendOnce(deps, key)

    expect(callsTo(service, to)).toBe(1)
    expect(triggered).toEqual({ outcome: 'held', key, status: 'needs_review', recipient: to, differs: [] })
    expect(await row('state', 'needs_review', 'last_error', 'send_after', 'completed_at')).toEqual({
      state: 'needs_review',
      needs_review: true,
      last_error: error,
      send_after: null,
      completed_at: null,
    })
    expect(await attemptsOf(pool, key)).toMatchObject([{ number: 1, outcome: 'unknown', error }])
  })

  test('I7 C-52 a timeout after the request left needs review, whatever is triggered and run again', async () => {
    impatient.sandbox.arm({ kind: 'hold' })
    await queueSend(impatient, key)
    await sendOnce(impatient.deps, key)

    const triggered = await Promise.all(Array.from({ length: 5 }, () => queueSend(impatient, key)))
    await Promise.all(Array.from({ length: 5 }, () => sendOnce(impatient.deps, key)))

    expect(callsTo(impatient, to)).toBe(1)
    expect(triggered).toEqual(Array(5).fill({ outcome: 'held', key, status: 'needs_review', recipient: to, differs: [] }))
    expect(await row('state', 'last_error')).toEqual({ state: 'needs_review', last_error: 'no answer in 0.25 s' })
    expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'unknown', error: 'no answer in 0.25 s' }])
  })
})

describe('C-54 429', () => {
  const limited = (retryAfterSeconds?: number): CallOutcome => ({
    kind: 'rate_limited',
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    code: 'rate_limited',
    message: '',
    error: '429 rate_limited',
  })

  test('waits twice as long as asked, by jobs of their own, and sends once', async () => {
    sandbox.arm([
      { kind: 'rate_limited', retryAfter: 2 },
      { kind: 'rate_limited', retryAfter: 2 },
    ])
    await queueSend(service, key)
    for (let count = 1; count <= 2; count += 1) {
      await finishJobs(pool, 'key', key)
      await sendOnce(deps, key)

      expect(await row('state', 'last_error')).toEqual({
        state: 'queued',
        last_error: '429 rate_limited: too many requests',
      })
      expect(await jobsOf(pool, key)).toHaveLength(1)
      // Another worker can't send meanwhile.
      expect(await sendOnce(deps, key)).toBe('nothing to do')
      expect(callsTo(service, to)).toBe(count)
      await makeDue()
    }

    await sendOnce(deps, key)

    expect(callsTo(service, to)).toBe(3)
    expect(await row('state', 'last_error', 'send_after')).toEqual({ state: 'sent', last_error: null, send_after: null })
    expect((await attemptsOf(pool, key)).map((it) => [it.outcome, it.http_status])).toEqual([
      ['refused', 429],
      ['refused', 429],
      ['accepted', null],
    ])
  })

  // The wait asked for, and up to a fifth more; the test itself may have used up some of it.
  const waits: [string, () => number | string | undefined, number, number][] = [
    ['2', () => 2, 2, 2.4],
    ['0, which is no answer to a limit', () => 0, 1, 1.2],
    ['99999, which is too long', () => 99_999, 300, 360],
    ['a number of 10 digits', () => '9999999999', 300, 360],
    ['a number of 400 digits', () => '9'.repeat(400), 300, 360],
    ['an HTTP date in 100 s', () => new Date(Date.now() + 100_000).toUTCString(), 99, 121],
    ['a date of RFC 850 years ahead', () => 'Friday, 31-Dec-49 23:59:59 GMT', 300, 360],
    ['an HTTP date that has passed', () => new Date(Date.now() - 100_000).toUTCString(), 1, 1.2],
    ['nothing', () => undefined, 5, 6],
    ['something unreadable', () => 'soon', 5, 6],
  ]

  test.each(waits)('Retry-After: %s', async (_, retryAfter, atLeast, atMost) => {
    const value = retryAfter()
    sandbox.arm({ kind: 'rate_limited', ...(value !== undefined && { retryAfter: value }) })
    await queueSend(service, key)

    await sendOnce(deps, key)

    const [job] = (
      await pool.query<{ job: number; send: number }>(
        `select extract(epoch from start_after - ended_at)::float8 as job, extract(epoch from send_after - ended_at)::float8 as send
         from email_sends join send_attempts using (dedupe_key) join pgboss.job on data ->> 'key' = dedupe_key
         where dedupe_key = $1 order by job desc limit 1`,
        [key],
      )
    ).rows
    expect(job?.send).toBeGreaterThanOrEqual(atLeast - 0.001)
    expect(job?.send).toBeLessThanOrEqual(atMost)
    // Its job must not find that it is too early.
    expect(job?.job).toBe(job?.send)
  })

  test('for ever: five calls, then the key is free and the reason visible', async () => {
    sandbox.arm({ kind: 'rate_limited', retryAfter: 0 }, { times: 'always' })
    await queueSend(service, key)

    for (let count = 0; count < 8; count += 1) {
      await sendOnce(deps, key)
      await makeDue()
    }

    expect(callsTo(service, to)).toBe(5)
    expect(await row('state', 'last_error')).toEqual({
      state: 'rejected',
      last_error: '429 rate_limited: too many requests',
    })
    expect(await queueSend(service, key)).toEqual({ outcome: 'queued', key })
    sandbox.disarm()
    await sendOnce(deps, key)
    expect(await row('state')).toEqual({ state: 'sent' })
  })

  test('the fifth 429 itself plans no repeat', async () => {
    await queueSend(service, key)
    await pool.query('update email_sends set rate_limited_calls = 4 where dedupe_key = $1', [key])
    await finishJobs(pool, 'key', key)

    await sendOnce({ ...deps, call: calling(() => limited(2)) }, key)

    expect(await row('state', 'send_after')).toEqual({ state: 'rejected', send_after: null })
    expect(await jobsOf(pool, key)).toEqual([])
  })

  test('the waits without Retry-After grow', async () => {
    await queueSend(service, key)
    const seconds: number[] = []
    for (let count = 0; count < 4; count += 1) {
      await sendOnce({ ...deps, call: calling(() => limited()) }, key)
      seconds.push(Number(await waitOf()))
      await makeDue()
    }

    expect(seconds.map((it) => Math.floor(Math.log2(it / 4.5)))).toEqual([0, 1, 2, 3])
  })

  test('an outage before it does not use up its five calls', async () => {
    await queueSend(service, key)
    await pool.query('update email_sends set unreached_calls = 50 where dedupe_key = $1', [key])

    await sendOnce({ ...deps, call: calling(() => limited(2)) }, key)

    expect(await row('state')).toEqual({ state: 'queued' })
  })

  test.each([
    [2, 2],
    [99_999, 300],
    [Number.POSITIVE_INFINITY, 300],
  ])('all calls of all processes are held for Retry-After %i', async (retryAfter, held) => {
    await queueSend(service, key)
    const holdSlots = vi.fn(deps.holdSlots)

    await sendOnce({ ...deps, holdSlots, call: calling(() => limited(retryAfter)) }, key)

    expect(holdSlots.mock.calls).toEqual([[held]])
  })
})

describe('errors before the first byte', () => {
  /** A client of an address where nobody listens. */
  async function unreachable() {
    const server = createServer().listen(0, '127.0.0.1')
    await new Promise((done) => server.once('listening', done))
    const { port } = server.address() as AddressInfo // a listening TCP server has one
    await new Promise((done) => server.close(done))
    const client = new Inboxili(API_KEY, { baseUrl: `http://127.0.0.1:${port}`, maxRetries: 0 })
    return (email: ReturnType<typeof message>) =>
      client.emails.send(email as Parameters<typeof client.emails.send>[0]).then(
        (answer) => outcomeOf({ answer }, new Date()),
        (thrown: unknown) => outcomeOf({ thrown }, new Date()),
      )
  }
  const notSent: CallOutcome = { kind: 'not_sent', code: 'ECONNREFUSED', error: 'connection refused' }

  test('a refused connection is repeated by its own job, when it is due, and then sent once', async () => {
    await queueSend(service, key)
    await finishJobs(pool, 'key', key)
    await sendOnce({ ...deps, call: await unreachable() }, key)
    const refused = await row('state', 'last_error')
    const [seconds] = await jobsOf(pool, key)
    const tooEarly = await sendOnce(deps, key)
    await makeDue()

    const results = await Promise.all([sendOnce(deps, key), sendOnce(deps, key), sendOnce(deps, key)])

    expect(refused).toEqual({ state: 'rejected', last_error: 'connection refused' })
    expect(seconds).toBeGreaterThan(0)
    expect(tooEarly).toBe('nothing to do')
    expect(results.filter((it) => it === 'done')).toHaveLength(1)
    expect(callsTo(service, to)).toBe(1)
    expect((await attemptsOf(pool, key)).map((it) => it.outcome)).toEqual(['refused', 'accepted'])
  })

  test('the waits grow up to a quarter of an hour', async () => {
    await queueSend(service, key)
    const seconds: number[] = []
    for (let count = 0; count < 12; count += 1) {
      await sendOnce({ ...deps, call: calling(() => notSent) }, key)
      seconds.push(Number(await waitOf()))
      await makeDue()
    }

    expect(seconds.slice(0, 8).map((it) => Math.floor(Math.log2(it / 4.5)))).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    expect(Math.max(...seconds)).toBeLessThanOrEqual(900 * 1.2)
    expect(seconds[11]).toBeGreaterThan(800)
  })

  test('after a day of them the send waits for a trigger', async () => {
    await queueSend(service, key)
    await pool.query(`update email_sends set queued_at = now() - interval '3 days' where dedupe_key = $1`, [key])
    await sendOnce({ ...deps, call: calling(() => notSent) }, key)
    const first = await waitOf()
    await pool.query(`update send_attempts set claimed_at = now() - interval '25 hours' where dedupe_key = $1`, [key])
    await makeDue()

    await sendOnce({ ...deps, call: calling(() => notSent) }, key)

    expect(first).toBeGreaterThan(0)
    expect(await row('state', 'send_after')).toEqual({ state: 'rejected', send_after: null })
    expect(await queueSend(service, key)).toEqual({ outcome: 'queued', key })
    await sendOnce({ ...deps, call: calling(() => notSent) }, key)
    expect(await waitOf()).toBeGreaterThan(0)
  })

  test('a trigger may send while a repeat is planned; the planned one then finds nothing to do', async () => {
    await queueSend(service, key)
    await sendOnce({ ...deps, call: calling(() => notSent) }, key)

    await queueSend(service, key)
    await sendOnce(deps, key)

    expect(await sendOnce(deps, key)).toBe('nothing to do')
    expect(callsTo(service, to)).toBe(1)
  })
})
