import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { excludeForm } from '../src/sends/address.ts'
import { lockFor } from '../src/sends/join.ts'
import type { CallOutcome } from '../src/sends/outcome.ts'
import { type Called, recordOutcome } from '../src/sends/record.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { type DeliveryReport, rematch, settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import {
  attemptsOf,
  insertCall,
  message,
  patientDatabase,
  queueSend,
  resetControl,
  sendRow,
  untilWaiting,
} from './support/sends.ts'
import { testService } from './support/service.ts'

const database = await patientDatabase()
const { pool } = database
const service = await testService(database, { sources: {} })
const { deps } = service

let number = 0
let key = ''
let to = ''

beforeEach(() => {
  number += 1
  key = `k${number}`
  to = `k${number}@example.com`
})

// A sweep looks at all rows, so no test leaves any for the next.
afterEach(async () => {
  await pool.query('truncate email_sends, send_attempts, follow_ups, delivery_reports, settlements, webhook_events cascade')
  await resetControl(pool)
})

const row = (...fields: string[]) => sendRow(pool, key, ...fields)
const unknown: CallOutcome = { kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' }
const accepted = (messageId: string | null): CallOutcome => ({ kind: 'accepted', messageId })
const refused: CallOutcome = { kind: 'refused', httpStatus: 422, code: 'c', message: 'm', error: '422 c: m' }
const record = (claim: Called, outcome: CallOutcome) =>
  inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, claim, outcome))
const ago = (seconds: number) => new Date(Date.now() - seconds * 1_000)

/** A send to this test's recipient whose call ended so. */
async function called(name: string, outcome: CallOutcome, address = to): Promise<void> {
  await queueSend(service, name, message(address))
  await sendOnce({ ...deps, call: async () => outcome }, name)
}

/** A call to this test's recipient that is under way. */
async function calling(name: string): Promise<Called> {
  const claim = await insertCall(pool, name)
  await pool.query('update send_attempts set recipient = $2, match_key = $2 where id = $1', [claim.attempt, to])
  await pool.query('update email_sends set recipient = $2, match_key = $2 where dedupe_key = $1', [name, to])
  return { ...claim, matchKey: to }
}

/** Settles with a delivery event of its own, without the look again that follows the commit; answers whom to look at. */
async function report(fields: Partial<DeliveryReport> & { messageId: string }, isExclusive = true): Promise<string | null> {
  const kind = fields.kind ?? 'delivered'
  const event = await insertEvent(pool, `${fields.messageId}:${kind}`, { source: 'inboxili' })
  return inTransaction(pool, (tx) =>
    settle(tx, { event, kind, recipient: to, occurredAt: new Date(), hasOwnTime: true, ...fields }, isExclusive),
  )
}

const parked = async () =>
  (await pool.query('select message_id, parked, cardinality(candidates) as candidates from delivery_reports order by message_id'))
    .rows

