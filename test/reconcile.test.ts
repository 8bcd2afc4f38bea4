import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { type ReconcileOptions, reconcileCommand } from '../src/cli/reconcile.ts'
import { inTransaction } from '../src/db.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { findSend } from '../src/ops/send-queries.ts'
import { decide } from '../src/sends/decide.ts'
import { settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent, insertReport, insertSend } from './support/ops-rows.ts'
import { attemptsOf, jobsOf, patientDatabase, resetControl, sendRow, untilWaiting } from './support/sends.ts'

const { pool, url } = await patientDatabase()
const { enqueueSends } = await openJobs(url)
const directory = mkdtempSync(join(tmpdir(), 'oncehook-reconcile-'))
afterAll(() => rmSync(directory, { recursive: true }))

beforeEach(async () => {
  // Rows that only grow are refused a delete, not a truncate.
  await pool.query(
    'truncate email_sends, send_attempts, settlements, delivery_reports, follow_ups, webhook_events, audit_log, email_marks cascade',
  )
  await resetControl(pool)
})

const CLAIMED = new Date('2026-11-29T14:02:07Z')
const HEADER = 'To,ID,Status,Date,Subject'
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
const AUDITED_SENDS = `(select * from audit_log where subject like 'send:%')`
const applying = { apply: true, reason: 'read in the log', by: 'ann' }

/** A send whose call to this recipient ended as said, at 14:02:07. */
async function called(
  key: string,
  columns: Record<string, unknown> = {},
  attempt: Record<string, unknown> = {},
): Promise<string> {
  await insertSend(pool, key, { state: 'needs_review', last_error: 'no answer in 15 s', claimed_at: CLAIMED, ...columns })
  const id = await insertAttempt(pool, key, {
    outcome: 'unknown',
    claimed_at: CLAIMED,
    called_at: CLAIMED,
    ended_at: CLAIMED,
    ...(columns.recipient !== undefined && { recipient: columns.recipient }),
    ...attempt,
  })
  await pool.query('update email_sends set claim_token = $2 where dedupe_key = $1', [key, id])
  return id
}

let files = 0
async function run(lines: readonly string[], options: Partial<ReconcileOptions> = {}, isExclusive = true) {
  files += 1
  const path = join(directory, `log-${files}.csv`)
  writeFileSync(path, `${[HEADER, ...lines].join('\n')}\n`)
  let said = ''
  const result = await reconcileCommand(pool, path, isExclusive, {
    json: true,
    isWatched: false,
    say: (text) => {
      said += text
    },
    ...options,
  })
  const found = result.stdout.startsWith('{') ? JSON.parse(result.stdout) : undefined
  const findings: unknown[] | undefined = found?.lines.map(({ outcome, reason, dedupe_key }: Record<string, string | null>) =>
    [outcome, reason, dedupe_key].filter((it) => it !== null).join(' '),
  )
  return { ...result, said, found, findings }
}

/** All that a line could have changed. That the file was read is audited beside it. */
async function everything(): Promise<unknown> {
  const tables = ['email_sends', 'send_attempts', 'settlements', 'delivery_reports', AUDITED_SENDS, 'sending_control']
  return Promise.all(tables.map(async (table) => (await pool.query(`select * from ${table} order by 1, 2`)).rows))
}

const settlements = async () =>
  (
    await pool.query(
      'select dedupe_key, grade, from_state, to_state, event, evidence, event_at, actor from settlements order by id',
    )
  ).rows
const audited = async () =>
  (await pool.query(`select actor, via, action, subject, reason, before, after from ${AUDITED_SENDS} order by id`)).rows

