import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { checkInvariants } from '../src/ops/invariants.ts'
import { type Decision, decide } from '../src/sends/decide.ts'
import type { CallOutcome } from '../src/sends/outcome.ts'
import { recordOutcome } from '../src/sends/record.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { type DeliveryReport, rematch, settle } from '../src/sends/settle.ts'
import { insertEvent } from './support/ops-rows.ts'
import { jobsOf, message, patientDatabase, queueSend, resetControl, sendRow } from './support/sends.ts'
import { testService } from './support/service.ts'

const database = await patientDatabase()
const { pool } = database
const service = await testService(database, { sources: {} })
const { deps } = service

let number = 0
let key = ''
let to = ''
let reports = 0
/** Calls that have begun. */
let calls = 0

beforeEach(() => {
  number += 1
  key = `k${number}`
  to = `k${number}@example.com`
  calls = 0
})

afterEach(async () => {
  await pool.query('truncate email_sends, send_attempts, follow_ups, delivery_reports, settlements, webhook_events cascade')
  await pool.query(`delete from pgboss.job`)
  await resetControl(pool)
})

const unknown: CallOutcome = { kind: 'unknown', reason: 'timeout', messageId: 'm1', error: 'no answer in 15 s' }
const nameless: CallOutcome = { kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' }
const unreached: CallOutcome = { kind: 'not_sent', code: 'ECONNREFUSED', error: 'refused' }
const limited: CallOutcome = { kind: 'rate_limited', code: 'rate_limited', message: '', error: '429' }
const refused: CallOutcome = { kind: 'refused', httpStatus: 422, code: 'c', message: 'm', error: '422 c: m' }
const accepted: CallOutcome = { kind: 'accepted', messageId: 'm1' }

const row = (...fields: string[]) => sendRow(pool, key, ...fields)

/** Sends what waits under the key, if anything may; `during` happens while the call is open. */
async function send(outcome: CallOutcome, during: () => Promise<unknown> = async () => undefined): Promise<void> {
  await pool.query('update email_sends set send_after = null where state = $1', ['queued'])
  await pool.query('update email_sends set send_after = now() where send_after is not null')
  const call = async () => {
    calls += 1
    await during()
    return outcome
  }
  await sendOnce({ ...deps, call }, key)
}

async function report(kind = 'delivered', fields: Partial<DeliveryReport> = {}): Promise<void> {
  reports += 1
  const event = await insertEvent(pool, `report-${reports}`, { source: 'inboxili' })
  const report = { event, kind, messageId: 'm1', recipient: to, occurredAt: new Date(), hasOwnTime: true, ...fields }
  const matchKey = await inTransaction(pool, (tx) => settle(tx, report as DeliveryReport, true))
  if (matchKey !== null) await rematch(pool, matchKey, true)
}

async function person(decision: Decision['decision']): Promise<void> {
  const { version } = (await row('version')) as { version: number }
  const request = { decision, version, reason: 'looked', actor: 'mia', via: 'test' } as Parameters<typeof decide>[3]
  expect((await decide(pool, deps.enqueue, key, request)).outcome).toBe('decided')
}

/** A first call ended so, and a person has it sent again. */
async function retried(first: CallOutcome): Promise<string> {
  await queueSend(service, key, message(to))
  await send(first)
  const { claim_token } = (await row('claim_token')) as { claim_token: string }
  await person('retry')
  return claim_token
}

/** Nothing is sent by itself any more, nor by a trigger, and the rows hold together. */
async function isOver(expected: object): Promise<void> {
  const before = calls
  await send(accepted)
  expect((await queueSend(service, key, message(to))).outcome).toBe('held')
  await send(accepted)
  expect(calls - before).toBe(0)
  expect(await row('status', 'state', 'message_id', 'send_after')).toEqual({
    state: 'sent',
    message_id: 'm1',
    send_after: null,
    ...expected,
  })
  expect(await checkInvariants(pool, 300_000)).toEqual([])
}

describe('the first call proves delivered', () => {
  test.each([
    ['by its message ID', unknown],
    ['by recipient', nameless],
  ])('%s while its resend waits to be repeated: it is not', async (_how, first) => {
    await retried(first)
    await send(unreached)
    expect(await row('state', 'send_after is not null as is_planned')).toEqual({ state: 'rejected', is_planned: true })

    await report()

    await isOver({ status: 'delivered' })
  })

  test.each([
    ['429', limited, 'queued'],
    ['422', refused, 'rejected'],
    ['a connection that failed', unreached, 'rejected'],
    ['an unknown outcome', nameless, 'needs_review'],
  ])('during its resend, which ends with %s: nothing is repeated, and the key is held', async (_how, second, from_state) => {
    await retried(unknown)

    const jobs = await jobsOf(pool, key)

    await send(second, () => report())

    expect(await jobsOf(pool, key)).toHaveLength(jobs.length)
    await isOver({ status: 'delivered' })
    const { rows } = await pool.query('select grade, from_state, to_state from settlements order by id')
    expect(rows).toEqual([{ grade: 'A', from_state, to_state: 'sent' }])
  })

  test('by recipient during its resend, which is refused: it is matched afterwards, and the key is held', async () => {
    await retried(nameless)

    await send(refused, () => report())

    await isOver({ status: 'delivered' })
  })
})

describe('the first call is answered late', () => {
  test.each([
    ['while its resend is refused', refused],
    ['while its resend waits to be repeated', unreached],
  ])('%s: the key is held', async (_when, second) => {
    const attempt = await retried(nameless)
    await send(second)

    const late = { key, attempt, matchKey: to }
    expect(await inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, late, accepted))).toBe('moved')

    await isOver({ status: 'sent' })
  })

  test('during its resend, which is refused then: the key is held', async () => {
    const attempt = await retried(nameless)
    const late = { key, attempt, matchKey: to }

    await send(refused, () => inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, late, accepted)))

    await isOver({ status: 'sent' })
  })
})

