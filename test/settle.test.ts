import fc from 'fast-check'
import request from 'supertest'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import type { CallOutcome } from '../src/sends/outcome.ts'
import { type Called, type Recorded, recordOutcome } from '../src/sends/record.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { type DeliveryReport, settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent } from './support/ops-rows.ts'
import {
  attemptsOf,
  callsTo,
  insertCall,
  patientDatabase,
  queueSend,
  resetControl,
  sendRow,
  untilWaiting,
} from './support/sends.ts'
import { hexHmac, INBOXILI_SECRET, testService } from './support/service.ts'

const database = await patientDatabase()
const { pool } = database
const service = await testService(database, { sources: {} })
const { deps, sandbox } = service

let number = 0
let key = ''
let id = ''

afterEach(() => resetControl(pool))

beforeEach(() => {
  number += 1
  key = `k${number}`
  id = `m${number}`
  service.clock.now = Date.now()
})

const row = (...fields: string[]) => sendRow(pool, key, ...fields)
const accepted = (messageId: string): CallOutcome => ({ kind: 'accepted', messageId })
const minute = (count: number) => new Date(Date.UTC(2026, 10, 29, 12, count))

type Report = Omit<DeliveryReport, 'event' | 'hasOwnTime'>
let events = 0

/** Settles with a delivery event of its own. */
async function report(fields: Report): Promise<void> {
  events += 1
  const event = await insertEvent(pool, `delivery-${events}`, { source: 'inboxili' })
  await inTransaction(pool, (tx) => settle(tx, { event, hasOwnTime: true, ...fields }, true))
}

const record = (claim: Called, outcome: CallOutcome) =>
  inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, claim, outcome))

/** Posts a signed delivery event and processes it, as Inboxili and the worker would. */
async function post(payload: unknown): Promise<number> {
  const body = JSON.stringify(payload)
  const answer = await request(service.app)
    .post('/webhooks/inboxili')
    .set('content-type', 'application/json')
    .set('x-inboxili-signature', hexHmac(body, INBOXILI_SECRET))
    .send(body)
  expect(await service.drain()).toEqual([])
  return answer.status
}

/** A send that Inboxili has accepted under this test's message id. */
async function sent(): Promise<void> {
  sandbox.arm({ kind: 'ok', messageId: id })
  await queueSend(service, key)
  await sendOnce(deps, key)
}

const facts = () => row('status', 'delivered_at', 'bounced_at', 'bounce_kind', 'complained_at')
const none = { delivered_at: null, bounced_at: null, bounce_kind: null, complained_at: null }
const ledgerLength = () => sandbox.ledger.length

