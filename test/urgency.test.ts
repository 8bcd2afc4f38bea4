import { beforeEach, expect, test } from 'vitest'
import { openJobs } from '../src/follow-ups/queue.ts'
import { processEvent } from '../src/follow-ups/rules.ts'
import { requestSend } from '../src/ops/request-send.ts'
import { decide } from '../src/sends/decide.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import { message, patientDatabase } from './support/sends.ts'
import { testService } from './support/service.ts'

const database = await patientDatabase()
const { pool, url } = database
const jobs = await openJobs(url)
const service = await testService(database, {
  sources: { stripe: { provider: 'stripe', secrets: ['whsec_of_the_tests'] } },
  followUps: [
    {
      source: 'stripe',
      type: 'invoice.paid',
      email: ({ id }) => ({ key: `receipt:${id}`, ...message('ada@example.com') }),
    },
  ],
})

beforeEach(() => pool.query('truncate email_sends, webhook_events, follow_ups, audit_log cascade; delete from pgboss.job'))

/** Priorities of the jobs, by what they are about. */
async function priorities(): Promise<Record<string, number>> {
  const { rows } = await pool.query<{ about: string; priority: number }>(
    `select coalesce(data ->> 'key', 'event ' || (data ->> 'event')) as about, priority from pgboss.job where state < 'completed'`,
  )
  return Object.fromEntries(rows.map(({ about, priority }) => [about, priority]))
}

const pending = (eventId: string) => insertEvent(pool, eventId, { status: 'pending', processed_at: null })
const process = (event: string, urgency?: 'fresh' | 'backlog') =>
  processEvent(
    { pool, config: () => service.config.current, enqueue: jobs.enqueueSends, log: service.deps.log },
    event,
    false,
    urgency,
  )

test('what an event or the API has just asked for is fresh', async () => {
  await process(await pending('evt_1'))
  await requestSend(
    pool,
    jobs.enqueueSends,
    { dedupe_key: 'asked', policy: 'claim', message: message('bea@example.com') },
    { requestedBy: 'token:shop' },
  )

  expect(await priorities()).toEqual({ 'receipt:evt_1': 0, asked: 0 })
})

test('a replayed event is of the backlog, and so is what it asks for', async () => {
  const event = await insertEvent(pool, 'evt_2')
  await service.replay(event)
  await process(event, 'backlog')

  expect(await priorities()).toEqual({ [`event ${event}`]: -1, 'receipt:evt_2': -1 })
})

test('what the sweeps bring is of the backlog', async () => {
  await insertSend(pool, 'orphan')
  await insertSend(pool, 'stale', { state: 'claimed', claimed_at: new Date(0) })
  await insertSend(pool, 'again', { state: 'needs_review', policy: 'prefer_duplicate' })
  await insertAttempt(pool, 'again', { outcome: 'unknown', called_at: new Date(0), ended_at: new Date(0) })

  await service.sweep(1_000)

  expect(await priorities()).toEqual({ orphan: -1, stale: -1, again: -1 })
})

test('a repeat after a 429 and a resend by a person are of the backlog', async () => {
  await insertSend(pool, 'limited', { recipient: 'limited@example.com', message: JSON.stringify(message('limited@example.com')) })
  service.sandbox.arm({ kind: 'rate_limited', retryAfter: 60 }, { to: 'limited@example.com' })
  await service.send('limited')
  await insertSend(pool, 'unknown', { state: 'needs_review' })
  const decided = await decide(pool, jobs.enqueueSends, 'unknown', {
    decision: 'retry',
    version: 1,
    reason: 'not in the log',
    actor: 'ann',
    via: 'test',
  })

  expect(decided.outcome).toBe('decided')
  expect(await priorities()).toEqual({ limited: -1, unknown: -1 })
})
