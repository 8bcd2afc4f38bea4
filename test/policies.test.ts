import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { requestSend, sendRequestSchema } from '../src/ops/request-send.ts'
import { decide } from '../src/sends/decide.ts'
import type { CallOutcome } from '../src/sends/outcome.ts'
import { isPerPeriod, kindOf, type Policy, resendPreferred } from '../src/sends/policies.ts'
import { recordOutcome } from '../src/sends/record.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { settle } from '../src/sends/settle.ts'
import { type Triggered, triggerSend } from '../src/sends/trigger.ts'
import { insertEvent, insertSend } from './support/ops-rows.ts'
import {
  attemptsOf,
  finishJobs,
  insertCall,
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
const { deps } = service

let number = 0
let key = ''
let to = ''

beforeEach(() => {
  number += 1
  key = `kind${number}:acme:user_1`
  to = `k${number}@example.com`
})

// A sweep looks at all rows, so no test leaves any for the next.
afterEach(async () => {
  await pool.query(
    'truncate email_sends, send_attempts, follow_ups, delivery_reports, settlements, webhook_events, audit_log, email_marks cascade',
  )
  await pool.query('delete from pgboss.job')
  await resetControl(pool)
})

const unknown: CallOutcome = { kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' }
const accepted: CallOutcome = { kind: 'accepted', messageId: null }
const refused: CallOutcome = { kind: 'refused', httpStatus: 422, code: 'c', message: 'm', error: '422 c: m' }
const notSent: CallOutcome = { kind: 'not_sent', code: 'ECONNREFUSED', error: 'connection refused' }

const ask = (policy: Policy, name = key, address = to): Promise<Triggered> => queueSend(service, name, message(address), policy)
const sending = (name: string, outcome: CallOutcome) => sendOnce({ ...deps, call: async () => outcome }, name)
const row = (...fields: string[]) => sendRow(pool, key, ...fields)
const countOf = async (table: string) =>
  (await pool.query<{ count: number }>(`select count(*)::int from ${table}`)).rows[0]?.count
/** The request dies after all its statements. */
const askAndDie = (policy: Policy) =>
  inTransaction(pool, async (tx) => {
    await triggerSend(tx, deps.enqueue, { key, policy, message: message(to), sourceEvent: undefined, requestedBy: 'token:test' })
    throw new Error('killed')
  }).catch((error: Error) => error.message)

describe('claim', () => {
  test('one key is one email: twenty at once, repeats, and a crash before the commit', async () => {
    const crashed = await askAndDie('claim')
    const left = await countOf('email_sends')

    const asked = await Promise.all(Array.from({ length: 20 }, () => ask('claim')))
    await Promise.all(Array.from({ length: 5 }, () => sending(key, accepted)))

    expect([crashed, left]).toEqual(['killed', 0])
    expect(asked.filter((it) => it.outcome === 'queued')).toHaveLength(1)
    expect(await attemptsOf(pool, key)).toHaveLength(1)
    expect(await ask('claim')).toMatchObject({ outcome: 'held', key, status: 'sent' })
  })

  test.each<Policy>(['claim', 'per_period', 'timestamp'])(
    'I7 under %s an unknown outcome waits for a person, however long',
    async (policy) => {
      await ask(policy)
      await sending(key, unknown)
      await pool.query(`update send_attempts set ended_at = now() - interval '30 days'`)

      expect(await service.sweep(300_000)).toMatchObject({ resends: 0, orphanSends: 0 })

      expect(await row('status')).toEqual({ status: 'needs_review' })
      expect(await ask(policy)).toMatchObject({ outcome: 'held', status: 'needs_review' })
    },
  )
})

describe('per_period', () => {
  test.each([
    ['payment_failed:sub_1:2026-11', true],
    ['payment_failed:sub_1:2026-W48', true],
    ['payment_failed:sub_1:2026-11-29', true],
    ['payment_failed:sub_1', false],
    ['payment_failed:2026-11:sub_1', false],
    ['payment_failed:sub_1:2026-13', false],
    ['payment_failed:sub_1:2026-00', false],
    ['payment_failed:sub_1:2026-W54', false],
    ['payment_failed:sub_1:2026-02-30', false],
    ['payment_failed:sub_1:202611', false],
    ['2026-11', false],
  ])('the key %s has a period as its last part: %s', (name, expected) => {
    expect(isPerPeriod(name)).toBe(expected)
    expect(sendRequestSchema.safeParse({ dedupe_key: name, policy: 'per_period', message: message(to) }).success).toBe(expected)
    expect(sendRequestSchema.safeParse({ dedupe_key: name, policy: 'claim', message: message(to) }).success).toBe(true)
  })

  test('each period has its own email', async () => {
    const asked = await Promise.all(
      ['2026-11', '2026-11', '2026-12'].map((it) => ask('per_period', `payment_failed:sub_1:${it}`)),
    )

    expect(asked.map((it) => it.outcome).sort()).toEqual(['held', 'queued', 'queued'])
  })
})

describe('unguarded', () => {
  test('twenty requests at once are five sends of their own, and fifteen too many', async () => {
    const asked = await Promise.all(Array.from({ length: 20 }, () => ask('unguarded', 'otp:login')))

    const keys = asked.flatMap((it) => (it.outcome === 'queued' ? [it.key] : []))
    expect(asked.filter((it) => it.outcome === 'rate_limited')).toHaveLength(15)
    expect(new Set(keys).size).toBe(5)
    for (const name of keys) expect(name).toMatch(/^otp:login:[0-9a-f-]{36}$/)
    expect(await countOf('email_sends')).toBe(5)
    expect(await countOf(`pgboss.job where name = 'send'`)).toBe(5)
  })

  test('the limit is one of a kind and a recipient, and of a quarter of an hour', async () => {
    for (let count = 0; count < 5; count += 1) await ask('unguarded', 'otp:login')
    const outcomes = async (...requests: [string, string][]) => {
      const asked: string[] = []
      for (const [name, address] of requests) asked.push((await ask('unguarded', name, address)).outcome)
      return asked
    }

    expect(await outcomes(['otp:login', to], ['otp:login', to.toUpperCase()])).toEqual(['rate_limited', 'rate_limited'])
    expect(await outcomes(['otp', to], ['otp:login:app', to], ['otp:login', `b.${to}`])).toEqual(['queued', 'queued', 'queued'])
    await pool.query(`update email_sends set queued_at = now() - interval '901 s' where policy = 'unguarded'`)
    expect(await outcomes(['otp:login', to])).toEqual(['queued'])
  })

  test('the limit is of a mailbox: plus-tags, also many at once, are no more room', async () => {
    const at = (tag: number) => to.replace('@', `+${tag}@`)
    const asked = await Promise.all(Array.from({ length: 12 }, (_, tag) => ask('unguarded', 'otp:login', at(tag))))
    const gmail = []
    for (const address of [
      'a.b@gmail.com',
      'ab@gmail.com',
      'a.b@googlemail.com',
      'a.b+1@gmail.com',
      'A.B@gmail.com',
      'ab+2@gmail.com',
    ])
      gmail.push((await ask('unguarded', 'otp:login', address)).outcome)

    expect(asked.filter((it) => it.outcome === 'queued')).toHaveLength(5)
    expect((await ask('unguarded', 'otp:login')).outcome).toBe('rate_limited')
    expect(gmail).toEqual([...Array(5).fill('queued'), 'rate_limited'])
  })

  test('a request that dies before its commit doesn’t count', async () => {
    for (let count = 0; count < 8; count += 1) expect(await askAndDie('unguarded')).toBe('killed')

    expect((await ask('unguarded')).outcome).toBe('queued')
  })

  test('an unknown outcome ends abandoned, with no review and no second call', async () => {
    const asked = await ask('unguarded')
    const name = asked.outcome === 'queued' ? asked.key : ''
    await sending(name, unknown)

    expect(await sendRow(pool, name, 'status', 'needs_review', 'last_error')).toEqual({
      status: 'abandoned',
      needs_review: false,
      last_error: 'no answer in 15 s',
    })
    expect(await sending(name, accepted)).toBe('nothing to do')
    expect(await service.sweep(300_000)).toMatchObject({ resends: 0, orphanSends: 0 })
    expect((await ask('unguarded')).outcome).toBe('queued')
  })

  test('so does a call whose worker is gone', async () => {
    await insertCall(pool, key, { sending_at: new Date(Date.now() - 301_000) })
    await pool.query(`update email_sends set policy = 'unguarded'`)

    expect(await service.sweep(300_000)).toMatchObject({ staleCalls: 1 })

    expect(await row('status')).toEqual({ status: 'abandoned' })
    expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'unknown' }])
  })

  test('its calls may be meant by an event as any others: with one of them open, nothing is guessed', async () => {
    for (const policy of ['unguarded', 'claim'] as const) {
      const asked = await ask(policy)
      await sending(asked.outcome === 'queued' ? asked.key : '', unknown)
    }
    const event = await insertEvent(pool, 'e', { source: 'inboxili' })

    await inTransaction(pool, (tx) =>
      settle(tx, { event, kind: 'delivered', messageId: 'm', recipient: to, occurredAt: new Date(), hasOwnTime: true }, true),
    )

    const { rows } = await pool.query('select parked, cardinality(candidates) as candidates from delivery_reports')
    expect(rows).toEqual([{ parked: 'ambiguous', candidates: 2 }])
    expect(await row('status')).toEqual({ status: 'needs_review' })
  })

  test('a key that leaves no room for the random part is refused', () => {
    const read = (length: number, policy: Policy) =>
      sendRequestSchema.safeParse({ dedupe_key: 'k'.repeat(length), policy, message: message(to) }).success

    expect([read(475, 'unguarded'), read(476, 'unguarded'), read(512, 'claim')]).toEqual([true, false, true])
  })
})

