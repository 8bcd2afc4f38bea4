import { beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { createLog } from '../src/log.ts'
import { checkInvariants } from '../src/ops/invariants.ts'
import { type AttachRequest, attachReport, dismissReport } from '../src/sends/attach.ts'
import { rematch, settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import { attemptsOf, patientDatabase, resetControl, sendRow, untilWaiting } from './support/sends.ts'

const { pool } = await patientDatabase()
const deps = { pool, isExclusive: () => false, log: createLog('silent', 'test') }
const by = { reason: 'seen in the dashboard', actor: 'token:ann', via: 'api' }

beforeEach(async () => {
  await pool.query(
    'truncate email_sends, send_attempts, settlements, delivery_reports, follow_ups, webhook_events, audit_log cascade',
  )
  await resetControl(pool)
})

const CALLED = new Date('2026-11-29T14:02:07Z')
const at = (seconds: number) => new Date(CALLED.getTime() + seconds * 1_000)

/** A send of version 1 whose call to ada@example.com ended unknown. */
async function unknownSend(
  key: string,
  columns: Record<string, unknown> = {},
  attempt: Record<string, unknown> = {},
): Promise<string> {
  await insertSend(pool, key, { state: 'needs_review', queued_at: CALLED, claimed_at: CALLED, ...columns })
  const id = await insertAttempt(pool, key, {
    outcome: 'unknown',
    claimed_at: CALLED,
    called_at: CALLED,
    ended_at: at(15),
    ...attempt,
  })
  await pool.query('update email_sends set claim_token = $2 where dedupe_key = $1', [key, id])
  return id
}

async function report(messageId: string | undefined, others: Record<string, unknown> = {}): Promise<string> {
  const event = await insertEvent(pool, `e${Math.random()}`, { source: 'inboxili' })
  await inTransaction(pool, (tx) =>
    settle(
      tx,
      {
        event,
        kind: 'delivered',
        recipient: 'ada@example.com',
        occurredAt: at(24),
        hasOwnTime: true,
        ...(messageId !== undefined && { messageId }),
        ...others,
      },
      false,
    ),
  )
  return event
}

const attach = (key: string, event: string, others: Partial<AttachRequest> = {}) =>
  attachReport(deps, key, { event, version: 1, ...by, ...others })
const audits = async () =>
  (await pool.query('select actor, via, action, subject, reason, before, after from audit_log order by id')).rows
const settlements = async () =>
  (await pool.query('select dedupe_key, event, grade, from_state, to_state, evidence, actor from settlements order by id')).rows
const reportRow = async (event: string) =>
  (
    await pool.query('select attempt, parked, dismissed_at is not null as dismissed from delivery_reports where event = $1', [
      event,
    ])
  ).rows[0]

describe('attaching a report', () => {
  test('closes the send by it: with its fact, its message and grade P, audited', async () => {
    const attempt = await unknownSend('k')
    const event = await report('m_93c')

    const attached = await attach('k', event)

    const { version } = (await sendRow(pool, 'k', 'version')) ?? {}
    expect(attached).toEqual({ outcome: 'attached', status: 'delivered', version })
    expect(await sendRow(pool, 'k', 'status', 'message_id', 'delivered_at', 'settled_by')).toEqual({
      status: 'delivered',
      message_id: 'm_93c',
      delivered_at: at(24),
      settled_by: 'token:ann',
    })
    expect(await attemptsOf(pool, 'k')).toMatchObject([{ outcome: 'unknown', message_id: 'm_93c' }])
    expect(await reportRow(event)).toEqual({ attempt, parked: null, dismissed: false })
    expect(await settlements()).toEqual([
      {
        dedupe_key: 'k',
        event,
        grade: 'P',
        from_state: 'needs_review',
        to_state: 'sent',
        evidence: { reason: 'seen in the dashboard' },
        actor: 'token:ann',
      },
    ])
    expect(await audits()).toEqual([
      {
        actor: 'token:ann',
        via: 'api',
        action: 'attach',
        subject: 'send:k',
        reason: 'seen in the dashboard',
        before: { state: 'needs_review', version: 1 },
        after: { state: 'sent', version, event: Number(event) },
      },
    ])
    expect(await checkInvariants(pool, 300_000)).toEqual([])
  })

  test('takes the other reports of the same message with it', async () => {
    await unknownSend('k')
    const delivered = await report('m1')
    const bounced = await report('m1', { kind: 'bounced', bounceKind: 'hard', occurredAt: at(60) })

    await attach('k', delivered)

    expect(await sendRow(pool, 'k', 'status')).toEqual({ status: 'bounced' })
    expect(await reportRow(bounced)).toMatchObject({ parked: null })
    expect((await settlements()).map(({ grade }) => grade)).toEqual(['P'])
  })

  test('of a kind that settles nothing by itself closes it too, as the message exists', async () => {
    await unknownSend('k')

    await attach('k', await report('m1', { kind: 'complained' }))

    expect(await sendRow(pool, 'k', 'status', 'complained_at')).toEqual({ status: 'sent', complained_at: at(24) })
  })

  test('without a message id adds its fact and no message', async () => {
    await unknownSend('k')

    expect(await attach('k', await report(undefined))).toMatchObject({ outcome: 'attached', status: 'delivered' })
    expect(await sendRow(pool, 'k', 'message_id')).toEqual({ message_id: null })
  })

  test('goes to the last call before it', async () => {
    await unknownSend('k')
    const second = await insertAttempt(pool, 'k', { number: 2, outcome: 'unknown', claimed_at: at(600), called_at: at(600) })
    await insertAttempt(pool, 'k', { number: 3, outcome: 'unknown', claimed_at: at(9_000), called_at: at(9_000) })

    const event = await report('m1', { occurredAt: at(700) })
    await attach('k', event)

    expect(await reportRow(event)).toMatchObject({ attempt: second })
  })

  test('drops a resend that waits, as the email has gone out', async () => {
    await unknownSend('k', { state: 'queued' })

    expect(await attach('k', await report('m1'))).toMatchObject({ outcome: 'attached', status: 'delivered' })
    expect(await settlements()).toMatchObject([{ from_state: 'queued', to_state: 'sent', grade: 'P' }])
  })

  test('of a send that a person has closed explains the message and overrides nobody', async () => {
    await unknownSend('k', { state: 'abandoned' })
    const event = await report('m1')

    expect(await attach('k', event)).toMatchObject({ outcome: 'attached', status: 'abandoned' })
    expect(await reportRow(event)).toMatchObject({ parked: null })
    expect(await settlements()).toMatchObject([{ from_state: 'abandoned', to_state: 'abandoned', grade: 'P' }])
  })

  test('I16 counts the version up even where it changes nothing else, so that no other decision is about the same one', async () => {
    await unknownSend('k', { state: 'abandoned' })

    expect(await attach('k', await report('m1', { kind: 'opened' }))).toEqual({
      outcome: 'attached',
      status: 'abandoned',
      version: 2,
    })
    expect(await attach('k', await report('m1', { kind: 'clicked' }))).toMatchObject({ outcome: 'report_taken' })
  })

  test('lets what it explains be told: the other message of the recipient settles', async () => {
    await unknownSend('k1')
    const first = await report('m1')
    const second = await report('m2', { occurredAt: at(30) })
    await insertSend(pool, 'k2', { state: 'needs_review', queued_at: CALLED })
    await insertAttempt(pool, 'k2', { outcome: 'unknown', claimed_at: CALLED, called_at: CALLED })

    await attachReport({ ...deps, isExclusive: () => true }, 'k1', { event: first, version: 1, ...by })

    expect(await reportRow(second)).toMatchObject({ parked: null })
    expect(await sendRow(pool, 'k2', 'status', 'message_id')).toEqual({ status: 'delivered', message_id: 'm2' })
  })
})

describe('what is refused', () => {
  const unchanged = async (key: string, event: string) => {
    expect(await sendRow(pool, key, 'state', 'version')).toEqual({ state: 'needs_review', version: 1 })
    expect(await reportRow(event)).toMatchObject({ attempt: null })
    expect(await audits()).toEqual([])
  }

  test('I16 another version than the one that was seen', async () => {
    await unknownSend('k')
    const event = await report('m1')

    expect(await attach('k', event, { version: 2 })).toEqual({ outcome: 'stale', status: 'needs_review', version: 1 })
    await unchanged('k', event)
  })

  test('a report that names another recipient, unless the person says that it is the same mailbox', async () => {
    await unknownSend('k')
    const event = await report('m1', { recipient: 'ada@work.example.com' })

    expect(await attach('k', event)).toEqual({ outcome: 'other_mailbox' })
    await unchanged('k', event)
    expect(await attach('k', event, { isOtherMailbox: true })).toMatchObject({ outcome: 'attached' })
    expect(await settlements()).toMatchObject([{ evidence: { isOtherMailbox: true } }])
  })

  test('I10 a message that is another call’s', async () => {
    await unknownSend('k')
    const event = await report('m1')
    await insertSend(pool, 'owner', { state: 'sent', recipient: 'bob@example.com' })
    await insertAttempt(pool, 'owner', { recipient: 'bob@example.com', outcome: 'accepted', message_id: 'm1' })

    expect(await attach('k', event)).toEqual({ outcome: 'message_taken' })
    await unchanged('k', event)
  })

  test('a send none of whose calls may have sent', async () => {
    await insertSend(pool, 'k', { state: 'needs_review' })
    await insertAttempt(pool, 'k', { outcome: 'refused' })
    const event = await report('m1')

    expect(await attach('k', event)).toEqual({ outcome: 'no_call' })
    await unchanged('k', event)
  })

  test.each(['claimed', 'sending'])('a send that is %s', async (state) => {
    await unknownSend('k', { state })

    expect(await attach('k', await report('m1'))).toEqual({ outcome: 'not_allowed', status: state, version: 1 })
  })

  test('what nobody knows', async () => {
    await unknownSend('k')

    expect(await attach('nobody', await report('m1'))).toEqual({ outcome: 'not_found' })
    expect(await attach('k\0', '1')).toEqual({ outcome: 'not_found' })
    expect(await attach('k', '999999999')).toEqual({ outcome: 'report_not_found' })
  })
})

describe('at the same time', () => {
  test('I16 of twenty who attach one report one wins, and it alone is audited', async () => {
    await unknownSend('k')
    const event = await report('m1')

    const attached = await Promise.all(Array.from({ length: 20 }, (_, n) => attach('k', event, { actor: `p${n}` })))

    const winner = attached.findIndex(({ outcome }) => outcome === 'attached')
    expect(attached.filter(({ outcome }) => outcome === 'report_taken')).toHaveLength(19)
    expect((await audits()).map(({ actor }) => actor)).toEqual([`p${winner}`])
    expect(await settlements()).toHaveLength(1)
  })

  test('I10 I16 one report for two sends belongs to one of them', async () => {
    await unknownSend('k1')
    await unknownSend('k2')
    const event = await report('m1')

    const attached = await Promise.all([attach('k1', event), attach('k2', event)])

    expect(attached.map(({ outcome }) => outcome).sort()).toEqual(['attached', 'report_taken'])
    const { rows } = await pool.query(`select dedupe_key from email_sends where state = 'sent'`)
    expect(rows).toHaveLength(1)
  })

  test('I10 two reports of two messages for one send: the second is stale', async () => {
    await unknownSend('k')
    const [first, second] = [await report('m1'), await report('m2')]

    const attached = await Promise.all([attach('k', first), attach('k', second)])

    expect(attached.map(({ outcome }) => outcome).sort()).toEqual(['attached', 'stale'])
    expect(await settlements()).toHaveLength(1)
  })

  test('the late answer of the call itself, which has this message, waits for it and finds it settled', async () => {
    const attempt = await unknownSend('k')
    const event = await report('m1')
    const client = await pool.connect()
    await client.query('begin')
    await client.query('select from email_sends where dedupe_key = $1 for update', ['k'])

    const attaching = attach('k', event)
    await untilWaiting(pool)
    await client.query(`update send_attempts set outcome = 'accepted', message_id = 'm1' where id = $1`, [attempt])
    await client.query(
      `update email_sends set state = 'sent', completed_at = now(), message_id = 'm1', version = version + 1 where dedupe_key = 'k'`,
    )
    await client.query('commit')
    client.release()

    expect(await attaching).toEqual({ outcome: 'stale', status: 'sent', version: 2 })
    expect(await audits()).toEqual([])
  })

  test('takes the locks of the recipient and the message before any row, as everybody who binds a message does', async () => {
    for (const name of ['recipient:ada@example.com', 'message:m1']) {
      const key = `k ${name}`
      await unknownSend(key)
      const event = await report('m1')
      const client = await pool.connect()
      await client.query('begin')
      await client.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [name])

      const attaching = attach(key, event)
      await untilWaiting(pool)
      await client.query('update email_sends set version = version + 1 where dedupe_key = $1', [key])
      await client.query('commit')
      client.release()

      expect(await attaching).toMatchObject({ outcome: 'stale', version: 2 })
    }
  })

  test('a crash on the way leaves nothing, and the repeat does all', async () => {
    await unknownSend('k')
    const event = await report('m1')
    await pool.query(`create function fail() returns trigger language plpgsql as $$ begin raise 'disk full'; end $$`)
    await pool.query('create trigger fail before insert on audit_log for each row execute function fail()')

    await expect(attach('k', event)).rejects.toThrow('disk full')
    expect(await sendRow(pool, 'k', 'state', 'version', 'message_id')).toEqual({
      state: 'needs_review',
      version: 1,
      message_id: null,
    })
    expect(await reportRow(event)).toMatchObject({ attempt: null, parked: 'account not exclusive' })

    await pool.query('drop trigger fail on audit_log')
    await pool.query('drop function fail')
    expect(await attach('k', event)).toMatchObject({ outcome: 'attached' })
  })
})

describe('a report that is not ours', () => {
  const dismiss = (event: string, actor = 'person:ann') => dismissReport(deps, event, { ...by, actor })

  test('is told so once, audited, and matches nothing by its recipient any more', async () => {
    await unknownSend('k')
    const event = await report('m1')

    expect(await Promise.all(Array.from({ length: 5 }, () => dismiss(event)))).toEqual(
      Array.from({ length: 5 }, () => ({ outcome: 'dismissed' })),
    )

    expect(await reportRow(event)).toMatchObject({ dismissed: true, attempt: null })
    expect(await audits()).toEqual([
      {
        actor: 'person:ann',
        via: 'api',
        action: 'not ours',
        subject: `event:${event}`,
        reason: 'seen in the dashboard',
        before: { parked: 'account not exclusive' },
        after: null,
      },
    ])
    // Even where it would settle by itself.
    expect(await rematch(pool, 'ada@example.com', true)).toBe(0)
    expect(await sendRow(pool, 'k', 'state')).toEqual({ state: 'needs_review' })
  })

  test('is not matched when its event is processed again', async () => {
    await unknownSend('k')
    const event = await report('m1')
    await dismiss(event)

    await inTransaction(pool, (tx) =>
      settle(
        tx,
        {
          event,
          kind: 'delivered',
          messageId: 'm1',
          recipient: 'ada@example.com',
          occurredAt: at(24),
          hasOwnTime: true,
        },
        true,
      ),
    )

    expect(await reportRow(event)).toMatchObject({ dismissed: true, attempt: null })
    expect(await sendRow(pool, 'k', 'state')).toEqual({ state: 'needs_review' })
  })

  test('still keeps other messages of the recipient from being taken for certain', async () => {
    const event = await report('m1')
    await dismiss(event)
    await pool.query(`update sending_control set matching = 'auto'`)
    await unknownSend('k')
    const other = await report('m2', { occurredAt: at(30) })

    await rematch(pool, 'ada@example.com', true)

    expect(await reportRow(other)).toMatchObject({ parked: 'other message' })
  })

  test('is attached all the same when a person finds out better', async () => {
    await unknownSend('k')
    const event = await report('m1')
    await dismiss(event)

    expect(await attach('k', event)).toMatchObject({ outcome: 'attached' })
    expect(await reportRow(event)).toMatchObject({ dismissed: false, parked: null })
  })

  test('belongs to its call when the call itself names the message', async () => {
    const attempt = await unknownSend('k')
    const event = await report('m1')
    await dismiss(event)
    await pool.query(`update send_attempts set message_id = 'm1' where id = $1`, [attempt])

    await report('m1', { kind: 'bounced', bounceKind: 'hard' })

    expect(await reportRow(event)).toMatchObject({ attempt })
  })

  test('is none that a send has', async () => {
    await unknownSend('k')
    const event = await report('m1')
    await attach('k', event)

    expect(await dismiss(event)).toEqual({ outcome: 'report_taken' })
    expect(await dismiss('999999999')).toEqual({ outcome: 'not_found' })
  })
})