describe('by the message id', () => {
  test('C-20 a repeat changes nothing, now or 400 days on, and a bounced email is never delivered again', async () => {
    await sent()
    const calls = ledgerLength()
    const answers = [await post({ event: 'delivered', message_id: id })]
    const delivered = await row('*')
    answers.push(await post({ event: 'delivered', message_id: id }))
    service.clock.now += 400 * 86_400_000
    answers.push(await post({ event: 'delivered', message_id: id }))
    const repeated = await row('*')
    await post({ event: 'bounced', message_id: id, type: 'hard' })
    answers.push(await post({ event: 'delivered', message_id: id }))

    expect(answers).toEqual([200, 200, 200, 200])
    expect(delivered).toMatchObject({ status: 'delivered', state: 'sent' })
    expect(repeated).toEqual(delivered)
    expect(await row('status', 'delivered_at')).toEqual({ status: 'bounced', delivered_at: delivered?.delivered_at })
    expect(ledgerLength()).toBe(calls)
  })

  test('C-42 delivered three times is one report, and the first time stays', async () => {
    await sent()
    for (let count = 0; count < 3; count += 1) {
      expect(await post({ event: 'delivered', message_id: id, timestamp: '2026-11-29T12:00:00Z' })).toBe(200)
    }

    expect(await facts()).toEqual({ ...none, status: 'delivered', delivered_at: minute(0) })
    const { rows } = await pool.query('select kind from delivery_reports where message_id = $1', [id])
    expect(rows).toEqual([{ kind: 'delivered' }])
  })

  test('C-42 of several times the earliest stays, whichever comes first', async () => {
    await sent()
    for (const count of [3, 1, 2]) await report({ kind: 'delivered', messageId: id, occurredAt: minute(count) })

    expect(await facts()).toEqual({ ...none, status: 'delivered', delivered_at: minute(1) })
  })

  // Both orders of arrival, with either event time the earlier one.
  test.each([
    ['delivered', 1, 'bounced', 2],
    ['delivered', 2, 'bounced', 1],
    ['bounced', 1, 'delivered', 2],
    ['bounced', 2, 'delivered', 1],
  ])('C-41 %s (minute %i), then %s (minute %i): bounced', async (first, firstAt, second, secondAt) => {
    await sent()
    for (const [kind, at] of [
      [first, firstAt],
      [second, secondAt],
    ] as const)
      await report({ kind, messageId: id, occurredAt: minute(at), ...(kind === 'bounced' && { bounceKind: 'hard' }) })

    const at = { [first]: minute(firstAt), [second]: minute(secondAt) }
    expect(await facts()).toEqual({
      status: 'bounced',
      delivered_at: at.delivered,
      bounced_at: at.bounced,
      bounce_kind: 'hard',
      complained_at: null,
    })
    const { rows } = await pool.query('select kind, occurred_at from delivery_reports where message_id = $1 order by event', [id])
    expect(rows).toEqual([
      { kind: first, occurred_at: minute(firstAt) },
      { kind: second, occurred_at: minute(secondAt) },
    ])
  })

  test.each(['soft', 'transient', 'deferred'])('C-62 a bounce labelled %s is not final', async (type) => {
    await sent()
    await post({ event: 'bounced', message_id: id, type })
    const bounced = await row('status', 'bounce_kind')

    await post({ event: 'delivered', message_id: id })

    expect(bounced).toEqual({ status: 'sent', bounce_kind: 'soft' })
    expect(await row('status', 'bounce_kind')).toEqual({ status: 'delivered', bounce_kind: 'soft' })
  })

  test.each([
    [{ status: '4.2.2' }, 'sent', 'soft'],
    [{ type: 'transient', smtp_status: '5.1.1' }, 'bounced', 'hard'],
    [{}, 'bounced', 'unknown'],
  ])('C-62 a bounce that says %j is %s (%s), and sends nothing', async (fields, status, kind) => {
    await sent()
    const calls = ledgerLength()

    await post({ event: 'bounced', message_id: id, ...fields })

    expect(await row('status', 'bounce_kind')).toEqual({ status, bounce_kind: kind })
    expect(await sendOnce(deps, key)).toBe('nothing to do')
    expect(ledgerLength()).toBe(calls)
  })

  test('C-62 a stronger kind of bounce replaces a weaker one with its time, a weaker one does nothing', async () => {
    await sent()
    const kinds: (string | undefined)[] = []
    for (const [bounceKind, count] of [
      ['soft', 5],
      ['soft', 3],
      ['unknown', 4],
      ['soft', 1],
      ['hard', 9],
      ['unknown', 2],
      ['hard', 8],
    ] as const) {
      await report({ kind: 'bounced', messageId: id, occurredAt: minute(count), bounceKind })
      const now = await row('bounce_kind', 'extract(minute from bounced_at)::int as minute')
      kinds.push(`${now?.bounce_kind} ${now?.minute}`)
    }

    expect(kinds).toEqual(['soft 5', 'soft 3', 'unknown 4', 'unknown 4', 'hard 9', 'hard 9', 'hard 8'])
  })

  test('a complaint is a fact of its own and no delivery', async () => {
    await sent()

    await report({ kind: 'complained', messageId: id, occurredAt: minute(7) })
    await report({ kind: 'opened', messageId: id, occurredAt: minute(8) })

    expect(await facts()).toEqual({ ...none, status: 'sent', complained_at: minute(7) })
    expect(await row('settled_at')).toEqual({ settled_at: null })
  })

  test('C-63 I9 an unknown, absent or odd message id is stored and changes no send', async () => {
    await sent()
    const before = await pool.query('select * from email_sends order by dedupe_key')

    const answers = [
      await post({ event: 'delivered', message_id: 'nope', to: `${key}@example.com` }),
      await post({ event: 'delivered', to: `${key}@example.com` }),
      await post({ event: 'delivered', message_id: 42, to: `${key}@example.com` }),
    ]

    expect(answers).toEqual([200, 200, 200])
    expect((await pool.query('select * from email_sends order by dedupe_key')).rows).toEqual(before.rows)
    const { rows } = await pool.query(
      'select message_id, parked from delivery_reports where recipient = $1 order by message_id',
      [`${key}@example.com`],
    )
    expect(rows).toEqual([
      { message_id: 'nope', parked: 'foreign' },
      { message_id: null, parked: 'no message id' },
      { message_id: null, parked: 'no message id' },
    ])
  })

  test('C-55 reports of other messages do not touch a send without a message id', async () => {
    sandbox.arm({ kind: 'null_id' })
    await queueSend(service, key)
    await sendOnce(deps, key)
    const before = await row('*')

    await post({ event: 'delivered', message_id: `${id}-foreign` })
    await post({ event: 'delivered', message_id: `${id}-other`, to: `other-${key}@example.com` })
    await post({ event: 'bounced', to: `${key}@example.com` })

    expect(before).toMatchObject({ state: 'sent', message_id: null })
    expect(await row('*')).toEqual(before)
  })

  test('the same event twice, as by a job that runs again, is one report', async () => {
    await sent()
    const event = await insertEvent(pool, `again-${key}`, { source: 'inboxili' })
    const again = () =>
      inTransaction(pool, (tx) =>
        settle(tx, { event, kind: 'delivered', messageId: id, occurredAt: minute(1), hasOwnTime: true }, true),
      )
    await again()
    const before = await row('*')

    await Promise.all([again(), again(), again()])

    expect(await row('*')).toEqual(before)
  })

  test('a settlement that fails before its commit leaves nothing, and is made up for', async () => {
    const claim = await insertCall(pool, key)
    await record(claim, { kind: 'unknown', reason: 'unknown_status', messageId: id, error: 'unknown status' })
    const event = await insertEvent(pool, `crash-${key}`, { source: 'inboxili' })
    const settling = (fails: boolean) =>
      inTransaction(pool, async (tx) => {
        await settle(tx, { event, kind: 'delivered', messageId: id, occurredAt: minute(1), hasOwnTime: true }, true)
        if (fails) throw new Error('killed')
      })
    await expect(settling(true)).rejects.toThrow('killed')
    const crashed = await row('status', 'delivered_at')

    await settling(false)

    expect(crashed).toEqual({ status: 'needs_review', delivered_at: null })
    expect(await row('status', 'delivered_at')).toEqual({ status: 'delivered', delivered_at: minute(1) })
  })
})

