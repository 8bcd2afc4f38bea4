import { createHash } from 'node:crypto'
import { beforeEach, describe, expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { createLog } from '../src/log.ts'
import { findEvidence } from '../src/ops/evidence.ts'
import { countReview, listReview, type ReviewFilter, reviewFilter } from '../src/ops/review-queries.ts'
import { excludeForm } from '../src/sends/address.ts'
import { dismissReport } from '../src/sends/attach.ts'
import { decide } from '../src/sends/decide.ts'
import { reconcile } from '../src/sends/reconcile.ts'
import { type LogLine, readTime } from '../src/sends/sending-log.ts'
import { rematch, settle } from '../src/sends/settle.ts'
import { chancesOf } from './support/chances.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import { patientDatabase, resetControl } from './support/sends.ts'

const { pool } = await patientDatabase()
const log = createLog('silent', 'test')

beforeEach(async () => {
  await pool.query(
    'truncate email_sends, send_attempts, settlements, delivery_reports, follow_ups, webhook_events, audit_log, sending_logs, log_absences cascade',
  )
  await resetControl(pool)
})

const CALLED = new Date('2026-11-29T14:02:07.114Z')
const NOW = new Date('2026-11-29T19:02:07.114Z')
const at = (seconds: number) => new Date(CALLED.getTime() + seconds * 1_000)

/** A send whose call to this recipient, at 14:02:07.114, ended without an answer 15 seconds later. */
async function unknownSend(
  key: string,
  columns: Record<string, unknown> = {},
  attempt: Record<string, unknown> = {},
): Promise<string> {
  await insertSend(pool, key, {
    state: 'needs_review',
    queued_at: CALLED,
    claimed_at: CALLED,
    last_error: 'no answer in 15 s',
    ...columns,
  })
  const id = await insertAttempt(pool, key, {
    outcome: 'unknown',
    claimed_at: CALLED,
    called_at: CALLED,
    ended_at: at(15),
    error: 'no answer in 15 s',
    ...(columns.recipient !== undefined && { recipient: columns.recipient, match_key: excludeForm(String(columns.recipient)) }),
    ...attempt,
  })
  await pool.query('update email_sends set claim_token = $2 where dedupe_key = $1', [key, id])
  return id
}

/** A report as it comes in; on a shared account it settles nothing by itself. Answers the row of its event. */
async function report(messageId: string | undefined, seconds: number, others: Record<string, unknown> = {}): Promise<string> {
  const event = await insertEvent(pool, `${messageId}:${seconds}:${Math.random()}`, { source: 'inboxili' })
  await inTransaction(pool, (tx) =>
    settle(
      tx,
      {
        event,
        kind: 'delivered',
        recipient: 'ada@example.com',
        occurredAt: at(seconds),
        hasOwnTime: true,
        ...(messageId !== undefined && { messageId }),
        ...others,
      },
      false,
    ),
  )
  return event
}

const suggestionOf = async (key: string) => (await findEvidence(pool, key, NOW))?.suggestion

describe('the suggestion', () => {
  test('sent, grade B: one report fits by recipient and its own time', async () => {
    await unknownSend('k')
    const event = await report('m_93c', 24)

    expect(await suggestionOf('k')).toEqual({
      verdict: 'sent',
      grade: 'B',
      event,
      message_id: 'm_93c',
      candidates: 1,
      rule_version: 2,
      explanation: "recipient and the report's own time, 24 s after the call, only candidate of 1, rule v2",
    })
  })

  test('sent, grade C: the time is only that of the arrival', async () => {
    await unknownSend('k')
    await report('m_93c', 24, { hasOwnTime: false })

    expect(await suggestionOf('k')).toMatchObject({
      verdict: 'sent',
      grade: 'C',
      explanation: "recipient and the report's arrival, 24 s after the call, only candidate of 1, rule v2",
    })
  })

  test('sent, grade A: a report names the very message of a send that was reopened', async () => {
    await unknownSend('k', {}, { message_id: 'm1' })
    await report('m1', 24)
    const { rows } = await pool.query<{ version: number }>('select version from email_sends')
    await decide(pool, async () => undefined, 'k', {
      decision: 'reopen',
      version: rows[0]?.version ?? 0,
      reason: 'look again',
      actor: 'ada',
      via: 'api',
    })

    expect(await suggestionOf('k')).toMatchObject({ verdict: 'sent', grade: 'A', message_id: 'm1', candidates: 1 })
  })

  test('I7 no report proves nothing', async () => {
    await unknownSend('k')

    expect(await suggestionOf('k')).toEqual({
      verdict: 'cant_tell',
      grade: null,
      event: null,
      message_id: null,
      candidates: 0,
      rule_version: 2,
      explanation: 'no report in 5 h, which proves nothing',
    })
  })

  test.each([
    [
      'two messages',
      [
        ['m1', 24],
        ['m2', 30],
      ],
      {},
      '2 candidates: other message',
    ],
    ['another time', [['m1', 90_000]], {}, '1 candidate: other time'],
    ['another kind', [['m1', 24]], { kind: 'opened' }, '1 candidate: other kind'],
    ['another subject', [['m1', 24]], { subject: 'Something else' }, '1 candidate: other subject'],
    ['a plus-tag', [['m1', 24]], { recipient: 'ada+shop@example.com' }, '1 candidate: other address'],
    ['no message id', [[undefined, 24]], {}, '1 candidate: no message id'],
  ] as const)('can’t tell: %s', async (_, reports, others, explanation) => {
    await unknownSend('k')
    for (const [messageId, seconds] of reports) await report(messageId, seconds, others)

    expect(await suggestionOf('k')).toMatchObject({ verdict: 'cant_tell', candidates: reports.length, explanation })
  })

  test('can’t tell: two calls and one report', async () => {
    await unknownSend('k1')
    await unknownSend('k2')
    await report('m1', 24)

    expect(await suggestionOf('k1')).toMatchObject({ verdict: 'cant_tell', candidates: 1, explanation: '1 candidate: ambiguous' })
    expect(await suggestionOf('k2')).toMatchObject({ verdict: 'cant_tell', candidates: 1, explanation: '1 candidate: ambiguous' })
  })

  test('a report that a person has dismissed suggests nothing', async () => {
    await unknownSend('k')
    const event = await report('m1', 24)
    await dismissReport({ pool, log }, event, { reason: 'sent by the shop', actor: 'ada', via: 'api' })

    expect(await suggestionOf('k')).toMatchObject({ verdict: 'cant_tell', candidates: 0 })
    expect((await findEvidence(pool, 'k', NOW))?.lines.at(-1)?.text).toBe(
      'report "delivered" m1 → ada@example.com, a person said: not ours',
    )
  })

  test('a send that needs no decision has none', async () => {
    await unknownSend('k', { state: 'abandoned' })

    expect(await suggestionOf('k')).toBe(null)
    expect(await findEvidence(pool, 'nobody', NOW)).toBe(undefined)
  })
})

test('I7 I9 suggests "sent" exactly where the rule would settle by itself, were the account exclusive', async () => {
  let suggested = 0
  for (let seed = 1; seed <= 60; seed += 1) {
    const { below, chance, pick } = chancesOf(seed)
    const mailbox = `r${seed}@example.com`
    const keys = Array.from({ length: chance(70) ? 1 : 2 }, (_, n) => `s${seed}k${n}`)
    for (const key of keys) {
      const claimed_at = at(chance(70) ? 0 : below(200_000) - 100_000)
      await unknownSend(
        key,
        { recipient: mailbox, queued_at: claimed_at },
        { claimed_at, called_at: claimed_at, ended_at: claimed_at },
      )
    }
    for (let n = 0; n < (chance(70) ? 1 : 2); n += 1)
      await report(`s${seed}m${n}`, chance(70) ? below(600) : below(300_000) - 150_000, {
        kind: pick(['delivered', 'bounced', 'delivered', 'opened']),
        recipient: pick([mailbox, mailbox, mailbox.toUpperCase(), `r${seed}+x@example.com`]),
      })
    const before = new Map(await Promise.all(keys.map(async (key) => [key, await suggestionOf(key)] as const)))

    await pool.query(`update sending_control set matching = 'auto'`)
    await rematch(pool, mailbox, true)

    const settled = await pool.query<{ dedupe_key: string; message_id: string | null; state: string }>(
      'select dedupe_key, message_id, state from email_sends where dedupe_key = any ($1)',
      [keys],
    )
    for (const { dedupe_key, message_id, state } of settled.rows) {
      const suggestion = before.get(dedupe_key)
      // Settling one may tell the next one apart; where there is only one, both say the same.
      const isTold = suggestion?.verdict === 'sent'
      if (isTold || keys.length === 1)
        expect([seed, dedupe_key, state, message_id]).toEqual([
          seed,
          dedupe_key,
          isTold ? 'sent' : 'needs_review',
          isTold ? suggestion.message_id : null,
        ])
      if (isTold) suggested += 1
    }
  }
  expect(suggested).toBeGreaterThan(10)
})

describe('not sent', () => {
  const line = (
    messageId: string | null,
    recipient: string | null,
    time: string | null,
    says: LogLine['says'] = 'sent',
  ): LogLine => ({
    line: 2,
    sha256: createHash('sha256').update(`${messageId}${recipient}${time}`).digest('hex'),
    says,
    bounceKind: null,
    messageId,
    recipient,
    occurredAt: time === null ? null : readTime(time, 'UTC'),
    namesZone: true,
    subject: null,
  })
  /** Of an email that Inboxili accepted, so that a file which has it may be whole. */
  const known = line('m0', 'bob@example.com', '2026-11-29T13:10:05Z')
  const earlier = line('m8', 'eve@example.org', '2026-11-29T13:00:00Z')
  const later = line('m9', 'eve@example.org', '2026-11-29T16:00:00Z')
  const read = (lines: LogLine[], isDry = false) =>
    reconcile(
      {
        pool,
        fileSha256: createHash('sha256').update(JSON.stringify(lines)).digest('hex'),
        readAs: { zone: 'UTC', columns: { recipient: 'To', message_id: 'ID', status: 'Status', time: 'Date', subject: null } },
        isExclusive: true,
        by: isDry ? undefined : { actor: 'ann', via: 'cli', reason: 'asked Inboxili' },
      },
      lines,
    )

  beforeEach(async () => {
    await insertSend(pool, 'accepted', { state: 'sent', recipient: 'bob@example.com', message_id: 'm0' })
    await insertAttempt(pool, 'accepted', {
      recipient: 'bob@example.com',
      outcome: 'accepted',
      message_id: 'm0',
      claimed_at: new Date('2026-11-29T13:10:00Z'),
    })
    await unknownSend('k')
  })

  test('a whole sending log of that time lacks it', async () => {
    const { coverage } = await read([earlier, known, later])

    expect(coverage).toEqual({
      from: new Date('2026-11-29T13:00:00Z'),
      until: new Date('2026-11-29T16:00:00Z'),
      times_off_by_minutes: null,
      known: 1,
      missing: 0,
      open: 1,
      absent: ['k'],
    })
    expect(await suggestionOf('k')).toMatchObject({
      verdict: 'not_sent',
      grade: null,
      explanation:
        'the sending log from 2026-11-29 13:00 UTC to 2026-11-29 16:00 UTC has every email that we know was sent then (1), and lacks this one',
    })
    const evidence = await findEvidence(pool, 'k', NOW)
    expect(evidence?.lines.map(({ text }) => text)).toContain('not in the sending log that ann read in (call 1)')
  })

  test('a dry run finds the same and keeps nothing', async () => {
    const { coverage } = await read([earlier, known, later], true)

    expect(coverage.absent).toEqual(['k'])
    expect(await suggestionOf('k')).toMatchObject({ verdict: 'cant_tell' })
    expect((await pool.query('select from sending_logs')).rowCount).toBe(0)
  })

  test.each([
    ['it ends before it would have to list it', [earlier, known, line('m9', 'eve@example.org', '2026-11-29T15:00:00Z')]],
    ['it begins after the call', [line('m0', 'bob@example.com', '2026-11-29T14:00:00Z'), later]],
    ['it lacks an email that was accepted', [earlier, later]],
    ['it has a line of the same mailbox', [earlier, known, later, line('m7', 'Ada+x@example.com', '2026-11-29T14:02:30Z')]],
    ['it has a line without a recipient', [earlier, known, later, line('m7', null, '2026-11-29T14:02:30Z')]],
    ['it has a line without a message id', [earlier, known, later, line(null, 'ada@example.com', '2026-11-29T14:02:30Z')]],
    ['it has a line without a time', [earlier, known, later, line('m7', 'ada@example.com', null)]],
    ['it has it as failed', [earlier, known, later, line('m7', 'ada@example.com', '2026-11-29T14:02:30Z', 'failed')]],
    ['no line has a time', [line('m0', 'bob@example.com', null)]],
  ])('C-58 it says nothing when %s', async (_, lines) => {
    const { coverage } = await read(lines)

    expect(coverage.absent).toEqual([])
    expect((await suggestionOf('k'))?.verdict).not.toBe('not_sent')
  })

  test('a log that has none of our emails proves nothing', async () => {
    await pool.query('truncate settlements, send_attempts, email_sends cascade')
    await unknownSend('k')

    await read([earlier, later])

    expect(await suggestionOf('k')).toMatchObject({ verdict: 'cant_tell' })
  })

  test('a report that comes after all outweighs it', async () => {
    await read([earlier, known, later])
    await report('m_93c', 24)

    expect(await suggestionOf('k')).toMatchObject({ verdict: 'sent', message_id: 'm_93c' })
  })

  test('another call that the file does not cover keeps it from being said', async () => {
    await insertAttempt(pool, 'k', { number: 2, outcome: 'unknown', claimed_at: at(86_400), called_at: at(86_400) })

    await read([earlier, known, later])

    expect(await suggestionOf('k')).toMatchObject({ verdict: 'cant_tell' })
  })

  test('the same file again changes nothing', async () => {
    await read([earlier, known, later])
    const before = (await pool.query('select * from log_absences')).rows

    const { coverage } = await read([earlier, known, later])

    expect(coverage.absent).toEqual(['k'])
    expect((await pool.query('select * from log_absences')).rows).toEqual(before)
    expect((await pool.query('select from sending_logs')).rowCount).toBe(1)
  })
})

test('the evidence is told line by line, with what else there is for the recipient', async () => {
  await unknownSend('k')
  await insertSend(pool, 'other', { state: 'sent', queued_at: at(-3_600), delivered_at: at(-3_500) })
  await insertSend(pool, 'long ago', { queued_at: at(-200_000) })
  const event = await report('m_93c', 24)

  const evidence = await findEvidence(pool, 'k', NOW)

  expect(evidence?.lines.map((line) => [line.at.toISOString(), line.kind, line.text])).toEqual([
    ['2026-11-29T14:02:07.114Z', 'request', 'request written (call 1)'],
    ['2026-11-29T14:02:22.114Z', 'end', 'no answer in 15 s (call 1)'],
    ['2026-11-29T14:02:31.114Z', 'parked', 'report "delivered" m_93c → ada@example.com, parked: account not exclusive'],
  ])
  expect(evidence?.around).toEqual({ sends: 1, delivered: 1, parked_reports: 1 })
  expect(evidence?.candidates).toMatchObject([
    {
      event,
      source: 'inboxili',
      kind: 'delivered',
      message_id: 'm_93c',
      parked: 'account not exclusive',
      seconds_after_call: 24,
    },
  ])
  expect(evidence).toMatchObject({ dedupe_key: 'k', status: 'needs_review', version: 1, last_error: 'no answer in 15 s' })
})

describe('the list', () => {
  const list = (query: Record<string, string> = {}) => listReview(pool, reviewFilter.parse(query) as ReviewFilter, NOW)
  const keys = async (query: Record<string, string> = {}) => (await list(query)).sends.map(({ dedupe_key }) => dedupe_key)

  test('has the oldest first, page by page, and only what needs a decision', async () => {
    for (let n = 0; n < 5; n += 1) await unknownSend(`k${n}`, { queued_at: at(5 - n), recipient: `r${n}@example.com` })
    await insertSend(pool, 'done', { state: 'abandoned' })

    const first = await list({ limit: '2' })
    const second = await list({ limit: '2', cursor: first.next_cursor ?? '' })
    const third = await list({ limit: '2', cursor: second.next_cursor ?? '' })

    const found = [first, second, third].map(({ sends }) => sends.map(({ dedupe_key }) => dedupe_key))
    expect(found).toEqual([['k4', 'k3'], ['k2', 'k1'], ['k0']])
    expect(third.next_cursor).toBe(null)
    expect(first.sends[0]).toMatchObject({ recipient: 'r4@example.com', version: 1, last_error: 'no answer in 15 s' })
  })

  test('is filtered and counted by suggestion', async () => {
    await unknownSend('fits', { recipient: 'fits@example.com' })
    await report('m1', 24, { recipient: 'fits@example.com' })
    const unsent = await unknownSend('unsent', { recipient: 'unsent@example.com' })
    await pool.query(
      `with log as (insert into sending_logs (file_sha256, from_at, until_at, lines, known, missing, read_by, via, reason)
         values ('a', now() - interval '1 day', now(), 9, 3, 0, 'ann', 'cli', 'x') returning id)
       insert into log_absences (attempt, log) select $1, id from log`,
      [unsent],
    )
    await unknownSend('nobody', { recipient: 'nobody@example.com' })

    expect(await keys({ suggestion: 'sent' })).toEqual(['fits'])
    expect(await keys({ suggestion: 'not_sent' })).toEqual(['unsent'])
    expect(await keys({ suggestion: 'cant_tell' })).toEqual(['nobody'])
    expect((await list()).sends.map(({ dedupe_key, suggestion }) => [dedupe_key, suggestion.verdict])).toEqual([
      ['fits', 'sent'],
      ['nobody', 'cant_tell'],
      ['unsent', 'not_sent'],
    ])
    expect(await countReview(pool)).toEqual({ open: 3, sent: 1, not_sent: 1, cant_tell: 1, oldest_at: CALLED })
  })

  test('an empty desk', async () => {
    expect(await list()).toEqual({ sends: [], next_cursor: null })
    expect(await countReview(pool)).toEqual({ open: 0, sent: 0, not_sent: 0, cant_tell: 0, oldest_at: null })
  })
})