describe('a line by its message ID', () => {
  test('closes the send that was unknown, with its number and hash as evidence, audited under a name', async () => {
    const attempt = await called('a', {}, { message_id: 'm1' })
    const line = 'ada@example.com,m1,delivered,2026-11-29T14:03:00Z,Your receipt'

    const { findings, exitCode } = await run(['x@example.com,m9,sent,2026-11-29T14:00:00Z,', line], applying)

    expect([findings, exitCode]).toEqual([['nothing foreign', 'settles a'], 0])
    expect(await sendRow(pool, 'a', 'status', 'message_id', 'delivered_at', 'settled_by', 'version')).toEqual({
      status: 'delivered',
      message_id: 'm1',
      delivered_at: new Date('2026-11-29T14:03:00Z'),
      settled_by: 'person:ann',
      version: 3,
    })
    expect(await settlements()).toEqual([
      {
        dedupe_key: 'a',
        grade: 'P',
        from_state: 'needs_review',
        to_state: 'sent',
        event: null,
        evidence: {
          file_sha256: sha256(`${HEADER}\nx@example.com,m9,sent,2026-11-29T14:00:00Z,\n${line}\n`),
          line: 3,
          line_sha256: sha256(line),
          says: 'delivered',
          by: 'message_id',
        },
        event_at: new Date('2026-11-29T14:03:00Z'),
        actor: 'person:ann',
      },
    ])
    expect(await audited()).toEqual([
      {
        actor: 'ann',
        via: 'cli',
        action: 'reconcile',
        subject: 'send:a',
        reason: 'read in the log',
        before: { state: 'needs_review', version: 1 },
        after: { state: 'sent', version: 3 },
      },
    ])
    const send = await findSend(pool, 'a')
    expect(send?.settlements).toMatchObject([{ evidence: { line: 3 }, attempt: 1, candidates: [{ dedupe_key: 'a' }] }])
    expect(send?.timeline.at(-1)?.text).toMatch(
      /^Settled: needs a decision → sent, by person:ann, line 3 of a sending log, grade P, /,
    )
    expect(attempt).toBeTruthy()
  })

  test('of "sent" proves that it went out, also without recipient, time and subject', async () => {
    await called('a', {}, { message_id: 'm1' })

    expect((await run([',m1,accepted,,'], applying)).findings).toEqual(['settles a'])
    expect(await sendRow(pool, 'a', 'status', 'delivered_at')).toEqual({ status: 'sent', delivered_at: null })
    expect((await settlements())[0]).toMatchObject({ event_at: null, evidence: { says: 'sent' } })
  })

  test('drops a resend that still waits, and calls nobody', async () => {
    await called('a', { state: 'queued' }, { message_id: 'm1' })

    expect((await run([',m1,sent,,'], applying)).findings).toEqual(['settles a'])
    expect(await sendRow(pool, 'a', 'state')).toEqual({ state: 'sent' })
    expect(await jobsOf(pool, 'a')).toEqual([])
  })

  test('adds the facts that are missing and leaves those that events have told', async () => {
    const known = new Date('2026-11-29T14:05:00Z')
    const sent = { state: 'sent', message_id: 'm1', completed_at: CLAIMED }
    await called('a', { ...sent, delivered_at: known }, { outcome: 'accepted', message_id: 'm1' })
    await called('b', { ...sent, bounced_at: known, bounce_kind: 'soft' }, { outcome: 'accepted', message_id: 'm2' })

    const { findings } = await run(
      [
        'ada@example.com,m1,sent,2026-11-29 14:02,',
        'ada@example.com,m1,delivered,2026-11-29 14:02,',
        'ada@example.com,m1,complained,2026-11-29 14:09,',
        'ada@example.com,m2,soft bounce,2026-11-29 14:02,',
        'ada@example.com,m2,hard bounce,2026-11-29 14:06,',
        'ada@example.com,m2,bounced,2026-11-29 14:01,',
      ],
      applying,
    )

    expect(findings).toEqual(['known a', 'known a', 'adds a', 'known b', 'adds b', 'known b'])
    expect(await sendRow(pool, 'a', 'delivered_at', 'complained_at', 'bounced_at')).toEqual({
      delivered_at: known,
      complained_at: new Date('2026-11-29T14:09:00Z'),
      bounced_at: null,
    })
    expect(await sendRow(pool, 'b', 'status', 'bounced_at', 'bounce_kind')).toEqual({
      status: 'bounced',
      bounced_at: new Date('2026-11-29T14:06:00Z'),
      bounce_kind: 'hard',
    })
    expect(await settlements()).toMatchObject([
      { dedupe_key: 'a', from_state: 'sent', to_state: 'sent', grade: 'P' },
      { dedupe_key: 'b', from_state: 'sent', to_state: 'sent', grade: 'P' },
    ])
    expect(await audited()).toHaveLength(2)
  })

  test('that says it did not go out is shown for a person and frees nothing', async () => {
    await called('a', {}, { message_id: 'm1' })
    const before = await everything()

    expect((await run([',m1,failed,,', ',m1,rejected,,'], applying)).findings).toEqual(Array(2).fill('look logged as failed a'))
    expect(await everything()).toEqual(before)
  })

  test.each([
    ['sent, then failed', [',m1,sent,,', ',m1,failed,,']],
    ['failed, then sent', [',m1,rejected,,', ',m1,accepted,,']],
    ['failed, and something unclear', [',m1,failed,,', ',m1,opened,,']],
  ])('of a message that the file contradicts itself about settles nothing: %s', async (_, lines) => {
    await called('a', {}, { message_id: 'm1' })
    const before = await everything()

    expect((await run(lines, applying)).findings).toEqual(Array(2).fill('look logged as failed a'))
    expect((await run(lines)).findings).toEqual(Array(2).fill('look logged as failed a'))
    expect(await everything()).toEqual(before)
  })

  test.each(['delivered', 'bounced'])('of a message that failed once and was %s settles', async (status) => {
    await called('a', {}, { message_id: 'm1' })
    const lines = [',m1,sent,,', ',m1,failed,,', `,m1,${status},2026-11-29T14:03:00Z,`]

    expect((await run(lines, applying)).findings).toEqual(['settles a', 'look logged as failed a', 'adds a'])
    expect((await run(lines, applying)).findings).toEqual(['known a', 'look logged as failed a', 'known a'])
    expect(await sendRow(pool, 'a', 'status')).toEqual({ status })
  })

  test('never reopens what a person has closed', async () => {
    await called('a', { state: 'abandoned' }, { message_id: 'm1' })
    const before = await everything()

    expect((await run([',m1,delivered,2026-11-29T14:03:00Z,'], applying)).findings).toEqual(['nothing decided a'])
    expect(await everything()).toEqual(before)
  })

  test('closes a resend that was refused, as its first call sent the email', async () => {
    await called('a', { state: 'rejected' }, { message_id: 'm1' })

    expect((await run([',m1,sent,,'], applying)).findings).toEqual(['settles a'])
    expect(await sendRow(pool, 'a', 'state', 'message_id')).toEqual({ state: 'sent', message_id: 'm1' })
  })

  test('does not close a send that is being sent again', async () => {
    await called('a', { state: 'sending' }, { message_id: 'm1' })

    expect((await run([',m1,sent,,'], applying)).findings).toEqual(['nothing resend under way a'])
    expect(await sendRow(pool, 'a', 'state')).toEqual({ state: 'sending' })
  })
})