describe('timestamp', () => {
  const second = () => key.replace('user_1', 'user_2')

  test('the kind is the key without its last part', () => {
    expect(['welcome:acme:user_1', 'welcome', 'a:b%3Ac'].map(kindOf)).toEqual(['welcome:acme', '', 'a'])
  })

  test('two keys of a kind to one recipient are one email, and both ask for the same send', async () => {
    const asked = [await ask('timestamp'), await ask('timestamp', second(), to.toUpperCase()), await ask('timestamp')]
    await sending(key, accepted)
    const afterwards = await ask('timestamp', second())

    expect(asked).toMatchObject([
      { outcome: 'queued', key },
      { outcome: 'held', key, status: 'queued', differs: [] },
      { outcome: 'held', key, status: 'queued', differs: [] },
    ])
    expect(afterwards).toMatchObject({ outcome: 'held', key, status: 'sent' })
    expect(await countOf('email_sends')).toBe(1)
    expect(await jobsOf(pool, key)).toHaveLength(1)
  })

  test('twenty keys at once make one send', async () => {
    const asked = await Promise.all(
      Array.from({ length: 20 }, (_, index) => ask('timestamp', `kind${number}:acme:user_${index}`)),
    )

    const queued = asked.flatMap((it) => (it.outcome === 'queued' ? [it.key] : []))
    expect(queued).toHaveLength(1)
    expect(asked.flatMap((it) => (it.outcome === 'held' ? [it.key] : []))).toEqual(Array(19).fill(queued[0]))
    expect(await countOf('email_sends')).toBe(1)
  })

  test('other recipients and other kinds have emails of their own', async () => {
    const asked = [
      await ask('timestamp'),
      await ask('timestamp', second(), `b.${to}`),
      await ask('timestamp', `other${number}:acme:user_1`),
      await ask('timestamp', `kind${number}:beta:user_1`),
    ]

    expect(asked.map((it) => it.outcome)).toEqual(Array(4).fill('queued'))
  })

  test('a request that dies before its commit leaves no mark', async () => {
    expect(await askAndDie('timestamp')).toBe('killed')
    expect(await countOf('email_marks')).toBe(0)

    expect((await ask('timestamp', second())).outcome).toBe('queued')
  })

  test('the mark gets its time with the record, and not when the outcome is unknown', async () => {
    await ask('timestamp')
    await sending(key, unknown)
    const open = await pool.query('select sent_at from email_marks')

    await inTransaction(pool, async (tx) => {
      const { rows } = await tx.query<{ attempt: string }>('select id as attempt from send_attempts where dedupe_key = $1', [key])
      await recordOutcome(tx, deps.enqueue, { key, attempt: rows[0]?.attempt ?? '', matchKey: to }, accepted)
    })

    expect(open.rows).toEqual([{ sent_at: null }])
    const { rows } = await pool.query('select sent_at is not null as is_set, dedupe_key from email_marks')
    expect(rows).toEqual([{ is_set: true, dedupe_key: key }])
  })

  test('a delivery event or a person that closes an unknown send sets the time too', async () => {
    for (const name of [key, `other${number}:acme:user_1`]) {
      await ask('timestamp', name)
      await sending(name, { ...unknown, messageId: `m:${name}` })
    }
    const event = await insertEvent(pool, 'e', { source: 'inboxili' })
    await inTransaction(pool, (tx) =>
      settle(tx, { event, kind: 'delivered', messageId: `m:${key}`, occurredAt: new Date(), hasOwnTime: true }, true),
    )
    await decide(pool, deps.enqueue, `other${number}:acme:user_1`, {
      decision: 'sent',
      version: 4,
      reason: 'seen',
      actor: 'ada',
      via: 'api',
    })

    const { rows } = await pool.query('select sent_at is not null as is_set from email_marks')
    expect(rows).toEqual([{ is_set: true }, { is_set: true }])
  })

  test('a rejected or abandoned send gives its mark to the next key, and is held by that from then on', async () => {
    await ask('timestamp')
    await sending(key, refused)

    expect(await ask('timestamp', second())).toMatchObject({ outcome: 'queued', key: second() })

    expect(await ask('timestamp')).toMatchObject({ outcome: 'held', key: second() })
    expect(await row('state')).toEqual({ state: 'rejected' })
    await sending(second(), unknown)
    await decide(pool, deps.enqueue, second(), { decision: 'abandoned', version: 4, reason: 'no', actor: 'ada', via: 'api' })
    expect(await ask('timestamp')).toMatchObject({ outcome: 'queued', key })
  })

  test('a send that needs review keeps its mark', async () => {
    await ask('timestamp')
    await sending(key, unknown)

    expect(await ask('timestamp', second())).toMatchObject({ outcome: 'held', key, status: 'needs_review' })
  })

  test('what was once sent keeps its mark for ever, also when a person closes it otherwise', async () => {
    await ask('timestamp')
    await sending(key, accepted)
    const by = { reason: 'r', actor: 'ada', via: 'api' }
    await decide(pool, deps.enqueue, key, { decision: 'reopen', version: 4, ...by })
    await decide(pool, deps.enqueue, key, { decision: 'abandoned', version: 5, ...by })

    expect(await ask('timestamp', second())).toMatchObject({ outcome: 'held', key, status: 'abandoned' })
  })

  test('a rejected send may be asked for again under its own key', async () => {
    await ask('timestamp')
    await sending(key, refused)

    expect(await ask('timestamp')).toMatchObject({ outcome: 'queued', key })
  })

  describe('a rejected key that is asked for again to another recipient', () => {
    const marks = async () =>
      (await pool.query('select recipient, dedupe_key, sent_at is not null as is_sent from email_marks order by recipient')).rows
    const next = () => `z.${to}`
    beforeEach(async () => {
      await ask('timestamp')
      await sending(key, refused)
    })

    test('takes its mark along: the first recipient is free, and is sent an email', async () => {
      expect(await ask('timestamp', key, next())).toMatchObject({ outcome: 'queued', key })
      await sending(key, accepted)
      const after = await marks()
      const body = sendRequestSchema.parse({ dedupe_key: second(), policy: 'timestamp', message: message(to) })
      const requested = await requestSend(pool, deps.enqueue, body, { requestedBy: 'token:test' })

      expect(after).toEqual([{ recipient: next(), dedupe_key: key, is_sent: true }])
      expect(requested).toMatchObject({ outcome: 'queued', send: { dedupe_key: second(), recipient: to } })
    })

    test('gives it up under another policy, too, but not to its own recipient', async () => {
      await ask('claim')
      const same = await marks()
      await sending(key, refused)
      await ask('claim', key, next())

      expect(same).toEqual([{ recipient: to, dedupe_key: key, is_sent: false }])
      expect(await marks()).toEqual([])
      expect(await ask('timestamp', second())).toMatchObject({ outcome: 'queued', key: second() })
    })

    test('changes nothing when that one’s mark is held, and when the request dies', async () => {
      await ask('timestamp', second(), next())
      const before = await marks()

      expect(await ask('timestamp', key, next())).toMatchObject({ outcome: 'held', key: second() })
      const free = {
        key,
        policy: 'timestamp',
        message: message(`y.${to}`),
        sourceEvent: undefined,
        requestedBy: 'token:test',
      } as const
      const dying = inTransaction(pool, async (tx) => {
        await triggerSend(tx, deps.enqueue, free)
        throw new Error('killed')
      })
      await expect(dying).rejects.toThrow('killed')

      expect(await marks()).toEqual(before)
      expect(await row('state', 'recipient')).toEqual({ state: 'rejected', recipient: to })
    })

    test('keeps the mark of what went out to the first one, who is not answered with an email to somebody else', async () => {
      await ask('timestamp')
      await sending(key, accepted)
      const by = { reason: 'r', actor: 'ada', via: 'api' }
      await decide(pool, deps.enqueue, key, { decision: 'reopen', version: Number((await row('version'))?.version), ...by })
      await decide(pool, deps.enqueue, key, { decision: 'retry', version: Number((await row('version'))?.version), ...by })
      await sending(key, refused)
      await ask('timestamp', key, next())
      const body = sendRequestSchema.parse({ dedupe_key: second(), policy: 'timestamp', message: message(to) })
      const requested = await requestSend(pool, deps.enqueue, body, { requestedBy: 'token:test' })

      expect(await marks()).toEqual([
        { recipient: to, dedupe_key: key, is_sent: true },
        { recipient: next(), dedupe_key: key, is_sent: false },
      ])
      expect(requested).toEqual({ outcome: 'conflict', status: 'queued', fields: ['to'] })
    })

    test('and another one that goes the opposite way at the same time: both go', async () => {
      for (let round = 0; round < 20; round += 1) {
        const [one, two] = [`r${round}:acme:user_1`, `r${round}:acme:user_2`]
        await ask('timestamp', one)
        await ask('timestamp', two, next())
        await sending(one, refused)
        await sending(two, refused)

        const asked = await Promise.all([ask('timestamp', one, next()), ask('timestamp', two)])

        const { rows } = await pool.query('select recipient, dedupe_key from email_marks where kind = $1 order by 1', [
          kindOf(one),
        ])
        expect([round, asked.map((it) => it.outcome)]).toEqual([round, ['queued', 'queued']])
        expect([round, rows]).toEqual([
          round,
          [
            { recipient: to, dedupe_key: two },
            { recipient: next(), dedupe_key: one },
          ],
        ])
      }
    })
  })

  test('a rejected send that its own job is to repeat keeps the mark', async () => {
    await ask('timestamp')
    await sending(key, notSent)

    expect(await ask('timestamp', second())).toMatchObject({ outcome: 'held', key, status: 'rejected' })
  })

  test('a rejected send asked for again, and another key, at the same time: one of them', async () => {
    for (let round = 0; round < 20; round += 1) {
      const [one, two] = [`r${round}:acme:user_1`, `r${round}:acme:user_2`]
      await ask('timestamp', one)
      await sending(one, refused)

      const asked = await Promise.all([
        ask('timestamp', one),
        ask('timestamp', two),
        ask('timestamp', one),
        ask('timestamp', two),
      ])

      expect([round, asked.filter((it) => it.outcome === 'queued').length]).toEqual([round, 1])
      const { rows } = await pool.query(`select from email_sends where dedupe_key = any ($1) and state = 'queued'`, [[one, two]])
      expect([round, rows.length]).toEqual([round, 1])
    }
  })

  test('another key that waits for a rejected one to be asked for again sees that it was', async () => {
    await ask('timestamp')
    await sending(key, refused)
    const first = await connect(database.url)
    await first.query('begin')
    await first.query(`update email_sends set state = 'queued', version = version + 1 where dedupe_key = $1`, [key])
    await first.query('update email_marks set dedupe_key = $1 where dedupe_key = $1', [key])
    const next = ask('timestamp', second())
    await untilWaiting(pool)

    await first.query('commit')
    await first.end()

    expect(await next).toMatchObject({ outcome: 'held', key, status: 'queued' })
  })

  test('recording an answer and asking again at the same time do not deadlock', async () => {
    await ask('timestamp')
    const recording = await connect(database.url)
    await recording.query('begin')
    await recording.query('select from email_sends where dedupe_key = $1 for no key update', [key])
    const again = ask('timestamp')
    await untilWaiting(pool)

    // What the record does in the end, by the trigger on the row.
    await recording.query(`set local deadlock_timeout = '10s'`)
    await recording.query(`set local statement_timeout = '5s'`)
    await recording.query('update email_marks set sent_at = now() where dedupe_key = $1', [key])
    await recording.query('commit')
    await recording.end()

    expect(await again).toMatchObject({ outcome: 'held', key })
  })

  test('a key that stands for a send to somebody else takes no mark', async () => {
    await insertSend(pool, key, { state: 'sent' })

    expect(await ask('timestamp')).toMatchObject({
      outcome: 'held',
      key,
      recipient: 'ada@example.com',
      differs: ['to', 'html_body', 'text_body'].sort(),
    })

    expect(await countOf('email_marks')).toBe(0)
    expect((await ask('timestamp', second())).outcome).toBe('queued')
  })
})