describe('an unknown outcome', () => {
  const odd = (): CallOutcome => ({ kind: 'unknown', reason: 'unknown_status', messageId: id, error: 'unknown status "weird"' })

  test.each([
    ['delivered', 'delivered'],
    ['bounced', 'bounced'],
  ])('with a message id is closed by its %s event, with evidence', async (kind, status) => {
    sandbox.arm({ kind: 'odd_status', messageId: id })
    await queueSend(service, key)
    await sendOnce(deps, key)
    const before = await row('status', 'message_id')

    await post({ event: kind, message_id: id, timestamp: '2026-11-29T12:00:00Z' })

    expect(before).toEqual({ status: 'needs_review', message_id: id })
    expect(await row('status', 'needs_review', 'completed_at is not null as is_complete')).toEqual({
      status,
      needs_review: false,
      is_complete: true,
    })
    const { rows } = await pool.query(
      `select grade, rule_version, from_state, to_state, event_at, settlements.actor, candidates = jsonb_build_array(attempt) as is_sole_candidate,
         sends.settled_by = 'event:' || settlements.event as is_named
       from settlements join email_sends sends using (dedupe_key) where dedupe_key = $1`,
      [key],
    )
    expect(rows).toEqual([
      {
        grade: 'A',
        rule_version: 2,
        from_state: 'needs_review',
        to_state: 'sent',
        event_at: minute(0),
        actor: 'event',
        is_sole_candidate: true,
        is_named: true,
      },
    ])
    expect(callsTo(service, `${key}@example.com`)).toBe(1)
    expect(await sendOnce(deps, key)).toBe('nothing to do')
  })

  test('is closed once, however many of its events come at once', async () => {
    const claim = await insertCall(pool, key)
    await record(claim, odd())

    await Promise.all(
      ['delivered', 'bounced', 'delivered', 'bounced', 'delivered'].map((kind, index) =>
        report({ kind, messageId: id, occurredAt: minute(index) }),
      ),
    )

    const { rows } = await pool.query('select from_state from settlements where dedupe_key = $1', [key])
    expect(rows).toEqual([{ from_state: 'needs_review' }])
    expect(await facts()).toEqual({
      status: 'bounced',
      delivered_at: minute(0),
      bounced_at: minute(1),
      bounce_kind: 'unknown',
      complained_at: null,
    })
  })

  test('is not closed by a complaint or an opening', async () => {
    const claim = await insertCall(pool, key)
    await record(claim, odd())

    await report({ kind: 'complained', messageId: id, occurredAt: minute(1) })
    await report({ kind: 'opened', messageId: id, occurredAt: minute(2) })

    expect(await row('state', 'complained_at')).toEqual({ state: 'needs_review', complained_at: minute(1) })
  })

  test('I7 that a person has closed stays closed, and keeps the fact', async () => {
    const claim = await insertCall(pool, key)
    await record(claim, odd())
    await pool.query(`update email_sends set state = 'abandoned', version = version + 1 where dedupe_key = $1`, [key])

    await report({ kind: 'delivered', messageId: id, occurredAt: minute(1) })

    expect(await row('state', 'status', 'delivered_at')).toEqual({
      state: 'abandoned',
      status: 'abandoned',
      delivered_at: minute(1),
    })
    expect((await pool.query('select from settlements where dedupe_key = $1', [key])).rowCount).toBe(0)
  })

  test('a resend that still waits proves needless when the earlier attempt is delivered', async () => {
    const claim = await insertCall(pool, key)
    await record(claim, odd())
    await pool.query(`update email_sends set state = 'queued', version = version + 1 where dedupe_key = $1`, [key])

    await report({ kind: 'delivered', messageId: id, occurredAt: minute(1) })

    expect(await row('status')).toEqual({ status: 'delivered' })
    expect(await sendOnce(deps, key)).toBe('nothing to do')
    const { rows } = await pool.query('select from_state, to_state from settlements where dedupe_key = $1', [key])
    expect(rows).toEqual([{ from_state: 'queued', to_state: 'sent' }])
  })

  test('a resend whose call is under way takes the fact of the earlier attempt, and its own answer', async () => {
    const first = await insertCall(pool, key)
    await record(first, odd())
    await pool.query(`update email_sends set state = 'queued', version = version + 1 where dedupe_key = $1`, [key])
    const second = await insertAttempt(pool, key, { number: 2, outcome: 'in_flight' })
    await pool.query(`update email_sends set state = 'claimed', claim_token = $2 where dedupe_key = $1`, [key, second])
    await pool.query(`update email_sends set state = 'sending' where dedupe_key = $1`, [key])

    await report({ kind: 'delivered', messageId: id, occurredAt: minute(1) })
    const during = await row('status', 'delivered_at')
    await record({ ...first, attempt: second }, accepted(`${id}-second`))

    expect(during).toEqual({ status: 'sending', delivered_at: minute(1) })
    // The row names the message of the call that it was sent by last.
    expect(await row('status', 'message_id')).toEqual({ status: 'delivered', message_id: `${id}-second` })
    expect((await attemptsOf(pool, key)).map((it) => it.message_id)).toEqual([id, `${id}-second`])
  })
})