test('an email to another recipient that took the free key is not delivered by the first one', async () => {
  await retried(nameless)
  await send(refused)
  await queueSend(service, key, message('new@example.com'))

  await report()

  expect(await row('status', 'recipient', 'message_id', 'delivered_at')).toEqual({
    status: 'queued',
    recipient: 'new@example.com',
    message_id: null,
    delivered_at: null,
  })
  await send({ kind: 'accepted', messageId: 'm2' })
  expect(await row('status', 'message_id')).toEqual({ status: 'sent', message_id: 'm2' })
})

test('an event that was parked when the resend was asked for, and finds its attempt only then, drops it', async () => {
  await queueSend(service, key, message(to))
  await send(nameless)
  await pool.query(`update sending_control set matching = 'suggest'`)
  await report()
  await person('retry')

  await pool.query(`update sending_control set matching = 'auto'`)
  await rematch(pool, to, true)

  await isOver({ status: 'delivered' })
})

describe('a worker is gone during the resend of an email that is proven meanwhile', () => {
  const die = () => Promise.reject(new Error('killed'))

  test('during its call: it needs no review', async () => {
    await retried(unknown)
    await expect(send(accepted, () => report().then(die))).rejects.toThrow('killed')
    await pool.query(`update email_sends set sending_at = now() - interval '301 s'`)

    await service.sweep(300_000)

    await isOver({ status: 'delivered' })
  })

  test('before its call: it is not called', async () => {
    await retried(unknown)
    const { rows } = await pool.query(
      `update email_sends set state = 'claimed', claim_token = gen_random_uuid(), claimed_at = now() - interval '301 s' where dedupe_key = $1 returning claim_token`,
      [key],
    )
    await pool.query(`insert into send_attempts (id, dedupe_key, number, recipient, match_key) values ($1, $2, 2, $3, $3)`, [
      rows[0].claim_token,
      key,
      to,
    ])
    await report()

    await service.sweep(300_000)

    await isOver({ status: 'delivered' })
  })
})

test('an email to another recipient takes over nothing of what came of the one before it', async () => {
  await queueSend(service, key, message(to))
  await send(accepted)
  await report('bounced', { bounceKind: 'hard' })
  await report('complained')
  await person('reopen')
  await person('retry')
  await send(refused)

  await queueSend(service, key, message('new@example.com'))
  await send({ kind: 'accepted', messageId: 'm2' })

  expect(await row('status', 'message_id', 'bounced_at', 'complained_at')).toEqual({
    status: 'sent',
    message_id: 'm2',
    bounced_at: null,
    complained_at: null,
  })
})

test.each([
  ['429', limited, 'queued'],
  ['an unknown outcome', nameless, 'needs_review'],
])('a bounce that a person had read does not close the resend, which ends with %s', async (_how, second, state) => {
  await queueSend(service, key, message(to))
  await send(accepted)
  await report('bounced', { bounceKind: 'hard' })
  await person('reopen')
  await person('retry')

  await send(second, () => report('bounced', { bounceKind: 'hard', occurredAt: new Date(Date.now() + 1_000) }))

  expect(await row('state')).toEqual({ state })
})

test('a bounced email that a person sends again is sent, whatever more is said of the old one', async () => {
  await queueSend(service, key, message(to))
  await send(accepted)
  await report('bounced', { bounceKind: 'hard' })
  await person('reopen')
  await person('retry')

  await report('bounced', { bounceKind: 'hard', occurredAt: new Date(Date.now() + 1_000) })
  expect(await row('state')).toEqual({ state: 'queued' })
  await send({ kind: 'accepted', messageId: 'm2' })

  expect(calls).toBe(2)
})
