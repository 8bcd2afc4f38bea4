import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { type Decision, type DecisionRequest, decide } from '../src/sends/decide.ts'
import type { CallOutcome } from '../src/sends/outcome.ts'
import { recordOutcome } from '../src/sends/record.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { rematch, settle } from '../src/sends/settle.ts'
import type { EnqueueSends } from '../src/sends/trigger.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import {
  attemptsOf,
  callsTo,
  insertCall,
  jobsOf,
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

afterEach(() => resetControl(pool))

const unknown: CallOutcome = { kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' }
const row = (...fields: string[]) => sendRow(pool, key, ...fields)
const by = { reason: 'looked it up', actor: 'ada', via: 'api' }
const decision = (it: Decision, version: number, others: Partial<DecisionRequest> = {}) =>
  decide(pool, deps.enqueue, key, { ...it, version, ...by, ...others } as DecisionRequest) // spreading loses the union

/** A send of version 4 whose call ended unknown; its job is done. */
async function unknownSend(outcome: CallOutcome = unknown): Promise<void> {
  await queueSend(service, key)
  await sendOnce({ ...deps, call: async () => outcome }, key)
  await pool.query(`update pgboss.job set state = 'completed' where data ->> 'key' = $1`, [key])
}

async function report(messageId: string, kind = 'delivered', recipient: string | undefined = undefined) {
  const event = await insertEvent(pool, `${messageId}:${kind}`, { source: 'inboxili' })
  await inTransaction(pool, (tx) =>
    settle(tx, { event, kind, messageId, occurredAt: new Date(), hasOwnTime: true, ...(recipient && { recipient }) }, true),
  )
}

const audits = async () =>
  (
    await pool.query('select actor, via, action, reason, before, after from audit_log where subject = $1 order by id', [
      `send:${key}`,
    ])
  ).rows
const settlements = async () =>
  (
    await pool.query(
      'select grade, from_state, to_state, actor, evidence, event from settlements where dedupe_key = $1 order by id',
      [key],
    )
  ).rows

describe('a resend that takes two people', () => {
  const retry = (actor: string, version = 1, via = 'page') =>
    decide(pool, deps.enqueue, key, { decision: 'retry', version, reason: `says ${actor}`, actor, via }, true)
  beforeEach(async () => {
    await pool.query('delete from people')
    await pool.query(`insert into people (name, role) values ('Mia', 'operator'), ('noa', 'operator'), ('rea', 'reader')`)
    await insertSend(pool, key, { state: 'needs_review' })
    await insertAttempt(pool, key, { outcome: 'unknown', called_at: new Date() })
  })

  test('waits for another one than who asks, whichever way they come; both are audited', async () => {
    expect(await retry('person:mia')).toEqual({ outcome: 'asked' })
    expect(await retry('person:mia')).toEqual({ outcome: 'second_person_needed' })
    for (const same of ['mia', ' MIA ', 'Mia', 'person: mia'])
      expect(await retry(same, 1, 'cli'), same).toEqual({ outcome: 'second_person_needed' })
    expect(await row('state', 'version')).toEqual({ state: 'needs_review', version: 1 })
    expect(await jobsOf(pool, key)).toEqual([])

    expect(await retry(' NOA', 1, 'cli')).toMatchObject({ outcome: 'decided', version: 2 })
    expect(await row('state')).toEqual({ state: 'queued' })
    expect(await jobsOf(pool, key)).toHaveLength(1)
    expect((await audits()).map(({ actor, action, reason }) => [actor, action, reason])).toEqual([
      ['person:Mia', 'ask_retry', 'says person:mia'],
      ['person:noa', 'retry', 'says  NOA'],
    ])
  })

  test.each([
    ...['token:ci', 'token:mia', '', ' ', 'system', 'nobody', 'rea', 'off'],
    ...['Person:mia', 'person:person:mia', 'person:', 'mi\u200ba', 'mia\u200b', '\u00a0mia', 'mia,noa', 'mia%'],
  ])('takes %j, who is no operator, for neither of them', async (actor) => {
    await pool.query(`insert into people (name, role, disabled_at) values ('off', 'operator', now())`)

    expect(await retry(actor)).toEqual({ outcome: 'no_person' })
    expect(await audits()).toEqual([])
    expect(await retry('person:noa')).toEqual({ outcome: 'asked' })
    expect(await retry(actor)).toEqual({ outcome: 'no_person' })
    expect(await row('state', 'version')).toEqual({ state: 'needs_review', version: 1 })
    expect(await audits()).toHaveLength(1)
  })

  test.each([`disabled_at = now()`, `role = 'reader'`])(
    'counts nobody who asked while they might and has been set to %s since',
    async (change) => {
      await retry('person:mia')
      await pool.query(`update people set ${change} where name = 'Mia'`)

      expect(await retry('person:noa')).toEqual({ outcome: 'asked' })
      expect(await row('state')).toEqual({ state: 'needs_review' })
      await pool.query(`update people set disabled_at = null, role = 'operator' where name = 'Mia'`)
      expect(await retry('person:mia')).toMatchObject({ outcome: 'decided', version: 2 })
    },
  )

  test('is asked for anew once the send has changed', async () => {
    await retry('person:mia')
    await decision({ decision: 'abandoned' }, 1)
    await decision({ decision: 'reopen' }, 2)

    expect(await retry('person:noa', 1)).toEqual({ outcome: 'stale', status: 'needs_review', version: 3 })
    expect(await retry('person:noa', 3)).toEqual({ outcome: 'asked' })
    expect(await retry('person:mia', 3)).toMatchObject({ outcome: 'decided', version: 4 })
  })

  test('I16 is sent again once when twenty of two people say so at once', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => retry(n % 2 ? 'person:mia' : 'person:noa')))

    const count = (outcome: string) => answers.filter((answer) => answer.outcome === outcome).length
    expect([count('asked'), count('decided')]).toEqual([1, 1])
    expect(await jobsOf(pool, key)).toHaveLength(1)
    expect(await audits()).toHaveLength(2)
  })

  test('leaves other decisions and states as they are', async () => {
    const abandon = { decision: 'abandoned', version: 1, ...by } as const
    expect(await decide(pool, deps.enqueue, key, abandon, true)).toMatchObject({ outcome: 'decided', version: 2 })
    expect(await retry('person:mia', 2)).toEqual({ outcome: 'not_allowed', status: 'abandoned', version: 2 })
  })
})

