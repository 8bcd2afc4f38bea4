import { beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { createLog } from '../src/log.ts'
import { findPlan, type PlanRequest, planDecisions, runPlan } from '../src/ops/bulk-decisions.ts'
import { checkInvariants } from '../src/ops/invariants.ts'
import { excludeForm } from '../src/sends/address.ts'
import { continuePlans } from '../src/sends/bulk.ts'
import { decide } from '../src/sends/decide.ts'
import { settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import { jobsOf, patientDatabase, resetControl, sendRow } from './support/sends.ts'

const { pool, url } = await patientDatabase()
const { enqueueSends } = await openJobs(url)
const deps = { pool, enqueueSends, isExclusive: () => false, takesTwo: () => false, log: createLog('silent', 'test') }
const by = { actor: 'person:mia', via: 'page' }

beforeEach(async () => {
  await pool.query(
    `truncate email_sends, send_attempts, settlements, delivery_reports, follow_ups, webhook_events, audit_log, sending_logs, log_absences,
       decision_plans, decision_plan_sends cascade`,
  )
  await pool.query('delete from pgboss.job')
  await resetControl(pool)
})

const CALLED = new Date('2026-11-29T14:02:07Z')

/** A send of version 1 whose call to a recipient of its own ended unknown. */
async function unknownSend(key: string, columns: Record<string, unknown> = {}): Promise<string> {
  const recipient = `${key}@example.com`
  await insertSend(pool, key, { state: 'needs_review', recipient, queued_at: CALLED, claimed_at: CALLED, ...columns })
  const id = await insertAttempt(pool, key, {
    outcome: 'unknown',
    recipient,
    match_key: excludeForm(recipient),
    claimed_at: CALLED,
    called_at: CALLED,
    ended_at: CALLED,
  })
  await pool.query('update email_sends set claim_token = $2 where dedupe_key = $1', [key, id])
  return id
}

async function report(key: string, messageId: string): Promise<void> {
  const event = await insertEvent(pool, messageId, { source: 'inboxili' })
  await inTransaction(pool, (tx) =>
    settle(
      tx,
      {
        event,
        kind: 'delivered',
        messageId,
        recipient: `${key}@example.com`,
        occurredAt: new Date(CALLED.getTime() + 24_000),
        hasOwnTime: true,
      },
      false,
    ),
  )
}

/** A whole sending log of that time lacks the call. */
async function lackedByLog(attempt: string): Promise<void> {
  await pool.query(
    `with log as (insert into sending_logs (file_sha256, from_at, until_at, lines, known, missing, read_by, via, reason)
       values ($1::text, now() - interval '1 day', now(), 9, 3, 0, 'ann', 'cli', 'x') returning id)
     insert into log_absences (attempt, log) select $1::uuid, id from log`,
    [attempt],
  )
}

const plan = (decision: PlanRequest['decision'], keys: readonly string[], versions: Record<string, number> = {}) =>
  planDecisions(
    deps,
    { decision, reason: 'asked Inboxili', sends: keys.map((key) => ({ key, version: versions[key] })) },
    'person:mia',
  )
const results = (of: { sends: { dedupe_key: string; result: string; skipped: string | null }[] }) =>
  Object.fromEntries(of.sends.map(({ dedupe_key, result, skipped }) => [dedupe_key, skipped ?? result]))
async function run(id: string, others: { confirm?: number } = {}) {
  const ran = await runPlan(deps, id, { ...by, ...others })
  if (ran.outcome !== 'done') throw new Error(ran.outcome)
  return ran.plan
}
const audits = async () =>
  (await pool.query('select actor, via, action, subject, reason from audit_log order by subject, id')).rows
const states = async () =>
  Object.fromEntries(
    (await pool.query('select dedupe_key, state from email_sends')).rows.map((row) => [row.dedupe_key, row.state]),
  )

describe('checking', () => {
  test('changes nothing, and tells what would change and why the rest would not', async () => {
    await unknownSend('open')
    await unknownSend('fits')
    await report('fits', 'm1')
    await unknownSend('changed')
    await insertSend(pool, 'queued', { state: 'queued' })
    await insertSend(pool, 'sending', { state: 'sending' })
    await insertSend(pool, 'closed', { state: 'abandoned' })
    const before = (await pool.query('select * from email_sends order by dedupe_key')).rows

    const planned = await plan('abandoned', ['open', 'fits', 'changed', 'queued', 'sending', 'closed', 'nobody'], { changed: 7 })

    expect(results(planned)).toEqual({
      open: 'will_change',
      fits: 'suggestion_differs',
      changed: 'changed',
      queued: 'in_flight',
      sending: 'in_flight',
      closed: 'already_decided',
      nobody: 'not_found',
    })
    expect(planned).toMatchObject({ state: 'planned', will_change: 1, skipped: 6, decided: 0, has_more: false })
    expect(planned.sends[0]).toMatchObject({ version: 1, recipient: 'open@example.com', suggestion: 'cant_tell' })
    expect(planned.expires_at.getTime() - planned.created_at.getTime()).toBe(600_000)
    expect((await pool.query('select * from email_sends order by dedupe_key')).rows).toEqual(before)
    expect(await audits()).toEqual([])
  })

  test('I7 sends again in bulk only what a sending log shows to be unsent', async () => {
    await lackedByLog(await unknownSend('unsent'))
    await unknownSend('nobody knows')
    await unknownSend('fits')
    await report('fits', 'm1')

    expect(results(await plan('retry', ['unsent', 'nobody knows', 'fits']))).toEqual({
      unsent: 'will_change',
      'nobody knows': 'not_known_unsent',
      fits: 'not_known_unsent',
    })
    expect(results(await plan('sent', ['unsent', 'nobody knows', 'fits']))).toEqual({
      unsent: 'suggestion_differs',
      'nobody knows': 'will_change',
      fits: 'will_change',
    })
  })

  test('takes all that match a filter, the oldest first, up to 500', async () => {
    await pool.query(
      `insert into email_sends (dedupe_key, state, policy, recipient, message, message_sha256, requested_by, queued_at)
       select 'k' || n, 'needs_review', 'claim', 'r' || n || '@example.com', '{}', '\\x00', 'token:test', now() - n * interval '1 s'
       from generate_series(1, 501) n`,
    )

    const planned = await planDecisions(deps, { decision: 'abandoned', reason: 'x', filter: { suggestion: 'cant_tell' } }, 'ann')

    expect(planned).toMatchObject({ will_change: 500, has_more: true })
    expect(planned.sends[0]?.dedupe_key).toBe('k501')
    expect(await planDecisions(deps, { decision: 'sent', reason: 'x', filter: { suggestion: 'sent' } }, 'ann')).toMatchObject({
      will_change: 0,
      has_more: false,
      sends: [],
    })
  })
})

describe('carrying out', () => {
  test('decides each as a single decision does: audited with via and reason, with its evidence', async () => {
    await unknownSend('k1')
    await unknownSend('k2')
    const { id } = await plan('abandoned', ['k1', 'k2'])

    const done = await run(id)

    expect(done).toMatchObject({ state: 'done', decided: 2, will_change: 0, skipped: 0, started_by: 'person:mia' })
    expect(await states()).toEqual({ k1: 'abandoned', k2: 'abandoned' })
    expect(await audits()).toEqual(
      ['k1', 'k2'].map((key) => ({
        actor: 'person:mia',
        via: 'page',
        action: 'abandoned',
        subject: `send:${key}`,
        reason: 'asked Inboxili',
      })),
    )
    expect((await pool.query('select grade, actor from settlements')).rows).toEqual([
      { grade: 'P', actor: 'person:mia' },
      { grade: 'P', actor: 'person:mia' },
    ])
  })

  test('with the message that the suggestion rests on, so that its report is joined', async () => {
    await unknownSend('k1')
    await report('k1', 'm1')
    const { id } = await plan('sent', ['k1'])

    await run(id)

    expect(await sendRow(pool, 'k1', 'status', 'message_id')).toEqual({ status: 'delivered', message_id: 'm1' })
  })

  test('a resend waits in the queue once', async () => {
    await lackedByLog(await unknownSend('k1'))
    const { id } = await plan('retry', ['k1'])

    await run(id)
    await run(id)

    expect(await states()).toEqual({ k1: 'queued' })
    expect(await jobsOf(pool, 'k1')).toHaveLength(1)
  })

  test('leaves alone what has changed since, and what isn’t in the plan', async () => {
    await unknownSend('k1')
    await unknownSend('k2')
    await unknownSend('k3')
    const { id } = await plan('abandoned', ['k1', 'k2'])
    await decide(pool, enqueueSends, 'k1', { decision: 'sent', version: 1, reason: 'seen', actor: 'ann', via: 'api' })
    await decide(pool, enqueueSends, 'k1', { decision: 'reopen', version: 2, reason: 'not so', actor: 'ann', via: 'api' })

    const done = await run(id)

    expect(results(done)).toEqual({ k1: 'changed', k2: 'decided' })
    expect(await states()).toEqual({ k1: 'needs_review', k2: 'abandoned', k3: 'needs_review' })
  })

  test('I7 sends nothing again for which a report has come since, though its version is the same', async () => {
    await lackedByLog(await unknownSend('k1'))
    const { id } = await plan('retry', ['k1'])
    await report('k1', 'm1')

    expect(results(await run(id))).toEqual({ k1: 'suggestion_differs' })
    expect(await sendRow(pool, 'k1', 'state', 'version')).toEqual({ state: 'needs_review', version: 1 })
    expect(await jobsOf(pool, 'k1')).toEqual([])
  })

  test('more than ten need their number, and any wrong number is refused', async () => {
    const keys = Array.from({ length: 11 }, (_, n) => `k${n}`)
    for (const key of keys) await unknownSend(key)
    const { id } = await plan('abandoned', keys)

    expect(await runPlan(deps, id, by)).toEqual({ outcome: 'unconfirmed', will_change: 11 })
    expect(await runPlan(deps, id, { ...by, confirm: 10 })).toEqual({ outcome: 'unconfirmed', will_change: 11 })
    expect(await findPlan(pool, id)).toMatchObject({ state: 'planned', will_change: 11 })
    expect(await run(id, { confirm: 11 })).toMatchObject({ decided: 11 })
  })

  describe('where a resend takes two people', () => {
    const forTwo = { ...deps, takesTwo: () => true }
    beforeEach(async () => {
      await pool.query('delete from people')
      await pool.query(`insert into people (name, role) values ('Mia', 'operator'), ('Noa', 'operator'), ('rea', 'reader')`)
      await lackedByLog(await unknownSend('k1'))
    })

    test('a plan that sends again is carried out by another operator than who made it, which the audit tells', async () => {
      const { id } = await plan('retry', ['k1'])

      for (const actor of ['person:mia', 'mia', ' MIA ', 'token:ci', 'rea', '', 'Person:noa', 'nobody'])
        expect(await runPlan(forTwo, id, { actor, via: 'page' }), actor).toEqual({ outcome: 'second_person_needed' })
      expect(await states()).toEqual({ k1: 'needs_review' })
      expect(await findPlan(pool, id)).toMatchObject({ state: 'planned', started_by: null })
      expect(await runPlan(forTwo, id, { actor: 'noa ', via: 'cli' })).toMatchObject({ outcome: 'done' })
      expect(await states()).toEqual({ k1: 'queued' })
      expect((await pool.query('select actor, reason, after from audit_log')).rows).toEqual([
        { actor: 'person:Noa', reason: 'asked Inboxili', after: { state: 'queued', version: 2, planned_by: 'person:mia' } },
      ])
    })

    test.each([`disabled_at = now()`, `role = 'reader'`])(
      'nothing comes of a plan whose maker has been set to %s since',
      async (change) => {
        const { id } = await plan('retry', ['k1'])
        await pool.query(`update people set ${change} where name = 'Mia'`)

        expect(await runPlan(forTwo, id, { actor: 'person:Noa', via: 'page' })).toEqual({ outcome: 'second_person_needed' })
        expect(await states()).toEqual({ k1: 'needs_review' })
      },
    )

    test('a plan that sends nothing again is carried out by who made it, who is named once', async () => {
      const { id } = await plan('abandoned', ['k1'])

      expect(await runPlan(forTwo, id, by)).toMatchObject({ outcome: 'done' })
      expect((await pool.query('select after from audit_log')).rows).toEqual([{ after: { state: 'abandoned', version: 2 } }])
    })
  })

  test('an expired plan does nothing, and neither does one that nobody knows', async () => {
    await unknownSend('k1')
    const { id } = await plan('abandoned', ['k1'])
    await pool.query(`update decision_plans set expires_at = now() - interval '1 s'`)

    expect(await runPlan(deps, id, by)).toEqual({ outcome: 'not_found' })
    expect(await runPlan(deps, '00000000-0000-4000-8000-000000000000', by)).toEqual({ outcome: 'not_found' })
    expect(await states()).toEqual({ k1: 'needs_review' })
  })
})

describe('twice, at once, and after a crash', () => {
  const keys = Array.from({ length: 10 }, (_, n) => `k${n}`)

  test('the same plan again answers the same and changes nothing', async () => {
    for (const key of keys) await unknownSend(key)
    const { id } = await plan('abandoned', keys)
    const first = await run(id)
    await decide(pool, enqueueSends, 'k0', { decision: 'reopen', version: 2, reason: 'x', actor: 'ann', via: 'api' })

    const second = await run(id)

    expect(second).toEqual(first)
    expect(await sendRow(pool, 'k0', 'state')).toEqual({ state: 'needs_review' })
    expect(await audits()).toHaveLength(11)
  })

  test('I16 two at once: each send once, and both answer the same', async () => {
    for (const key of keys) await lackedByLog(await unknownSend(key))
    const { id } = await plan('retry', keys)

    const [one, other] = await Promise.all([
      run(id),
      runPlan(deps, id, { actor: 'person:ben', via: 'page' }).then((ran) => (ran.outcome === 'done' ? ran.plan : undefined)),
    ])

    expect(one.decided).toBe(10)
    expect(other).toEqual(one)
    expect(await audits()).toHaveLength(10)
    for (const key of keys) expect(await jobsOf(pool, key)).toHaveLength(1)
  })

  test('I16 two plans over the same sends: each send is decided by one of them', async () => {
    for (const key of keys) await unknownSend(key)
    const [one, other] = [await plan('abandoned', keys), await plan('sent', keys)]

    const [first, second] = await Promise.all([run(one.id), run(other.id)])

    expect(first.decided + second.decided).toBe(10)
    expect(first.skipped + second.skipped).toBe(10)
    expect(await audits()).toHaveLength(10)
  })

  test('a crash in the middle is gone on from, by who asks again or by a worker, and nothing is done twice', async () => {
    for (const key of keys) await lackedByLog(await unknownSend(key))
    const { id } = await plan('retry', keys)
    let jobs = 0
    const dying = {
      ...deps,
      enqueueSends: ((tx, sends) => {
        jobs += 1
        if (jobs >= 4) throw new Error('killed')
        return enqueueSends(tx, sends)
      }) satisfies typeof enqueueSends,
    }

    await expect(runPlan(dying, id, by)).rejects.toThrow('killed')
    expect(await findPlan(pool, id)).toMatchObject({ state: 'running', decided: 3, will_change: 7 })

    await pool.query(`update decision_plans set started_at = now() - interval '2 minutes'`)
    expect(await continuePlans(deps)).toBe(1)

    expect(await findPlan(pool, id)).toMatchObject({ state: 'done', decided: 10, started_by: 'person:mia' })
    expect(await run(id)).toMatchObject({ decided: 10 })
    expect(await audits()).toHaveLength(10)
    for (const key of keys) expect(await jobsOf(pool, key)).toHaveLength(1)
    expect(await continuePlans(deps)).toBe(0)
    expect(await checkInvariants(pool, 300_000)).toEqual([])
  })

  test('a send that fails keeps back neither those behind it nor the plans behind its own', async () => {
    for (const key of keys) await lackedByLog(await unknownSend(key))
    const first = await plan('retry', keys.slice(0, 3))
    const second = await plan('retry', keys.slice(3, 5))
    const failing = {
      ...deps,
      enqueueSends: ((tx, sends) =>
        sends.some(({ key }) => key === keys[0])
          ? Promise.reject(new Error('it fails each time'))
          : enqueueSends(tx, sends)) satisfies typeof enqueueSends,
    }
    await expect(runPlan(failing, first.id, by)).rejects.toThrow('it fails each time')
    await pool.query(
      `update decision_plans set state = 'running', started_at = now() - interval '2 minutes', started_by = 'person:mia', via = 'page'`,
    )

    await continuePlans(failing)

    expect(await findPlan(pool, first.id)).toMatchObject({ state: 'running', decided: 2, will_change: 1 })
    expect(await findPlan(pool, second.id)).toMatchObject({ state: 'done', decided: 2 })
  })
})