describe('an unknown call', () => {
  test.each([
    [true, 'B'],
    [false, 'C'],
  ])('is settled with its evidence; the event’s own time: %s', async (hasOwnTime, grade) => {
    await called(key, unknown)

    await report({ messageId: 'm1', hasOwnTime })

    expect(await row('status', 'message_id', 'needs_review')).toEqual({
      status: 'delivered',
      message_id: 'm1',
      needs_review: false,
    })
    const { rows } = await pool.query(
      `select grade, rule_version, from_state, to_state, candidates = jsonb_build_array(attempt) as is_sole_candidate, settlements.actor,
         evidence - 'secondsAfterClaim' as evidence, (evidence ->> 'secondsAfterClaim')::float8 < 60 as has_distance, event_at is not null as has_time,
         sends.settled_by = 'event:' || settlements.event as is_named
       from settlements join email_sends sends using (dedupe_key)`,
    )
    expect(rows).toEqual([
      {
        grade,
        rule_version: 2,
        from_state: 'needs_review',
        to_state: 'sent',
        is_sole_candidate: true,
        actor: 'event',
        evidence: { outcome: 'unknown', isExclusive: true, isBreakerClosed: true },
        has_distance: true,
        has_time: true,
        is_named: true,
      },
    ])
    expect(await sendOnce(deps, key)).toBe('nothing to do')
  })

  test('is settled once by its events at the same time, as often as they come', async () => {
    await called(key, unknown)
    const event = await insertEvent(pool, 'again', { source: 'inboxili' })
    const again = () =>
      inTransaction(pool, (tx) =>
        settle(
          tx,
          { event, kind: 'bounced', messageId: 'm1', recipient: to, occurredAt: ago(1), hasOwnTime: true, bounceKind: 'hard' },
          true,
        ),
      )

    await Promise.all([again(), again(), report({ messageId: 'm1' }), report({ messageId: 'm1', kind: 'opened' }), again()])
    await rematch(pool, to, true)

    expect(await row('status', 'delivered_at is not null as is_delivered')).toEqual({ status: 'bounced', is_delivered: true })
    expect((await pool.query('select from settlements')).rowCount).toBe(1)
    expect(await parked()).toEqual(Array(3).fill({ message_id: 'm1', parked: null, candidates: null }))
  })

  test('and a second message at the same time: one is taken for its own, the other shows that somebody else sends too', async () => {
    await called(key, unknown)

    await Promise.all([report({ messageId: 'm1' }), report({ messageId: 'm2' })])
    await rematch(pool, to, true)

    // Whoever was first found one call and one message; the other one is of nobody's, and shows it.
    const { rows } = await pool.query('select matching from sending_control')
    expect((await parked()).map((it) => it.parked).sort()).toEqual(['foreign', null])
    expect(rows).toEqual([{ matching: 'suggest' }])
  })

  test('a settlement that dies before its commit leaves nothing, and is made up for', async () => {
    await called(key, unknown)
    const event = await insertEvent(pool, 'e', { source: 'inboxili' })
    const settling = (dies: boolean) =>
      inTransaction(pool, async (tx) => {
        await settle(
          tx,
          { event, kind: 'delivered', messageId: 'm1', recipient: to, occurredAt: new Date(), hasOwnTime: true },
          true,
        )
        if (dies) throw new Error('killed')
      })
    await expect(settling(true)).rejects.toThrow('killed')
    const left = [await row('status'), await attemptsOf(pool, key), await parked()]

    await settling(false)

    expect(left).toMatchObject([{ status: 'needs_review' }, [{ message_id: null }], []])
    expect(await row('status')).toEqual({ status: 'delivered' })
  })

  test('I11 that an event has settled takes its late answer too: the same as in the other order', async () => {
    const claim = await calling(key)
    await pool.query(`update email_sends set sending_at = now() - interval '301 s'`)
    await service.sweep(300_000)
    await report({ messageId: 'm1' })
    const settled = await row('status')

    expect(await record(claim, accepted('m1'))).toBe('kept')

    expect(settled).toEqual({ status: 'delivered' })
    expect(await row('status', 'message_id')).toEqual({ status: 'delivered', message_id: 'm1' })
    expect(await attemptsOf(pool, key)).toEqual([
      { number: 1, outcome: 'accepted', http_status: null, error: null, message_id: 'm1' },
    ])
    expect(await record(claim, accepted('m1'))).toBe('repeated')
  })

  test('whose resend is being claimed at this moment isn’t settled past it', async () => {
    await called(key, unknown)
    await pool.query(`update email_sends set state = 'queued', version = version + 1`)
    let settling: Promise<string | null> | undefined
    await inTransaction(pool, async (tx) => {
      const second = await insertAttempt(tx, key, { number: 2, recipient: to })
      await tx.query(`update email_sends set state = 'claimed', claim_token = $1, claimed_at = now()`, [second])
      settling = report({ messageId: 'm1' })
      await untilWaiting(pool)
    })
    await settling

    expect(await parked()).toEqual([{ message_id: 'm1', parked: 'resend under way', candidates: 1 }])
    expect((await attemptsOf(pool, key)).map((it) => it.message_id)).toEqual([null, null])
  })
})

describe('an accepted call without an ID', () => {
  test('C-55 gets its message, with evidence, and its send the facts', async () => {
    await called(key, accepted(null))

    await report({ messageId: 'm1', kind: 'opened' })
    await report({ messageId: 'm1' })

    expect(await row('status', 'message_id')).toEqual({ status: 'delivered', message_id: 'm1' })
    expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'accepted', message_id: 'm1' }])
    const { rows } = await pool.query('select grade, from_state, to_state from settlements')
    expect(rows).toEqual([{ grade: 'B', from_state: 'sent', to_state: 'sent' }])
  })

  test('C-40 an event that comes during the call waits for its end', async () => {
    const claim = await calling(key)
    await report({ messageId: 'm1' })
    const during = await parked()

    await record(claim, accepted(null))
    await rematch(pool, to, true)

    expect(during).toEqual([{ message_id: 'm1', parked: 'in flight', candidates: 1 }])
    expect(await row('status', 'message_id')).toEqual({ status: 'delivered', message_id: 'm1' })
  })
})