describe('every state and decision', () => {
  const allowed = ['needs_review sent', 'needs_review abandoned', 'needs_review retry', 'sent reopen', 'abandoned reopen']
  const targets = { sent: 'sent', abandoned: 'abandoned', retry: 'queued', reopen: 'needs_review' } as const
  const states = ['queued', 'claimed', 'sending', 'sent', 'rejected', 'needs_review', 'abandoned']

  test.each(states.flatMap((state) => (['sent', 'abandoned', 'retry', 'reopen'] as const).map((it) => [state, it] as const)))(
    'C-58 %s: %s',
    async (state, it) => {
      await insertSend(pool, key, { state })
      await insertAttempt(pool, key, { outcome: 'unknown', called_at: new Date() })
      const before = await row('*')

      const decided = await decision({ decision: it }, 1)

      if (allowed.includes(`${state} ${it}`)) {
        expect(decided).toEqual({ outcome: 'decided', version: 2, matchKey: 'ada@example.com' })
        expect(await row('state')).toEqual({ state: targets[it] })
        expect(await audits()).toHaveLength(1)
      } else {
        expect(decided).toEqual({ outcome: 'not_allowed', status: state, version: 1 })
        expect(await row('*')).toEqual(before)
        expect(await audits()).toEqual([])
        expect(await jobsOf(pool, key)).toEqual([])
      }
    },
  )

  test('of a key that nobody knows: not found', async () => {
    expect(await decision({ decision: 'sent' }, 1)).toEqual({ outcome: 'not_found' })
  })

  test.each(['delivered', 'bounced'])('C-58 one that is %s is not sent again unless it is reopened first', async (kind) => {
    await unknownSend({ ...unknown, messageId: `m-${key}` } as CallOutcome)
    await report(`m-${key}`, kind)
    const version = Number((await row('version'))?.version)

    expect(await decision({ decision: 'retry' }, version)).toEqual({ outcome: 'not_allowed', status: kind, version })

    expect(await decision({ decision: 'reopen' }, version)).toMatchObject({ outcome: 'decided' })
    expect(await decision({ decision: 'retry' }, version + 1)).toMatchObject({ outcome: 'decided' })
    await sendOnce(deps, key)
    expect(callsTo(service, to)).toBe(1)
    expect((await attemptsOf(pool, key)).map((it) => it.outcome)).toEqual(['unknown', 'accepted'])
  })
})

