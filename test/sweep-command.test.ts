import { beforeEach, expect, test } from 'vitest'
import { sweepCommand } from '../src/cli/sweep.ts'
import { readConfig } from '../src/config.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import { jobsOf, patientDatabase, resetControl, sendRow } from './support/sends.ts'

const { pool, url } = await patientDatabase()
const settings = {
  databaseUrl: url,
  staleAfterMs: 300_000,
  reviewAfterMs: 600_000,
  keepBodiesDays: 90,
  sweepEveryMs: 30_000,
  probeEveryMs: 60_000,
}
const configOf = (account: 'exclusive' | 'shared') => readConfig({ sources: {}, followUps: [], inboxili: { account } })
const sweep = async (account: 'exclusive' | 'shared' | undefined = 'exclusive', options = {}) =>
  sweepCommand(pool, settings, account && configOf(account), { json: true, ...options })

const longAgo = new Date('2020-01-01T00:00:00Z')
const claimed = new Date(Date.now() - 3_600_000)

beforeEach(async () => {
  await pool.query(
    'truncate email_sends, send_attempts, settlements, delivery_reports, webhook_events, source_minutes, runs, decision_plans, sign_in_attempts, form_submissions cascade; delete from pgboss.job',
  )
  await resetControl(pool)
  // One of each that a sweep finds.
  await insertSend(pool, 'claimed', { state: 'claimed', claimed_at: longAgo })
  await insertSend(pool, 'sending', { state: 'sending', claimed_at: longAgo, sending_at: longAgo })
  await insertSend(pool, 'orphan')
  await insertSend(pool, 'resend', { state: 'needs_review', policy: 'prefer_duplicate', recipient: 'di@example.com' })
  await insertAttempt(pool, 'resend', {
    recipient: 'di@example.com',
    outcome: 'unknown',
    claimed_at: longAgo,
    called_at: longAgo,
    ended_at: longAgo,
  })
  await insertSend(pool, 'unknown', { state: 'needs_review', recipient: 'bea@example.com' })
  await insertAttempt(pool, 'unknown', {
    recipient: 'bea@example.com',
    outcome: 'unknown',
    claimed_at: claimed,
    ended_at: claimed,
  })
  const report = await insertEvent(pool, 'm1:delivered', { source: 'inboxili', type: 'delivered' })
  await insertReport(pool, report, {
    message_id: 'm1',
    recipient: 'bea@example.com',
    match_key: 'bea@example.com',
    occurred_at: new Date(claimed.getTime() + 5_000),
    parked: 'in flight',
  })
  await insertEvent(pool, 'evt_pending', { status: 'pending', processed_at: null })
  await insertEvent(pool, 'evt_old', { received_at: longAgo })
  const replayed = await insertEvent(pool, 'evt_replayed')
  await pool.query(
    `insert into runs (filter, events, created_by, expires_at, state, started_at, started_by, via)
     values ('{}', $1, 'mia', now(), 'running', now(), 'mia', 'api')`,
    [[replayed]],
  )
  await pool.query(
    `insert into decision_plans (decision, reason, has_more, created_by, expires_at, state, started_at, started_by, via)
     values ('abandoned', 'an outage', false, 'mia', now(), 'running', now() - interval '2 minutes', 'mia', 'api')`,
  )
  await pool.query(
    `insert into source_minutes (source, minute, outcome, cause, count) values ('stripe', '2020-01-01', 'refused', 'signature_mismatch', 1)`,
  )
  await pool.query(
    `insert into sign_in_attempts (kind, subject_sha256, tries, since) values ('address', 'x', 1, now() - interval '16 minutes')`,
  )
  await pool.query(
    `insert into form_submissions (id, person, action, at) values (gen_random_uuid(), 'mia', '/ops/x', now() - interval '3 days')`,
  )
})