describe('prefer_duplicate', () => {
  const passReviewTime = () =>
    pool.query(`update send_attempts set ended_at = ended_at - interval '601 s' where ended_at is not null`)
  const resends = async () => (await service.sweep(300_000)).resends
  /** A send whose outcome is unknown for ten minutes. */
  async function unknownFor10Minutes() {
    await ask('prefer_duplicate')
    await finishJobs(pool, 'key', key)
    await sending(key, unknown)
    await passReviewTime()
  }

  test('is sent again after ten minutes, and not before', async () => {
    await ask('prefer_duplicate')
    await sending(key, unknown)
    await finishJobs(pool, 'key', key)
    const early = await resends()
    await passReviewTime()

    expect([early, await resends(), await resends()]).toEqual([0, 1, 0])

    expect(await row('state', 'version')).toEqual({ state: 'queued', version: 5 })
    expect(await jobsOf(pool, key)).toHaveLength(1)
    await sending(key, accepted)
    expect(await row('state')).toEqual({ state: 'sent' })
    expect(await attemptsOf(pool, key)).toMatchObject([
      { number: 1, outcome: 'unknown' },
      { number: 2, outcome: 'accepted' },
    ])
  })

  test('five sweeps at once resend it once', async () => {
    await unknownFor10Minutes()

    const found = await Promise.all(Array.from({ length: 5 }, resends))

    expect(found.reduce((sum, it) => sum + it, 0)).toBe(1)
    expect(await jobsOf(pool, key)).toHaveLength(1)
  })

  test('is called three times at most, and then waits for a person', async () => {
    await unknownFor10Minutes()
    const found: number[] = []
    for (let count = 0; count < 4; count += 1) {
      found.push(await resends())
      await sending(key, unknown)
      await passReviewTime()
    }

    expect(found).toEqual([1, 1, 0, 0])
    expect(await attemptsOf(pool, key)).toHaveLength(3)
    expect(await row('status')).toEqual({ status: 'needs_review' })
  })

  test('a sweep that dies before its commit resends nothing, and the next one does', async () => {
    await unknownFor10Minutes()
    const dying = inTransaction(pool, async (tx) => {
      await resendPreferred(tx, deps.enqueue, 600_000)
      throw new Error('killed')
    })
    await expect(dying).rejects.toThrow('killed')
    const left = [await row('state'), await jobsOf(pool, key)]

    expect([left, await resends()]).toEqual([[{ state: 'needs_review' }, []], 1])
  })

  test('is not sent again while sending is held', async () => {
    await unknownFor10Minutes()
    await pool.query(`update sending_control set held_reason = 'x', held_at = now(), held_by = 'person:ada'`)
    const held = await resends()
    await resetControl(pool)

    expect([held, await resends()]).toEqual([0, 1])
  })

  test.each(['sent', 'abandoned'] as const)(
    'is not sent again after a person has said %s, nor when that is reopened',
    async (decision) => {
      await unknownFor10Minutes()
      const version = Number((await row('version'))?.version)
      await decide(pool, deps.enqueue, key, { decision, version, reason: 'r', actor: 'ada', via: 'api' })
      const decided = await resends()
      await decide(pool, deps.enqueue, key, { decision: 'reopen', version: version + 1, reason: 'r', actor: 'ada', via: 'api' })

      expect([decided, await resends()]).toEqual([0, 0])
      expect(await row('status')).toEqual({ status: 'needs_review' })
    },
  )

  test('one that was sent and is reopened is not sent again', async () => {
    await ask('prefer_duplicate')
    await sending(key, accepted)
    await passReviewTime()
    await decide(pool, deps.enqueue, key, { decision: 'reopen', version: 4, reason: 'r', actor: 'ada', via: 'api' })

    expect(await resends()).toBe(0)
  })

  test('one that somebody only asks to have sent again, where that takes two people, is sent again all the same', async () => {
    await pool.query(`insert into people (name, role) values ('ada', 'operator')`)
    await unknownFor10Minutes()
    const retry = { decision: 'retry', version: 4, reason: 'r', actor: 'ada', via: 'cli' } as const
    expect(await decide(pool, deps.enqueue, key, retry, true)).toEqual({ outcome: 'asked' })

    expect(await resends()).toBe(1)
  })

  test('a person’s own retry is the last one', async () => {
    await unknownFor10Minutes()
    await decide(pool, deps.enqueue, key, { decision: 'retry', version: 4, reason: 'r', actor: 'ada', via: 'api' })
    await sending(key, unknown)
    await passReviewTime()

    expect(await resends()).toBe(0)
    expect(await attemptsOf(pool, key)).toHaveLength(2)
  })

  test('a delivery of the first call makes the waiting resend needless', async () => {
    await unknownFor10Minutes()
    await resends()
    const event = await insertEvent(pool, 'e', { source: 'inboxili' })

    await inTransaction(pool, (tx) =>
      settle(tx, { event, kind: 'delivered', messageId: 'm', recipient: to, occurredAt: new Date(), hasOwnTime: true }, true),
    )

    expect(await row('status', 'message_id')).toEqual({ status: 'delivered', message_id: 'm' })
    expect(await sending(key, accepted)).toBe('nothing to do')
  })
})