describe('two at once', () => {
  test('I16 C-58 of two retries one wins: one job and one call', async () => {
    await unknownSend()

    const decided = await Promise.all([decision({ decision: 'retry' }, 4), decision({ decision: 'retry' }, 4)])

    expect(decided.map((it) => it.outcome).sort()).toEqual(['decided', 'stale'])
    expect(await jobsOf(pool, key)).toHaveLength(1)
    await Promise.all([sendOnce(deps, key), sendOnce(deps, key)])
    expect(callsTo(service, to)).toBe(1)
    expect(await audits()).toHaveLength(1)
  })

  test('I16 of twenty different decisions one wins, and it alone is audited', async () => {
    await unknownSend()
    const kinds = ['sent', 'abandoned', 'retry'] as const

    const decided = await Promise.all(
      Array.from({ length: 20 }, (_, index) => decision({ decision: kinds[index % 3] ?? 'sent' }, 4, { actor: `p${index}` })),
    )

    const winner = decided.findIndex((it) => it.outcome === 'decided')
    expect(decided.filter((it) => it.outcome === 'stale')).toHaveLength(19)
    expect((await audits()).map((it) => [it.actor, it.action])).toEqual([[`p${winner}`, kinds[winner % 3]]])
  })

  test('a person and a delivery event at once: closed once, by one of them', async () => {
    for (let round = 0; round < 10; round += 1) {
      key = `k${number}-${round}`
      // Five in a row would hold sending.
      await resetControl(pool)
      await unknownSend({ ...unknown, messageId: `m-${key}` } as CallOutcome)

      const [decided] = await Promise.all([decision({ decision: 'abandoned' }, 4), report(`m-${key}`)])

      const { state } = (await row('state')) ?? {}
      const closed = (await settlements()).map((it) => it.grade)
      expect([round, decided.outcome, state, closed]).toEqual(
        decided.outcome === 'decided' ? [round, 'decided', 'abandoned', ['P']] : [round, 'stale', 'sent', ['A']],
      )
    }
  })

  test('a person and the late answer at once: one of them decides, the other is kept or refused', async () => {
    for (let round = 0; round < 10; round += 1) {
      key = `k${number}-${round}`
      const claim = await insertCall(pool, key, { sending_at: new Date(Date.now() - 400_000) })
      await service.sweep(300_000)

      const [decided, recorded] = await Promise.all([
        decision({ decision: 'abandoned' }, 2),
        inTransaction(pool, (tx) => recordOutcome(tx, deps.enqueue, claim, { kind: 'accepted', messageId: null })),
      ])

      const both = [decided.outcome, recorded, (await row('state'))?.state]
      expect([
        ['decided', 'kept', 'abandoned'],
        ['stale', 'moved', 'sent'],
      ]).toContainEqual(both)
      expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'accepted' }])
    }
  })

  test('a stale view is refused, with what stands there now', async () => {
    await unknownSend()

    expect(await decision({ decision: 'retry' }, 3)).toEqual({ outcome: 'stale', status: 'needs_review', version: 4 })
    await decision({ decision: 'abandoned' }, 4)
    expect(await decision({ decision: 'abandoned' }, 4)).toEqual({ outcome: 'stale', status: 'abandoned', version: 5 })
  })
})