describe('C-40 an event and the recording of its send', () => {
  test('the event first: it waits parked, and the recording takes it up', async () => {
    const claim = await insertCall(pool, key)
    await report({ kind: 'delivered', messageId: id, occurredAt: minute(1) })
    const before = await row('status', 'delivered_at')

    await record(claim, accepted(id))

    expect(before).toEqual({ status: 'sending', delivered_at: null })
    expect(await row('status', 'delivered_at', 'message_id')).toEqual({
      status: 'delivered',
      delivered_at: minute(1),
      message_id: id,
    })
  })

  test('the event arrives by HTTP while the call is held', async () => {
    await queueSend(service, key)
    let during: unknown
    const call = async () => {
      expect(await post({ event: 'delivered', message_id: id })).toBe(200)
      during = await row('status')
      return accepted(id)
    }

    await sendOnce({ ...deps, call }, key)

    expect(during).toEqual({ status: 'sending' })
    expect(await row('status', 'settled_at is not null as is_settled')).toEqual({ status: 'delivered', is_settled: true })
  })

  test('at the same time, the event a little ahead', async () => {
    const claim = await insertCall(pool, key)
    const event = await insertEvent(pool, `race-${key}`, { source: 'inboxili' })
    let recording: Promise<Recorded> | undefined
    await inTransaction(pool, async (tx) => {
      await settle(tx, { event, kind: 'delivered', messageId: id, occurredAt: minute(1), hasOwnTime: true }, true)
      recording = record(claim, accepted(id))
      await untilWaiting(pool)
    })

    expect(await recording).toBe('moved')
    expect(await row('status')).toEqual({ status: 'delivered' })
  })

  test('at the same time, the recording a little ahead', async () => {
    const claim = await insertCall(pool, key)
    let settling: Promise<void> | undefined
    await inTransaction(pool, async (tx) => {
      await recordOutcome(tx, deps.enqueue, claim, accepted(id))
      settling = report({ kind: 'delivered', messageId: id, occurredAt: minute(1) })
      await untilWaiting(pool)
    })
    await settling

    expect(await row('status')).toEqual({ status: 'delivered' })
  })

  test('at the same time, a hundred and twenty times', async () => {
    for (let round = 0; round < 15; round += 1) {
      const claims = await Promise.all(Array.from({ length: 8 }, (_, index) => insertCall(pool, `${key}-${round}-${index}`)))
      await Promise.all(
        claims.flatMap((claim, index) => {
          const pair = [
            () => record(claim, accepted(claim.key)),
            () => report({ kind: index < 4 ? 'bounced' : 'delivered', messageId: claim.key, occurredAt: minute(1) }),
          ]
          return (index % 2 === 0 ? pair : pair.reverse()).map((run) => run())
        }),
      )
    }

    const { rows } = await pool.query(
      `select status, count(*)::int from email_sends where dedupe_key like $1 group by status order by status`,
      [`${key}-%`],
    )
    expect(rows).toEqual([
      { status: 'bounced', count: 60 },
      { status: 'delivered', count: 60 },
    ])
  })
})