describe('what is parked', () => {
  test('opens the breaker once when nothing explains it, and only suggestions follow', async () => {
    await called(key, unknown)
    await report({ messageId: 'm-other', recipient: 'nobody@example.com' })
    await report({ messageId: 'm-other2', recipient: 'nobody@example.com' })
    await report({ messageId: 'm1' })

    const { rows } = await pool.query(
      `select matching, version, matching_reason like 'event % speaks of an email that nothing here explains' as is_said from sending_control`,
    )
    expect(rows).toEqual([{ matching: 'suggest', version: 2, is_said: true }])
    expect(await parked()).toEqual([
      { message_id: 'm-other', parked: 'foreign', candidates: 0 },
      { message_id: 'm-other2', parked: 'foreign', candidates: 0 },
      { message_id: 'm1', parked: 'breaker open', candidates: 1 },
    ])
  })

  test('eight days ago, it is too old to open the breaker', async () => {
    await report({ messageId: 'm-other', occurredAt: ago(8 * 86_400) })

    expect((await pool.query('select matching from sending_control')).rows).toEqual([{ matching: 'auto' }])
  })

  test('settles nothing on an account that is shared, and still counts its calls out', async () => {
    await called(key, unknown)

    await report({ messageId: 'm1' }, false)

    expect(await parked()).toEqual([{ message_id: 'm1', parked: 'account not exclusive', candidates: 1 }])
  })

  test('during a call that is refused in the end, is foreign: the sweep finds it if its process died', async () => {
    const claim = await calling(key)
    await report({ messageId: 'm1' })
    await record(claim, refused)

    await service.sweep(300_000)

    expect(await parked()).toEqual([{ message_id: 'm1', parked: 'foreign', candidates: 0 }])
    expect((await pool.query('select matching from sending_control')).rows).toEqual([{ matching: 'suggest' }])
  })

  test('is looked at again by the sweep, for more recipients than it reads at once', async () => {
    const names = Array.from({ length: 120 }, (_, index) => `${key}-${index}`)
    for (const name of names) {
      const recipient = `${name}@example.com`
      await insertSend(pool, name, { state: 'needs_review', recipient })
      await insertAttempt(pool, name, { outcome: 'unknown', recipient, called_at: ago(60) })
      const event = await insertEvent(pool, name, { source: 'inboxili' })
      await insertReport(pool, event, { message_id: name, recipient, match_key: recipient, parked: 'in flight' })
    }

    expect(await service.sweep(300_000)).toMatchObject({ joinedMessages: 120 })
    expect(await service.sweep(300_000)).toMatchObject({ joinedMessages: 0 })
  })

  test('does not wait behind a hundred older ones that stay', async () => {
    for (let index = 0; index < 110; index += 1) {
      const event = await insertEvent(pool, `old-${index}`, { source: 'inboxili' })
      // Of a call a month ago, which explains none of them.
      await insertReport(pool, event, {
        message_id: `old-${index}`,
        recipient: to,
        match_key: to,
        occurred_at: ago(30 * 86_400 + index),
        parked: 'ambiguous',
      })
    }
    const claim = await calling(key)
    await report({ messageId: 'm1' })
    await record(claim, accepted(null))

    expect(await rematch(pool, to, true)).toBe(1)
  })
})

describe('an event without a recipient', () => {
  test('locks the recipient of its attempt, and answers whom to look at again', async () => {
    await called(key, accepted('m1'))
    await called(`${key}-b`, unknown)

    expect(await report({ messageId: 'm2', recipient: undefined } as never)).toBe(null)
    expect(await report({ messageId: 'm1', recipient: undefined } as never)).toBe(to)
    expect(await parked()).toEqual([
      { message_id: 'm1', parked: null, candidates: null },
      { message_id: 'm2', parked: 'no recipient', candidates: null },
    ])
    expect(await sendRow(pool, `${key}-b`, 'status')).toEqual({ status: 'needs_review' })
  })

  test('starts again with the recipient that it finds only after it has waited for the message', async () => {
    const claim = await calling(key)
    let locking: Promise<{ locked: string | null; locks: number }> | undefined
    await inTransaction(pool, async (tx) => {
      await recordOutcome(tx, deps.enqueue, claim, accepted('m1'))
      locking = inTransaction(pool, async (other) => {
        const locked = await lockFor(other, null, 'm1')
        const { rows } = await other.query<{ locks: number }>(
          `select count(*)::int as locks from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()`,
        )
        return { locked, locks: rows[0]?.locks ?? 0 }
      })
      await untilWaiting(pool)
    })

    expect(await locking).toEqual({ locked: to, locks: 2 })
  })

  test('of a known message does not deadlock with one that takes the recipient first', async () => {
    await called(key, accepted('m1'))
    let locking: Promise<string | null> | undefined
    await inTransaction(pool, async (tx) => {
      await lockFor(tx, to, undefined)
      locking = inTransaction(pool, (other) => lockFor(other, null, 'm1'))
      await untilWaiting(pool)
      // It has given the message back before it waited for the recipient.
      await tx.query(`set local statement_timeout = '5s'`)
      await lockFor(tx, to, 'm1')
    })

    expect(await locking).toBe(to)
  })
})

test.each([
  ['Ada@Example.com', 'ada@example.com'],
  ['ada+shop+x@example.com', 'ada@example.com'],
  ['a.d.a+x@gmail.com', 'ada@gmail.com'],
  ['A.da@GoogleMail.com', 'ada@gmail.com'],
  ['a.d.a@example.com', 'a.d.a@example.com'],
])('I21 a row of the version before for %s is found under %s', async (recipient, expected) => {
  await insertSend(pool, key, { recipient, match_key: null })
  await insertAttempt(pool, key, { recipient, match_key: null })

  const { rows } = await pool.query(
    'select sends.match_key, attempts.match_key as attempt from email_sends sends join send_attempts attempts using (dedupe_key)',
  )
  expect(rows).toEqual([{ match_key: expected, attempt: expected }])
  expect(excludeForm(recipient)).toBe(expected)
})