describe('sent', () => {
  test('I12 is audited with who, why, before and after, and leaves evidence of grade P', async () => {
    await unknownSend()

    await decision({ decision: 'sent' }, 4)

    expect(await row('status', 'settled_by', 'message_id', 'completed_at is not null as is_complete')).toEqual({
      status: 'sent',
      settled_by: 'person:ada',
      message_id: null,
      is_complete: true,
    })
    expect(await audits()).toEqual([
      {
        actor: 'ada',
        via: 'api',
        action: 'sent',
        reason: 'looked it up',
        before: { state: 'needs_review', version: 4 },
        after: { state: 'sent', version: 5 },
      },
    ])
    expect(await settlements()).toEqual([
      {
        grade: 'P',
        from_state: 'needs_review',
        to_state: 'sent',
        actor: 'person:ada',
        evidence: { reason: 'looked it up' },
        event: null,
      },
    ])
  })

  test('with a message ID takes up the events of that message, before and after', async () => {
    await unknownSend()
    await report(`m-${key}`)
    const parked = await row('status')

    const decided = await decision({ decision: 'sent', messageId: `m-${key}` }, 4)
    await report(`m-${key}`, 'complained')

    expect(parked).toEqual({ status: 'needs_review' })
    expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'unknown', message_id: `m-${key}` }])
    expect(await row('status', 'message_id', 'complained_at is not null as has_complaint')).toEqual({
      status: 'delivered',
      message_id: `m-${key}`,
      has_complaint: true,
    })
    // The fact has counted the version up; whoever decides next goes on from there.
    expect(decided).toMatchObject({ outcome: 'decided', version: 6 })
  })

  test('I10 the message ID of another send’s call is refused, and so is a second one for a call that has one', async () => {
    const first = key
    await unknownSend({ ...unknown, messageId: `m-${first}` } as CallOutcome)
    key = `${first}-next`
    await unknownSend()
    const before = await row('*')

    expect(await decision({ decision: 'sent', messageId: `m-${first}` }, 4)).toEqual({ outcome: 'message_taken' })

    expect(await row('*')).toEqual(before)
    key = first
    expect(await decision({ decision: 'sent', messageId: 'm-elsewhere' }, 4)).toEqual({ outcome: 'message_taken' })
    expect(await decision({ decision: 'sent', messageId: `m-${first}` }, 4)).toMatchObject({ outcome: 'decided' })
  })

  test('I10 two sends that claim one message at once: one gets it', async () => {
    const names = [`${key}-a`, `${key}-b`]
    for (const name of names) {
      key = name
      await unknownSend()
    }
    const claimed = await Promise.all(
      names.map((name) => decide(pool, deps.enqueue, name, { decision: 'sent', messageId: `m-${names[0]}`, version: 4, ...by })),
    )

    expect(claimed.map((it) => it.outcome).sort()).toEqual(['decided', 'message_taken'])
  })

  const wrongMessage = async () => {
    const before = [await row('*'), await attemptsOf(pool, key)]
    const decided = await decision({ decision: 'sent', messageId: `m-${key}` }, 4)
    expect([await row('*'), await attemptsOf(pool, key)]).toEqual(before)
    expect([await audits(), await settlements()]).toEqual([[], []])
    return decided
  }

  test.each(['delivered', 'opened'])('I9 a message ID that an event has as %s to somebody else is refused', async (kind) => {
    await unknownSend()
    await report(`m-${key}`, kind, 'grace@example.com')

    expect(await wrongMessage()).toEqual({ outcome: 'message_taken' })
    // Another one that names the right recipient makes it no better.
    await report(`m-${key}`, 'bounced', to)
    expect(await wrongMessage()).toEqual({ outcome: 'message_taken' })
  })

  test('I9 nor is it taken while such an event is being stored', async () => {
    await unknownSend()
    const event = await insertEvent(pool, `m-${key}:delivered`, { source: 'inboxili' })
    let deciding: Promise<unknown> = Promise.resolve()
    await inTransaction(pool, async (tx) => {
      const said = { event, kind: 'delivered', messageId: `m-${key}`, recipient: 'grace@example.com' }
      await settle(tx, { ...said, occurredAt: new Date(), hasOwnTime: true }, true)
      deciding = wrongMessage()
      await untilWaiting(pool)
    })

    expect(await deciding).toEqual({ outcome: 'message_taken' })
  })

  test('a message ID whose events name the same mailbox, by another plus-tag, is taken', async () => {
    await unknownSend()
    await report(`m-${key}`, 'delivered', `${key}+news@example.com`)

    expect(await decision({ decision: 'sent', messageId: `m-${key}` }, 4)).toMatchObject({ outcome: 'decided' })
    expect(await row('status')).toEqual({ status: 'delivered' })
  })

  test('explains the message, so that another one to the same recipient is told apart', async () => {
    for (const name of [`${key}-a`, `${key}-b`]) {
      await queueSend(service, name, message(to))
      await sendOnce({ ...deps, call: async () => unknown }, name)
    }
    await report(`m-${key}-a`, 'delivered', to)
    await report(`m-${key}-b`, 'delivered', to)
    const before = await sendRow(pool, `${key}-b`, 'status')

    const decided = await decide(pool, deps.enqueue, `${key}-a`, { decision: 'sent', messageId: `m-${key}-a`, version: 4, ...by })
    const joined = decided.outcome === 'decided' ? await rematch(pool, decided.matchKey, true) : 0

    expect([before, joined]).toEqual([{ status: 'needs_review' }, 1])
    expect(await sendRow(pool, `${key}-b`, 'status', 'message_id')).toEqual({ status: 'delivered', message_id: `m-${key}-b` })
  })

  test('without a message ID does not: the closed one still stands beside the other', async () => {
    for (const name of [`${key}-a`, `${key}-b`]) {
      await queueSend(service, name, message(to))
      await sendOnce({ ...deps, call: async () => unknown }, name)
    }
    await decide(pool, deps.enqueue, `${key}-a`, { decision: 'abandoned', version: 4, ...by })

    await report(`m-${key}-b`, 'delivered', to)

    expect(await sendRow(pool, `${key}-b`, 'status')).toEqual({ status: 'needs_review' })
  })
})

