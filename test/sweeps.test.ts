import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { sweepEvents } from '../src/events/sweeps.ts'
import { findEventsWithoutJob, openJobs } from '../src/follow-ups/queue.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import {
  attemptsOf,
  callsTo,
  finishJobs,
  insertCall,
  jobsOf,
  message,
  patientDatabase,
  queueSend,
  resetControl,
  sendRow,
} from './support/sends.ts'
import { connect, testService } from './support/service.ts'

const database = await patientDatabase()
const { pool, url } = database
const service = await testService(database, { sources: {} })
const { deps } = service
const jobs = await openJobs(url)

const STALE_AFTER_MS = 300_000
const nothing = { staleClaims: 0, staleCalls: 0, orphanSends: 0, resends: 0, joinedMessages: 0 }
const sweep = () => service.sweep(STALE_AFTER_MS)
const sweepPendingEvents = () => sweepEvents(pool, findEventsWithoutJob, jobs.enqueueEvents)

let number = 0
let key = ''

beforeEach(() => {
  number += 1
  key = `k${number}`
})

// A sweep looks at all rows, so no test leaves any for the next.
afterEach(async () => {
  await resetControl(pool)
  await pool.query(
    'truncate email_sends, send_attempts, follow_ups, delivery_reports, settlements, webhook_events, webhook_bodies, webhook_conflicts cascade',
  )
  await pool.query('delete from pgboss.job')
})

const row = (...fields: string[]) => sendRow(pool, key, ...fields)

/** A claim of this age, whose worker is gone. */
async function insertClaim(name: string, seconds: number): Promise<void> {
  await queueSend(service, name)
  const attempt = await insertAttempt(pool, name)
  await pool.query(
    `update email_sends set state = 'claimed', claim_token = $2, claimed_at = now() - $3 * interval '1 s' where dedupe_key = $1`,
    [name, attempt, seconds],
  )
  await finishJobs(pool, 'key', name)
}

/** A call of this age, whose worker is gone. */
const insertOldCall = (name: string, seconds: number) =>
  insertCall(pool, name, { sending_at: new Date(Date.now() - seconds * 1_000) })

describe('I13 what a dead worker left', () => {
  test('a stale claim waits again with a job of its own; a fresh one is left alone', async () => {
    await insertClaim(key, 301)
    await insertClaim(`${key}-fresh`, 290)

    expect(await sweep()).toEqual({ ...nothing, staleClaims: 1 })

    expect(await row('state', 'version', 'claim_token', 'last_error')).toEqual({
      state: 'queued',
      version: 2,
      claim_token: null,
      last_error: 'the worker stopped before the call; nothing was sent',
    })
    expect(await attemptsOf(pool, key)).toMatchObject([{ number: 1, outcome: 'never_called' }])
    expect(await jobsOf(pool, key)).toHaveLength(1)
    expect(await sendRow(pool, `${key}-fresh`, 'state')).toEqual({ state: 'claimed' })
    expect(await jobsOf(pool, `${key}-fresh`)).toEqual([])
    await sendOnce(deps, key)
    expect(callsTo(service, `${key}@example.com`)).toBe(1)
  })

  test('a stale call goes before a person, without a job; a fresh one is left alone', async () => {
    await insertOldCall(key, 301)
    await insertOldCall(`${key}-fresh`, 290)

    expect(await sweep()).toEqual({ ...nothing, staleCalls: 1 })

    expect(await row('state', 'version', 'last_error')).toEqual({
      state: 'needs_review',
      version: 2,
      last_error: 'worker stopped during send',
    })
    expect(await attemptsOf(pool, key)).toMatchObject([{ outcome: 'unknown', error: 'worker stopped during send' }])
    expect(await jobsOf(pool, key)).toEqual([])
    expect(await sendRow(pool, `${key}-fresh`, 'state')).toEqual({ state: 'sending' })
  })

  test('a call is as old as its start, not as its claim', async () => {
    await insertCall(pool, key, { claimed_at: new Date(Date.now() - 3_600_000) })

    expect(await sweep()).toEqual(nothing)
    expect(await row('state')).toEqual({ state: 'sending' })
  })

  test('ten sweeps at once move each row once', async () => {
    for (let index = 0; index < 10; index += 1) {
      await insertClaim(`${key}-claim-${index}`, 301)
      await insertOldCall(`${key}-call-${index}`, 301)
    }

    const results = await Promise.all(Array.from({ length: 10 }, sweep))

    expect(results.reduce((sum, it) => sum + it.staleClaims, 0)).toBe(10)
    expect(results.reduce((sum, it) => sum + it.staleCalls, 0)).toBe(10)
    const { rows } = await pool.query(
      `select sends.state, version, outcome, count(*)::int from email_sends sends join send_attempts using (dedupe_key) group by 1, 2, 3 order by 1`,
    )
    expect(rows).toEqual([
      { state: 'needs_review', version: 2, outcome: 'unknown', count: 10 },
      { state: 'queued', version: 2, outcome: 'never_called', count: 10 },
    ])
  })

  test('a sweep that fails before its commit moves nothing, and the next one does', async () => {
    await insertClaim(key, 301)
    const enqueue = async () => Promise.reject(new Error('killed'))
    const { sweepSends } = await import('../src/sends/sweeps.ts')
    await expect(
      sweepSends(pool, enqueue, { staleAfterMs: STALE_AFTER_MS, reviewAfterMs: 600_000, isExclusive: true }, async () => []),
    ).rejects.toThrow('killed')
    const left = [await row('state'), await attemptsOf(pool, key)]

    await sweep()

    expect(left).toMatchObject([{ state: 'claimed' }, [{ outcome: 'claimed' }]])
    expect(await row('state')).toEqual({ state: 'queued' })
  })

  test('a row that its worker holds at this moment is not waited for', async () => {
    await insertClaim(key, 301)
    const worker = await connect(url)
    await worker.query('begin')
    await worker.query(`update email_sends set state = 'sending', sending_at = now() where dedupe_key = $1`, [key])

    const during = await sweep()
    await worker.query('commit')
    await worker.end()

    expect(during).toEqual(nothing)
    expect(await sweep()).toEqual(nothing)
    expect(await row('state')).toEqual({ state: 'sending' })
  })
})