test('every sweep runs once and says what it changed; a second one finds nothing', async () => {
  const { stdout, stderr, exitCode } = await sweep()

  expect(JSON.parse(stdout)).toEqual({
    sends: { staleClaims: 1, staleCalls: 1, orphanSends: 1, resends: 1, joinedMessages: 1, restores: 0 },
    events: { orphanEvents: 1 },
    runs: { batches: 1 },
    plans: { plans: 1 },
    bodies: { emptied: 1 },
    minutes: { forgotten: 1 },
    forms: { oldForms: 1 },
    'sign-ins': { signIns: 1 },
  })
  expect([stderr, exitCode]).toEqual(['', 0])
  expect(await sendRow(pool, 'claimed', 'state')).toEqual({ state: 'queued' })
  expect(await sendRow(pool, 'sending', 'state')).toEqual({ state: 'needs_review' })
  expect(await sendRow(pool, 'unknown', 'status')).toEqual({ status: 'delivered' })
  expect(await jobsOf(pool, 'orphan')).toHaveLength(1)

  const again = JSON.parse((await sweep()).stdout) as Record<string, Record<string, number>>
  expect(Object.values(again).flatMap((counts) => Object.values(counts))).toEqual(Array(13).fill(0))
})

test('settles nothing by recipient on an account that others use, or may use', async () => {
  const { stdout } = await sweep('shared')

  expect(JSON.parse(stdout)).toMatchObject({ sends: { joinedMessages: 0 } })
  expect(await sendRow(pool, 'unknown', 'state')).toEqual({ state: 'needs_review' })
})

test('without a configuration nothing settles by recipient and no replay goes on; all else is swept', async () => {
  const { stdout, exitCode } = await sweepCommand(pool, settings, undefined, { json: true })

  const swept = JSON.parse(stdout)
  expect(Object.keys(swept)).toEqual(['sends', 'events', 'plans', 'bodies', 'minutes', 'forms', 'sign-ins'])
  expect([swept.sends.joinedMessages, swept.sends.staleClaims, exitCode]).toEqual([0, 1, 0])
  expect((await pool.query('select state from runs')).rows).toEqual([{ state: 'running' }])
})

test('a restored database is noticed, so that sending is held until a person has looked', async () => {
  await pool.query(`update sending_control set database_id = 'another'`)

  const { stdout } = await sweep()

  expect(JSON.parse(stdout)).toMatchObject({ sends: { restores: 1 } })
  expect((await pool.query('select held_by from sending_control')).rows).toEqual([{ held_by: 'restore' }])
})

test('two at once change each thing once', async () => {
  const swept = await Promise.all([sweep(), sweep(), sweep()])

  const sums: Record<string, number> = {}
  for (const { stdout } of swept)
    for (const counts of Object.values(JSON.parse(stdout) as Record<string, Record<string, number>>))
      for (const [name, count] of Object.entries(counts)) sums[name] = (sums[name] ?? 0) + count
  expect(sums).toMatchObject({
    staleClaims: 1,
    staleCalls: 1,
    resends: 1,
    orphanEvents: 1,
    plans: 1,
    batches: 1,
    emptied: 1,
    forgotten: 1,
    oldForms: 1,
    signIns: 1,
  })
  expect(await jobsOf(pool, 'claimed')).toHaveLength(1)
})

test('one that fails is named, and the others run', async () => {
  await pool.query('alter table source_minutes rename to source_minutes_away')
  const { stdout, stderr, exitCode } = await sweep()
  await pool.query('alter table source_minutes_away rename to source_minutes')

  expect(exitCode).toBe(1)
  expect(stderr).toBe('oncehook: the sweep of minutes failed: relation "source_minutes" does not exist\n')
  expect(JSON.parse(stdout)).toMatchObject({ sends: { staleClaims: 1 }, bodies: { emptied: 1 } })
})

test('for people it is a table, for pipes tab-separated', async () => {
  const table = await sweep('exclusive', { json: false, width: 80, unicode: true })
  const piped = await sweep('exclusive', { json: false })

  expect(table.stdout.split('\n').slice(0, 3)).toEqual([
    'SWEEP     CHANGED  WHAT',
    'sends           1  claims without a call, queued again',
    'sends           1  calls without an answer, in front of a person',
  ])
  expect(piped.stdout.split('\n')[0]).toBe('sends\t0\tclaims without a call, queued again')
})