describe('retry', () => {
  test('makes one job and one call, and keeps the old one', async () => {
    await unknownSend()
    expect(await decision({ decision: 'retry' }, 4)).toMatchObject({ outcome: 'decided', version: 5 })
    expect(await jobsOf(pool, key)).toHaveLength(1)

    await sendOnce(deps, key)

    expect(callsTo(service, to)).toBe(1)
    expect(await attemptsOf(pool, key)).toMatchObject([
      { number: 1, outcome: 'unknown' },
      { number: 2, outcome: 'accepted' },
    ])
    expect(await settlements()).toEqual([])
  })

  test('that dies before its commit leaves nothing, and can be made again', async () => {
    await unknownSend()
    const before = await row('*')
    const dying: EnqueueSends = async (tx, jobs) => {
      await deps.enqueue(tx, jobs)
      throw new Error('killed')
    }
    await expect(decide(pool, dying, key, { decision: 'retry', version: 4, ...by })).rejects.toThrow('killed')
    const left = [await row('*'), await jobsOf(pool, key), await audits()]

    expect(left).toEqual([before, [], []])
    expect(await decision({ decision: 'retry' }, 4)).toMatchObject({ outcome: 'decided' })
    expect(await jobsOf(pool, key)).toHaveLength(1)
  })

  test('waits while sending is held, and goes out afterwards', async () => {
    await unknownSend()
    await decision({ decision: 'retry' }, 4)
    await pool.query(`update sending_control set held_reason = 'x', held_at = now(), held_by = 'person:ada'`)
    const held = await sendOnce(deps, key)
    await resetControl(pool)

    expect([held, await sendOnce(deps, key)]).toEqual(['nothing to do', 'done'])
  })
})

describe('reopen', () => {
  test('makes a closed send open again, with its facts and its history', async () => {
    await unknownSend({ ...unknown, messageId: `m-${key}` } as CallOutcome)
    await report(`m-${key}`, 'bounced')
    const { version, bounced_at } = (await row('version', 'bounced_at')) ?? {}

    await decision({ decision: 'reopen' }, Number(version), { reason: 'the address is right by now' })

    expect(await row('status', 'settled_at', 'settled_by', 'completed_at', 'bounced_at')).toEqual({
      status: 'needs_review',
      settled_at: null,
      settled_by: null,
      completed_at: null,
      bounced_at,
    })
    expect(await audits()).toMatchObject([{ action: 'reopen', reason: 'the address is right by now', before: { state: 'sent' } }])
    expect((await settlements()).map((it) => it.grade)).toEqual(['A'])
  })

  test('a later answer of a person closes it again', async () => {
    await unknownSend()
    await decision({ decision: 'abandoned' }, 4)
    await decision({ decision: 'reopen' }, 5)
    await decision({ decision: 'sent' }, 6)

    expect(await row('status', 'settled_by')).toEqual({ status: 'sent', settled_by: 'person:ada' })
    expect((await settlements()).map((it) => it.to_state)).toEqual(['abandoned', 'sent'])
    expect((await audits()).map((it) => it.action)).toEqual(['abandoned', 'reopen', 'sent'])
  })
})