describe('a line by recipient and time, under the rule for events', () => {
  const line = (columns: { to?: string; id?: string; status?: string; date?: string; subject?: string } = {}) => {
    const { to = 'ada@example.com', id = 'm1', status = 'sent', date = '2026-11-29T14:02:30Z', subject = '' } = columns
    return [to, id, status, date, subject].join(',')
  }

  test.each(['sent', 'accepted', 'delivered', 'bounced', 'soft bounce'])('closes the only fitting send: %s', async (status) => {
    await called('a')

    expect((await run([line({ status })], applying)).findings).toEqual(['settles a'])
    expect(await sendRow(pool, 'a', 'state', 'message_id')).toEqual({ state: 'sent', message_id: 'm1' })
    expect(await attemptsOf(pool, 'a')).toMatchObject([{ outcome: 'unknown', message_id: 'm1' }])
    expect(await settlements()).toMatchObject([{ grade: 'P', evidence: { by: 'recipient', line: 2 } }])
  })

  test.each([
    ['another address of the same mailbox', { to: 'ada+x@example.com' }, 'nothing other address a'],
    ['before the claim', { date: '2026-11-29T13:59:00Z' }, 'nothing other time a'],
    ['a day and more after it', { date: '2026-11-30T14:03:00Z' }, 'nothing other time a'],
    ['two weeks after it', { date: '2026-12-20T14:03:00Z' }, 'nothing foreign'],
    ['another subject', { subject: 'Newsletter' }, 'nothing other subject a'],
    ['a complaint', { status: 'complained' }, 'nothing other kind a'],
    ['a failure', { status: 'failed' }, 'look logged as failed a'],
    ['a word that nobody knows', { status: 'opened' }, 'nothing unclear status'],
    ['no message ID', { id: '' }, 'nothing no message id'],
    ['no recipient', { to: '' }, 'nothing no recipient'],
    ['two recipients', { to: 'ada@example.com; bea@example.com' }, 'nothing no recipient'],
    ['no time', { date: '' }, 'nothing no time'],
    ['a day without a time', { date: '2026-11-29' }, 'nothing no time'],
    ['another recipient', { to: 'bea@example.com' }, 'nothing foreign'],
  ])('does nothing with %s', async (_what, columns, finding) => {
    await called('a')
    const before = await everything()

    expect((await run([line(columns)], applying)).findings).toEqual([finding])
    expect(await everything()).toEqual(before)
  })

  test.each([
    ['in flight', { outcome: 'in_flight', ended_at: null }, { state: 'sending' }],
    ['decided', {}, { state: 'abandoned' }],
    ['resend under way', {}, { state: 'claimed' }],
  ])('does nothing where the rule says: %s', async (reason, attempt, columns) => {
    await called('a', columns, attempt)
    const before = await everything()

    expect((await run([line()], applying)).findings).toEqual([`nothing ${reason} a`])
    expect(await everything()).toEqual(before)
  })

  test('does nothing with a message that failed in another line, and counts it as one', async () => {
    await called('a')
    const contradicting = [line(), line({ status: 'failed', to: '' })]
    const before = await everything()

    expect((await run(contradicting, applying)).findings).toEqual(Array(2).fill('look logged as failed a'))
    expect((await run([...contradicting, line({ id: 'm2' })], applying)).findings?.[2]).toBe('nothing other message a')
    expect(await everything()).toEqual(before)
  })

  test('does nothing on an account that others send with, and while matching is open for a person', async () => {
    await called('a')

    expect((await run([line()], applying, false)).findings).toEqual(['nothing account not exclusive a'])
    await pool.query(`update sending_control set matching = 'suggest'`)
    expect((await run([line()], applying)).findings).toEqual(['nothing breaker open a'])
    expect(await sendRow(pool, 'a', 'state')).toEqual({ state: 'needs_review' })
  })

  test('does nothing when two sends fit', async () => {
    await called('a')
    await called('b')

    expect((await run([line()], applying)).findings).toEqual(['nothing ambiguous'])
  })

  test('counts every message of the file that nothing explains, wherever it stands, and whatever it says', async () => {
    await called('a')
    for (const other of [
      line({ id: 'm2', date: '2026-11-29T18:00:00Z' }),
      line({ id: 'm2', status: 'failed' }),
      line({ id: 'm2', status: 'opened', date: '' }),
      line({ id: 'm2', to: 'Ada+news@example.com' }),
    ]) {
      expect((await run([line(), other], applying)).findings?.[0]).toBe('nothing other message a')
      expect((await run([other, line()], applying)).findings?.[1]).toBe('nothing other message a')
    }
    expect(await sendRow(pool, 'a', 'state')).toEqual({ state: 'needs_review' })

    // Long before the claim it says nothing.
    const earlier = line({ id: 'm2', date: '2026-11-28T10:00:00Z' })
    expect((await run([earlier, line()], applying)).findings).toEqual(['nothing foreign', 'settles a'])
  })

  test('counts a parked event of another message', async () => {
    await called('a')
    const event = await insertEvent(pool, 'm7:delivered', { source: 'inboxili', type: 'delivered' })
    await insertReport(pool, event, {
      message_id: 'm7',
      recipient: 'ada@example.com',
      match_key: 'ada@example.com',
      occurred_at: CLAIMED,
      parked: 'ambiguous',
    })

    expect((await run([line()], applying)).findings).toEqual(['nothing other message a'])
  })

  test('takes the parked events of its own message along', async () => {
    await called('a')
    const event = await insertEvent(pool, 'm1:delivered', { source: 'inboxili', type: 'delivered' })
    const at = new Date('2026-11-29T14:02:40Z')
    await insertReport(pool, event, { message_id: 'm1', occurred_at: at, parked: 'no recipient' })

    expect((await run([line()], applying)).findings).toEqual(['settles a'])
    expect(await sendRow(pool, 'a', 'status', 'delivered_at')).toEqual({ status: 'delivered', delivered_at: at })
    expect(await settlements()).toHaveLength(1)
  })

  test('lets the events be told that waited for it', async () => {
    const later = new Date('2026-12-20T10:00:00Z')
    await called('a')
    await called('b', { claimed_at: later }, { claimed_at: later })
    const parked = { recipient: 'ada@example.com', match_key: 'ada@example.com' }
    const delivered = await insertEvent(pool, 'm1:delivered', { source: 'inboxili', type: 'delivered' })
    const complained = await insertEvent(pool, 'm2:complained', { source: 'inboxili', type: 'complained' })
    const soon = new Date('2026-11-29T14:02:30Z')
    await insertReport(pool, delivered, { ...parked, message_id: 'm1', occurred_at: soon, parked: 'other message' })
    await insertReport(pool, complained, {
      ...parked,
      message_id: 'm2',
      kind: 'complained',
      occurred_at: new Date('2026-12-20T11:00:00Z'),
      parked: 'other kind',
    })

    expect((await run([line({ id: 'm2', date: '2026-12-20T10:00:05Z' })], applying)).findings).toEqual(['settles b'])
    expect(await sendRow(pool, 'a', 'status', 'settled_by')).toEqual({ status: 'delivered', settled_by: `event:${delivered}` })
  })

  test('no longer speaks against others once a dry run has explained it, though its event stays parked', async () => {
    const later = new Date('2026-12-20T10:00:00Z')
    await called('a')
    await called('b', { claimed_at: later }, { claimed_at: later })
    await insertReport(pool, await insertEvent(pool, 'm2:complained', { source: 'inboxili', type: 'complained' }), {
      message_id: 'm2',
      kind: 'complained',
      recipient: 'ada@example.com',
      match_key: 'ada@example.com',
      occurred_at: new Date('2026-12-20T11:00:00Z'),
      parked: 'other kind',
    })
    const lines = [line(), line({ id: 'm2', date: '2026-12-20T10:00:05Z' })]

    const dry = await run(lines)
    const done = await run(lines, applying)

    expect(dry.findings).toEqual(['settles a', 'settles b'])
    expect(done.findings).toEqual(dry.findings)
  })

  test('does nothing with a message that has several recipients', async () => {
    await called('a')
    const before = await everything()

    expect((await run([line(), line({ to: 'bea@example.com' })], applying)).findings).toEqual(
      Array(2).fill('nothing several recipients'),
    )
    expect(await everything()).toEqual(before)
  })

  test('gives an accepted call without a message ID the one that it has', async () => {
    await called('a', { state: 'sent', completed_at: CLAIMED }, { outcome: 'accepted' })

    expect((await run([line()], applying)).findings).toEqual(['adds a'])
    expect(await sendRow(pool, 'a', 'state', 'message_id')).toEqual({ state: 'sent', message_id: 'm1' })
    expect(await settlements()).toMatchObject([{ from_state: 'sent', to_state: 'sent' }])
    expect((await run([line()], applying)).findings).toEqual(['known a'])
  })

  test('takes times without a zone as said', async () => {
    await called('a')
    const berlin = line({ date: '2026-11-29 15:02:30' })

    expect((await run([line({ date: '2026-11-29 13:02:30' })], applying)).findings).toEqual(['nothing other time a'])
    expect((await run([berlin], { ...applying, logZone: 'Europe/Berlin' })).findings).toEqual(['settles a'])
  })

  test('goes on until nothing changes, so that the order of the lines doesn’t matter', async () => {
    const later = new Date('2026-12-20T10:00:00Z')
    const lines = [
      line({ status: 'complained', date: '2026-11-29T15:00:00Z' }),
      line(),
      line({ id: 'm2', date: '2026-12-20T10:00:05Z' }),
    ]
    for (const order of [lines, [...lines].reverse()]) {
      await pool.query('truncate email_sends, send_attempts, settlements, audit_log cascade')
      await called('a')
      await called('b', { claimed_at: later }, { claimed_at: later })

      const dry = await run(order)
      const { findings } = await run(order, applying)

      // m2 speaks against m1 until it is explained itself; the complaint is told once its message is.
      expect(findings?.sort()).toEqual(['adds a', 'settles a', 'settles b'])
      expect(dry.findings?.sort()).toEqual(findings)
      expect(await sendRow(pool, 'a', 'state', 'complained_at')).toEqual({
        state: 'sent',
        complained_at: new Date('2026-11-29T15:00:00Z'),
      })
    }
  })
})