test('I11 the same reports in any order, repeated and around the recording, make the same facts', async () => {
  const strength = ['soft', 'unknown', 'hard']
  const anyReport = fc.record({
    kind: fc.constantFrom('delivered', 'bounced', 'complained', 'opened'),
    minute: fc.integer({ min: 0, max: 5 }),
    bounceKind: fc.constantFrom('soft', 'unknown', 'hard'),
  })
  const outcomes = fc.constantFrom<'accepted' | 'unknown'>('accepted', 'unknown')
  const earliest = (minutes: number[]) => (minutes.length === 0 ? null : minute(Math.min(...minutes)))
  let runs = 0

  await fc.assert(
    fc.asyncProperty(
      outcomes,
      fc.array(anyReport, { maxLength: 5 }).chain((reports) =>
        fc.tuple(
          fc.constant(reports),
          fc.shuffledSubarray([...reports, ...reports, 'record' as const], {
            minLength: reports.length * 2 + 1,
            maxLength: reports.length * 2 + 1,
          }),
        ),
      ),
      async (kind, [reports, steps]) => {
        runs += 1
        const run = `${key}-${runs}`
        const claim = await insertCall(pool, run)
        for (const step of steps) {
          if (step === 'record')
            await record(
              claim,
              kind === 'accepted' ? accepted(run) : { kind, reason: 'unknown_status', messageId: run, error: 'unknown status' },
            )
          else
            await report({
              kind: step.kind,
              messageId: run,
              occurredAt: minute(step.minute),
              ...(step.kind === 'bounced' && { bounceKind: step.bounceKind as 'soft' }),
            })
        }

        const at = (what: string) => reports.filter((it) => it.kind === what).map((it) => it.minute)
        const bounces = reports.filter((it) => it.kind === 'bounced')
        const strongest = strength.findLast((it) => bounces.some((bounce) => bounce.bounceKind === it)) ?? null
        const proofs = at('delivered').length + bounces.length
        const status =
          kind === 'unknown' && proofs === 0
            ? 'needs_review'
            : strongest !== null && strongest !== 'soft'
              ? 'bounced'
              : at('delivered').length > 0
                ? 'delivered'
                : 'sent'
        expect(
          await sendRow(pool, run, 'status', 'delivered_at', 'bounced_at', 'bounce_kind', 'complained_at', 'message_id'),
        ).toEqual({
          status,
          delivered_at: earliest(at('delivered')),
          bounced_at: earliest(bounces.filter((it) => it.bounceKind === strongest).map((it) => it.minute)),
          bounce_kind: strongest,
          complained_at: earliest(at('complained')),
          message_id: run,
        })
        const { rows } = await pool.query(
          `select count(*)::int as settlements, (select count(*)::int from delivery_reports where message_id = $1 and attempt is null) as parked
           from settlements where dedupe_key = $1`,
          [run],
        )
        expect(rows).toEqual([{ settlements: kind === 'unknown' && proofs > 0 ? 1 : 0, parked: 0 }])
      },
    ),
    { numRuns: 60 },
  )
})

test('the evidence of settlements only grows', async () => {
  const claim = await insertCall(pool, key)
  await record(claim, { kind: 'unknown', reason: 'unknown_status', messageId: id, error: 'unknown status' })
  await report({ kind: 'delivered', messageId: id, occurredAt: minute(1) })

  await expect(pool.query('update settlements set grade = $1', ['P'])).rejects.toThrow('settlements only grows')
  await expect(pool.query('delete from settlements')).rejects.toThrow('settlements only grows')
})
