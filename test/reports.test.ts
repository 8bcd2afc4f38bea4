import { beforeEach, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { createLog } from '../src/log.ts'
import { maskFor } from '../src/ops/personal-data.ts'
import { countReports, listReports, reportFilter } from '../src/ops/report-queries.ts'
import { dismissReport } from '../src/sends/attach.ts'
import { settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import { patientDatabase, resetControl } from './support/sends.ts'

const { pool } = await patientDatabase()

beforeEach(async () => {
  await pool.query(
    'truncate email_sends, send_attempts, settlements, delivery_reports, follow_ups, webhook_events, audit_log cascade',
  )
  await resetControl(pool)
})

const CALLED = new Date('2026-11-29T14:02:07Z')
const at = (seconds: number) => new Date(CALLED.getTime() + seconds * 1_000)

async function unknownSend(key: string, seconds = 0): Promise<void> {
  await insertSend(pool, key, { state: 'needs_review', queued_at: CALLED })
  await insertAttempt(pool, key, { outcome: 'unknown', claimed_at: at(seconds), called_at: at(seconds) })
}

async function report(messageId: string | undefined, recipient: string | undefined, seconds = 24): Promise<string> {
  const event = await insertEvent(pool, `${messageId}:${Math.random()}`, { source: 'inboxili' })
  await inTransaction(pool, (tx) =>
    settle(
      tx,
      {
        event,
        kind: 'delivered',
        occurredAt: at(seconds),
        hasOwnTime: true,
        ...(messageId !== undefined && { messageId }),
        ...(recipient !== undefined && { recipient }),
      },
      true,
    ),
  )
  return event
}

const list = (query: Record<string, string> = {}) => listReports(pool, reportFilter.parse(query))

test('unmatched reports come newest first, each with the sends that they may be of, the nearest first', async () => {
  await unknownSend('k1')
  await unknownSend('k2', 20)
  const foreign = await report('m1', 'nobody@example.org')
  const ambiguous = await report('m2', 'ada@example.com')
  const nameless = await report(undefined, 'ada@example.com', 22)

  const { reports } = await list()

  const candidate = (dedupe_key: string, seconds_after_call: number) => ({
    dedupe_key,
    status: 'needs_review',
    version: 1,
    attempt: 1,
    seconds_after_call,
  })
  expect(reports).toMatchObject([
    { event: nameless, parked: 'no message id', message_id: null, candidates: [candidate('k2', 2), candidate('k1', 22)] },
    { event: ambiguous, parked: 'ambiguous', message_id: 'm2', candidates: [candidate('k2', 4), candidate('k1', 24)] },
    { event: foreign, parked: 'foreign', recipient: 'nobody@example.org', source: 'inboxili', candidates: [] },
  ])
  expect(await countReports(pool)).toEqual({ ambiguous: 1, foreign: 1, 'no message id': 1 })
})

test('the list goes by pages and by why they are parked', async () => {
  for (let n = 0; n < 5; n += 1) await report(`m${n}`, `r${n}@example.org`)
  await report(undefined, undefined)

  const first = await list({ limit: '2', parked: 'foreign' })
  const second = await list({ limit: '2', parked: 'foreign', cursor: first.next_cursor ?? '' })
  const third = await list({ limit: '2', parked: 'foreign', cursor: second.next_cursor ?? '' })

  expect([first, second, third].map(({ reports }) => reports.map(({ message_id }) => message_id))).toEqual([
    ['m4', 'm3'],
    ['m2', 'm1'],
    ['m0'],
  ])
  expect(third.next_cursor).toBe(null)
})

test('what a person has dismissed, and what has found its call, leave the list', async () => {
  const event = await report('m1', 'nobody@example.org')
  await dismissReport({ pool, log: createLog('silent', 'test') }, event, {
    reason: 'the shop sends with the account too',
    actor: 'person:mia',
    via: 'page',
  })
  await unknownSend('k')
  await pool.query(`update sending_control set matching = 'auto'`)
  await report('m2', 'ada@example.com')

  expect((await list()).reports).toEqual([])
  expect((await list({ dismissed: 'true' })).reports).toMatchObject([{ event, dismissed_by: 'person:mia' }])
  expect(await countReports(pool)).toEqual({})
})

test.each([{ limit: '0' }, { limit: '201' }, { dismissed: 'yes' }, { cursor: 'x' }, { other: '1' }])(
  'the filter refuses %o',
  (query) => {
    expect(reportFilter.safeParse(query).success).toBe(false)
  },
)

test('personal data is masked for readers only, and only where the configuration says so', () => {
  const send = {
    dedupe_key: 'welcome:ada@example.com',
    recipient: 'ada@example.com',
    subject: 'Your receipt for Ada',
    queued_at: CALLED,
    last_error: '422 send_failed: <ada@example.com> is blocked',
    message: { to: 'Ada <ada@example.com>', html_body: '<p>Dear Ada</p>', template_data: { name: 'Ada' }, from_name: 'Shop' },
    attempts: [{ number: 1, recipient: 'ünï+tag@bücher.example', error: null }],
  }

  expect(maskFor('operator', { hidePersonalData: true }).apply(send)).toBe(send)
  expect(maskFor('reader', { hidePersonalData: false }).apply(send)).toBe(send)
  const mask = maskFor('reader', { hidePersonalData: true })
  expect(mask.isOn).toBe(true)
  expect(mask.apply(send)).toEqual({
    dedupe_key: 'welcome:ada@example.com',
    recipient: 'a•••@example.com',
    subject: '(hidden)',
    queued_at: CALLED,
    last_error: '422 send_failed: <a•••@example.com> is blocked',
    message: { to: 'Ada <a•••@example.com>', html_body: '(hidden)', template_data: {}, from_name: '(hidden)' },
    attempts: [{ number: 1, recipient: 'ü•••@bücher.example', error: null }],
  })
  expect(mask.text('report m1 → ada@example.com, and bob@example.org')).toBe('report m1 → a•••@example.com, and b•••@example.org')
})