describe('a dry run', () => {
  test('changes nothing and foretells what --apply does, also of several lines of one message', async () => {
    await called('a')
    await called('b', { recipient: 'bea@example.com' }, { message_id: 'm2' })
    const before = await everything()
    const lines = [
      'ada@example.com,m1,sent,2026-11-29T14:02:30Z,',
      'ada@example.com,m1,delivered,2026-11-29T14:02:40Z,',
      'ada@example.com,m1,delivered,2026-11-29T14:02:40Z,',
      'bea@example.com,m2,delivered,2026-11-29T14:02:40Z,',
      'cy@example.com,m3,delivered,2026-11-29T14:02:40Z,',
    ]

    const dry = await run(lines)
    expect(await everything()).toEqual(before)
    const done = await run(lines, applying)

    expect(dry.findings).toEqual(['settles a', 'adds a', 'known a', 'settles b', 'nothing foreign'])
    expect(done.findings).toEqual(dry.findings)
    expect([dry.found.applied, done.found.applied]).toEqual([false, true])
    expect(dry.found.summary).toEqual({ settles: 2, adds: 1, known: 1, look: 0, nothing: 1 })
    expect(dry.stderr).toContain('Nothing was changed; --apply --reason TEXT does it.')
  })
})

describe('repeat, race and crash', () => {
  const lines = Array.from({ length: 12 }, (_, index) => `u${index}@example.com,m${index},delivered,2026-11-29T14:02:30Z,`)
  const unknown = () => Promise.all(lines.map((_, index) => called(`k${index}`, { recipient: `u${index}@example.com` })))

  test('the same file twice changes nothing the second time', async () => {
    await unknown()

    const first = await run(lines, applying)
    const after = await everything()
    const second = await run(lines, applying)

    expect(first.found.summary).toMatchObject({ settles: 12 })
    expect(second.found.summary).toMatchObject({ settles: 0, adds: 0, known: 12 })
    expect(await everything()).toEqual(after)
  })

  test('four runs at once settle each send once', async () => {
    await unknown()

    const runs = await Promise.all(Array.from({ length: 4 }, () => run(lines, applying)))

    expect(runs.reduce((sum, { found }) => sum + found.summary.settles, 0)).toBe(12)
    expect((await settlements()).map(({ dedupe_key }) => dedupe_key).sort()).toEqual(lines.map((_, index) => `k${index}`).sort())
    expect(await audited()).toHaveLength(12)
  })

  test('I16 of a line and a person at the same time one wins', async () => {
    await called('a', {}, { message_id: 'm1' })
    const [held, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const holding = inTransaction(pool, async (tx) => {
      await tx.query(`select from email_sends where dedupe_key = 'a' for update`)
      held.resolve()
      await release.promise
    })
    await held.promise
    const line = run([',m1,sent,,'], applying)
    await untilWaiting(pool, 1)
    const decision = decide(pool, enqueueSends, 'a', {
      decision: 'abandoned',
      version: 1,
      reason: 'the customer says no',
      actor: 'bo',
      via: 'test',
    })
    await untilWaiting(pool, 2)
    release.resolve()
    await holding

    const [{ findings }, decided] = await Promise.all([line, decision])
    const won = findings?.[0] === 'settles a'
    expect(won).toBe(decided.outcome !== 'decided')
    expect(await sendRow(pool, 'a', 'state')).toEqual({ state: won ? 'sent' : 'abandoned' })
    expect(await audited()).toHaveLength(1)
  })

  test('a resend that is claimed just now is not dropped, and nothing is written of the line', async () => {
    await called('a', { state: 'queued' }, { message_id: 'm1' })
    const [claimed, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const claiming = inTransaction(pool, async (tx) => {
      await tx.query(`update email_sends set state = 'claimed' where dedupe_key = 'a'`)
      claimed.resolve()
      await release.promise
    })
    await claimed.promise
    const line = run([',m1,sent,,'], applying)
    await untilWaiting(pool, 1)
    release.resolve()
    await claiming

    expect((await line).findings).toEqual(['nothing resend under way a'])
    expect([await settlements(), await audited()]).toEqual([[], []])
  })

  test('a line and an event of one message at the same time see each other', async () => {
    await called('a')
    const event = await insertEvent(pool, 'm1:delivered', { source: 'inboxili', type: 'delivered' })
    const occurredAt = new Date('2026-11-29T14:02:40Z')
    const [settled, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const report = { event, kind: 'delivered', messageId: 'm1', recipient: 'ada@example.com', occurredAt, hasOwnTime: true }
    const settling = inTransaction(pool, async (tx) => {
      await settle(tx, report, true)
      settled.resolve()
      await release.promise
    })
    await settled.promise
    const line = run(['ada@example.com,m1,complained,2026-11-29T15:00:00Z,'], applying)
    await untilWaiting(pool, 1)
    release.resolve()
    await settling

    expect((await line).findings).toEqual(['adds a'])
    expect(await sendRow(pool, 'a', 'status', 'settled_by')).toEqual({ status: 'delivered', settled_by: `event:${event}` })
    expect(await settlements()).toMatchObject([
      { grade: 'B', event },
      { grade: 'P', from_state: 'sent' },
    ])
  })

  test('a run that breaks leaves whole decisions only, and the next one does the rest', async () => {
    await unknown()
    await pool.query(`create function break_down() returns trigger language plpgsql as $$
      begin if new.subject = 'send:k5' then raise exception 'the disk is full'; end if; return new; end $$`)
    await pool.query('create trigger break_down before insert on audit_log for each row execute function break_down()')
    try {
      await expect(run(lines, applying)).rejects.toThrow('the disk is full')
    } finally {
      await pool.query('drop trigger break_down on audit_log; drop function break_down')
    }

    expect(await sendRow(pool, 'k5', 'state', 'message_id', 'delivered_at')).toEqual({
      state: 'needs_review',
      message_id: null,
      delivered_at: null,
    })
    expect(await attemptsOf(pool, 'k5')).toMatchObject([{ message_id: null }])
    expect([(await settlements()).length, (await audited()).length]).toEqual([5, 5])

    expect((await run(lines, applying)).found.summary).toMatchObject({ settles: 7, known: 5 })
    expect([(await settlements()).length, (await audited()).length]).toEqual([12, 12])
  })
})

describe('the command', () => {
  test('shows its columns and the zone before it looks at any line', async () => {
    const { said } = await run([], { columns: 'message_id=ID' })

    expect(said).toBe(
      'Columns: recipient = "To" (guessed), message_id = "ID", status = "Status" (guessed), time = "Date" (guessed), subject = "Subject" (guessed)\n0 lines; times without a zone are taken as UTC\n',
    )
  })

  test('prints a table for people, full values for pipes, and no address of the file', async () => {
    await called('a')
    const lines = ['ada@example.com,m1,delivered,2026-11-29T14:02:40Z,', 'cy@example.com,m3,failed,2026-11-29T14:02:40Z,']

    const table = await run(lines, { json: false, width: 80, unicode: true })
    const piped = await run(lines, { json: false })

    expect(table.stdout).toBe(
      ['LINE  WHAT       KEY  WHY', '2     → Sent     a    is unknown, would be sent', '3     – Nothing       foreign', ''].join(
        '\n',
      ),
    )
    expect(table.stderr).toBe(
      '2 rows, 29 Nov 2026 14:02 – 29 Nov 2026 14:02 UTC · 1 open send in range: 1 found → sent · 0 absent → suggested not sent\n1 to settle · 0 with something new · 0 known already · 0 for a person · 1 without effect\nNothing was changed; --apply --reason TEXT does it.\n',
    )
    expect(piped.stdout).toBe(
      `2\tsettles\ta\tis unknown, would be sent\t${sha256(lines[0] ?? '')}\n3\tnothing\t\tforeign\t${sha256(lines[1] ?? '')}\n`,
    )
    expect(piped.stdout + piped.said + JSON.stringify((await run(lines)).found)).not.toContain('@example.com')
  })

  test('draws a bar for those who watch, and wipes it away', async () => {
    await called('a')

    const { said } = await run(['ada@example.com,m1,sent,2026-11-29T14:02:40Z,'], { isWatched: true, unicode: true })

    expect(said).toContain('\nreconcile  ██████████████  1/1\r\u001b[K')
    expect((await run(['ada@example.com,m1,sent,2026-11-29T14:02:40Z,'])).said).not.toContain('\r')
  })

  test('interrupted says what it did, leaves that, and another run does the rest', async () => {
    await called('a')
    await called('b', { recipient: 'bea@example.com' })
    const lines = ['ada@example.com,m1,sent,2026-11-29T14:02:40Z,', 'bea@example.com,m2,sent,2026-11-29T14:02:40Z,']

    const dry = await run(lines, { interrupted: AbortSignal.abort() })
    const first = await run(lines, { ...applying, interrupted: AbortSignal.abort() })
    const between = await Promise.all(['a', 'b'].map((key) => sendRow(pool, key, 'state')))
    await run(lines, applying)

    expect([dry.exitCode, dry.stdout, dry.stderr]).toEqual([130, '', 'Interrupted after 1 of 2 lines: nothing was changed.\n'])
    expect([first.exitCode, first.stderr]).toEqual([
      130,
      'Interrupted after 1 of 2 lines: what they settled stays; run it again for the rest.\n',
    ])
    expect(between).toEqual([{ state: 'sent' }, { state: 'needs_review' }])
    expect(await sendRow(pool, 'b', 'state')).toEqual({ state: 'sent' })
  })

  test.each([
    [{ apply: true }, '--reason'],
    [{ ...applying, dryRun: true }, '--apply'],
    [{ apply: true, reason: '  ' }, '--reason'],
    [{ columns: 'colour=ID' }, '--columns'],
    [{ columns: 'message_id=ID,message_id=To' }, '--columns'],
    [{ logZone: 'Mars/Base' }, '--zone'],
  ])('with %j ends with 2 and does nothing', async (options, name) => {
    await called('a', {}, { message_id: 'm1' })

    const { exitCode, stderr, stdout } = await run([',m1,sent,,'], options)

    expect([exitCode, stdout]).toEqual([2, ''])
    expect(stderr).toContain(`oncehook: ${name}: `)
    expect(await sendRow(pool, 'a', 'state')).toEqual({ state: 'needs_review' })
  })

  test('does nothing with a file of which one line is no CSV, or that is not there', async () => {
    await called('a', {}, { message_id: 'm1' })

    const broken = await run([',m1,sent,,', 'one,cell too few'], applying)
    const missing = await reconcileCommand(pool, join(directory, 'nowhere.csv'), true, {
      ...applying,
      say: () => undefined,
      isWatched: false,
    })
    const without = await run([',m1,sent,,'], { ...applying, columns: 'message_id=Number' })

    expect([broken.exitCode, broken.stderr]).toEqual([2, expect.stringContaining('line 3 has 2 cells, but the first one has 5')])
    expect([missing.exitCode, missing.stderr]).toEqual([2, expect.stringContaining("can't be read")])
    expect([without.exitCode, without.stderr]).toEqual([2, expect.stringContaining('no column "Number"')])
    expect(await sendRow(pool, 'a', 'state')).toEqual({ state: 'needs_review' })
  })

  test('takes a log of many lines in its stride', async () => {
    await called('a')
    const many = Array.from({ length: 20_000 }, (_, index) => `x${index}@example.com,f${index},sent,2026-11-29T14:02:40Z,`)

    const { found } = await run([...many, 'ada@example.com,m1,sent,2026-11-29T14:02:40Z,'])

    expect(found.summary).toMatchObject({ settles: 1, nothing: 20_000 })
  })
})