describe('what waits without a job', () => {
  test('a send whose jobs are all finished gets one new job', async () => {
    await queueSend(service, key)
    await finishJobs(pool, 'key', key)

    expect(await sweep()).toEqual({ ...nothing, orphanSends: 1 })
    expect(await sweep()).toEqual(nothing)

    expect(await jobsOf(pool, key)).toHaveLength(1)
    await sendOnce(deps, key)
    expect(callsTo(service, `${key}@example.com`)).toBe(1)
  })

  test.each(['created', 'retry', 'active'])('a send whose job is %s gets none', async (state) => {
    await queueSend(service, key)
    await pool.query(`update pgboss.job set state = $2 where data ->> 'key' = $1`, [key, state])

    expect(await sweep()).toEqual(nothing)
  })

  test.each(['completed', 'cancelled', 'failed'])('a send whose job is %s gets another', async (state) => {
    await queueSend(service, key)
    await pool.query(`update pgboss.job set state = $2 where data ->> 'key' = $1`, [key, state])

    expect(await sweep()).toEqual({ ...nothing, orphanSends: 1 })
  })

  test('of the rejected only one whose repeat is planned gets a job', async () => {
    await insertSend(pool, `${key}-planned`, { state: 'rejected', send_after: new Date() })
    for (const state of ['rejected', 'sent', 'needs_review', 'abandoned']) await insertSend(pool, `${key}-${state}`, { state })

    expect(await sweep()).toEqual({ ...nothing, orphanSends: 1 })
    expect(await jobsOf(pool, `${key}-planned`)).toHaveLength(1)
  })

  test('a pending event whose jobs are all finished gets one new job', async () => {
    const id = await insertEvent(pool, `evt_${key}`, { status: 'pending', processed_at: null })
    await inTransaction(pool, (tx) => jobs.enqueueEvents(tx, [id]))
    const withJob = await sweepPendingEvents()
    await finishJobs(pool, 'event', id)

    expect([withJob, await sweepPendingEvents(), await sweepPendingEvents()]).toEqual([0, 1, 0])
  })

  test.each(['processed', 'ignored', 'failed', 'quarantined'])('an event that is %s gets none', async (status) => {
    await insertEvent(pool, `evt_${key}`, { status })

    expect(await sweepPendingEvents()).toBe(0)
  })
})

describe('delivery events that lie parked although their send is known', () => {
  test('are joined late, with their facts and their settlement', async () => {
    const { attempt } = await insertCall(pool, key)
    await pool.query(`update send_attempts set outcome = 'unknown', message_id = $2 where id = $1`, [attempt, `m-${key}`])
    await pool.query(`update email_sends set state = 'needs_review', message_id = $2 where dedupe_key = $1`, [key, `m-${key}`])
    const occurred_at = new Date('2026-11-29T12:00:00Z')
    for (const kind of ['delivered', 'complained']) {
      const event = await insertEvent(pool, `${key}:${kind}`, { source: 'inboxili' })
      await insertReport(pool, event, { kind, message_id: `m-${key}`, occurred_at, parked: 'no send has this message id' })
    }

    expect(await sweep()).toEqual({ ...nothing, joinedMessages: 1 })
    expect(await sweep()).toEqual(nothing)

    expect(await row('status', 'delivered_at', 'complained_at')).toEqual({
      status: 'delivered',
      delivered_at: occurred_at,
      complained_at: occurred_at,
    })
    const { rows } = await pool.query('select grade, from_state from settlements')
    expect(rows).toEqual([{ grade: 'A', from_state: 'needs_review' }])
  })

  test('of unknown messages stay parked', async () => {
    const event = await insertEvent(pool, `${key}:delivered`, { source: 'inboxili' })
    await inTransaction(pool, (tx) =>
      settle(tx, { event, kind: 'delivered', messageId: 'nobody-s', occurredAt: new Date(), hasOwnTime: true }, true),
    )

    expect(await sweep()).toEqual(nothing)
    const { rows } = await pool.query('select parked from delivery_reports')
    expect(rows).toEqual([{ parked: 'no recipient' }])
  })
})

test('a sweep over a database where all is well changes nothing', async () => {
  await queueSend(service, key, message('ada@example.com'))
  await sendOnce(deps, key)
  const before = await row('*')

  expect(await sweep()).toEqual(nothing)
  expect(await row('*')).toEqual(before)
})
