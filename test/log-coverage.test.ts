import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { reconcileCommand } from '../src/cli/reconcile.ts'
import { inTransaction } from '../src/db.ts'
import { findEvidence } from '../src/ops/evidence.ts'
import { type ReconciledLog, reconcileLog } from '../src/ops/reconcile-log.ts'
import { countReview } from '../src/ops/review-queries.ts'
import { reconciledSchema } from '../src/ops/review-schemas.ts'
import type { LogField } from '../src/sends/sending-log.ts'
import { chancesOf } from './support/chances.ts'
import { insertAttempt, insertSend } from './support/ops-rows.ts'
import { patientDatabase, resetControl, sendRow, untilWaiting } from './support/sends.ts'

const { pool } = await patientDatabase()
const directory = mkdtempSync(join(tmpdir(), 'oncehook-log-'))
afterAll(() => rmSync(directory, { recursive: true }))

beforeEach(async () => {
  await pool.query(
    'truncate email_sends, send_attempts, settlements, delivery_reports, follow_ups, webhook_events, audit_log, sending_logs, log_absences cascade',
  )
  await resetControl(pool)
})

const at = (time: string) => new Date(`2026-11-29T${time}Z`)
const NOW = at('23:00:00')

/** A send whose call to this mailbox ended without an answer. */
async function unknownSend(key: string, recipient: string, claimed_at: Date): Promise<string> {
  await insertSend(pool, key, { state: 'needs_review', recipient, queued_at: claimed_at, claimed_at })
  const columns = { outcome: 'unknown', recipient, claimed_at, called_at: claimed_at, ended_at: claimed_at }
  const id = await insertAttempt(pool, key, columns)
  await pool.query('update email_sends set claim_token = $2 where dedupe_key = $1', [key, id])
  return id
}

/** A send whose call Inboxili has answered with this message. */
async function acceptedSend(message_id: string, recipient: string, claimed_at: Date): Promise<void> {
  await insertSend(pool, message_id, { state: 'sent', recipient, message_id })
  await insertAttempt(pool, message_id, { recipient, outcome: 'accepted', message_id, claimed_at })
}

const HEADER = 'From,To,ID,Status,Date'
type Line = readonly [id: string, to: string, time: string, status?: string]
const csvOf = (lines: readonly Line[]) =>
  [HEADER, ...lines.map(([id, to, time, status = 'sent']) => ['us@example.com', to, id, status, time].join(','))].join('\n')

interface Reading {
  zone?: string
  columns?: Partial<Record<LogField, string>>
  isDry?: boolean
  reason?: string
  isExclusive?: boolean
}

async function* oneChunk(csv: string) {
  yield Buffer.from(csv)
}

/** Reads a file, on an account that others send with, too, unless said otherwise: there a line settles nothing by the recipient. */
async function read(csv: string, reading: Reading = {}) {
  const { zone = 'UTC', columns = {}, isDry = false, reason = 'asked Inboxili', isExclusive = false } = reading
  const by = isDry ? undefined : { actor: 'person:ann', via: 'page', reason }
  const found = await reconcileLog({ pool, isExclusive: () => isExclusive }, oneChunk(csv), { columns, zone, by })
  if ('problem' in found) throw new Error(found.problem)
  return found
}

const verdictOf = async (key: string) => (await findEvidence(pool, key, NOW))?.suggestion?.verdict
const absences = async () =>
  (
    await pool.query<{ dedupe_key: string }>(
      'select dedupe_key from log_absences join send_attempts on attempt = send_attempts.id order by log, dedupe_key',
    )
  ).rows.map(({ dedupe_key }) => dedupe_key)
const audited = async () =>
  (await pool.query('select actor, via, action, subject, reason, before, after from audit_log order by id')).rows
const outcomesOf = ({ lines }: ReconciledLog) => lines.map(({ outcome, reason }) => reason ?? outcome)

/** A day of emails: one of ours before and one after the call of 14:02:07 to ada, and others' at its ends. */
async function day(): Promise<void> {
  await acceptedSend('m0', 'bob@example.com', at('13:10:00'))
  await acceptedSend('m5', 'cy@example.com', at('17:30:00'))
  await unknownSend('k', 'ada@example.com', at('14:02:07'))
}
const DAY: Line[] = [
  ['x1', 'eve@example.org', '2026-11-29T00:00:00Z'],
  ['m0', 'bob@example.com', '2026-11-29T13:10:05Z'],
  ['m5', 'cy@example.com', '2026-11-29T17:30:05Z'],
  ['x9', 'eve@example.org', '2026-11-29T23:59:00Z'],
]
const ADA: Line = ['m7', 'ada@example.com', '2026-11-29T14:02:30Z', 'delivered']

/** The same lines as a dashboard writes them that shows times of another zone, and doesn't say which. */
const shifted = (lines: readonly Line[], minutes: number): Line[] =>
  lines.map(([id, to, time, ...status]) => [
    id,
    to,
    new Date(Date.parse(time) + minutes * 60_000).toISOString().slice(0, 19).replace('T', ' '),
    ...status,
  ])
const IN_NEW_YORK = -300

describe('the times of a log', () => {
  test('I7 C-58 a file in New York time that is read as UTC says nothing of an email that stands in it, nor of any other', async () => {
    await day()
    await unknownSend('lacking', 'dan@example.com', at('14:10:00'))
    const csv = csvOf(shifted([...DAY, ADA], IN_NEW_YORK))

    const found = await read(csv)

    expect(found.coverage).toMatchObject({ times_off_by_minutes: -300, absent: [], known: 0, open: 0 })
    expect(outcomesOf(found)).toEqual(['foreign', 'known', 'known', 'foreign', 'no time'])
    expect([await verdictOf('k'), await verdictOf('lacking')]).toEqual(['cant_tell', 'cant_tell'])

    const right = await read(csv, { zone: 'America/New_York' })

    expect(right.coverage).toMatchObject({ times_off_by_minutes: null, absent: ['lacking'], known: 2, missing: 0, open: 2 })
    expect([await verdictOf('k'), await verdictOf('lacking')]).toEqual(['cant_tell', 'not_sent'])
  })

  test('I9 that are off settle nothing by them, and are kept as no fact', async () => {
    await acceptedSend('m0', 'bob@example.com', at('13:10:00'))
    await unknownSend('early', 'ada@example.com', at('09:02:00'))
    await unknownSend('k', 'ada@example.com', at('14:02:07'))
    const csv = csvOf(shifted([['m0', 'bob@example.com', '2026-11-29T13:10:05Z', 'delivered'], ADA], IN_NEW_YORK))
    const readAs = (zone: string) => read(csv, { zone, isExclusive: true })

    expect(outcomesOf(await readAs('UTC'))).toEqual(['no time', 'no time'])
    expect(await sendRow(pool, 'm0', 'status', 'delivered_at')).toEqual({ status: 'sent', delivered_at: null })
    expect(await sendRow(pool, 'early', 'status')).toEqual({ status: 'needs_review' })

    expect(outcomesOf(await readAs('America/New_York'))).toEqual(['adds', 'ambiguous'])
    expect(await sendRow(pool, 'm0', 'status', 'delivered_at')).toEqual({ status: 'delivered', delivered_at: at('13:10:05') })
  })

  test.each([
    ['two minutes early, as clocks differ', -125, null],
    ['three minutes early', -185, -3],
    ['half an hour early', -1_790, -30],
    ['five hours and a half early', -19_780, -330],
    ['in time', 5, null],
    ['a day late', 86_390, null],
    ['more than a day late', 90_100, 1_500],
  ])('are measured by the quickest email that was accepted: %s', async (_what, seconds, minutes) => {
    await acceptedSend('m0', 'bob@example.com', at('13:10:00'))
    await acceptedSend('m1', 'bob@example.com', at('13:10:00'))
    const time = (offset: number) => new Date(at('13:10:05').getTime() + offset * 1_000).toISOString()
    const lines: Line[] = [
      ['m0', 'bob@example.com', time(seconds)],
      ['m0', 'bob@example.com', time(400_000), 'complained'],
      ['m1', 'bob@example.com', time(500_000), 'bounced'],
    ]

    expect((await read(csvOf(lines), { isDry: true })).coverage.times_off_by_minutes).toBe(minutes)
  })

  test('that name no zone must be held at both ends by emails of ours', async () => {
    await day()
    const later = at('20:00:00')
    await unknownSend('late', 'dan@example.com', later)
    const plain = shifted(DAY, 0)

    expect((await read(csvOf(DAY), { isDry: true })).coverage.absent).toEqual(['k', 'late'])
    expect((await read(csvOf(plain), { isDry: true })).coverage.absent).toEqual(['k'])
    expect((await read(csvOf(plain.slice(1)), { isDry: true })).coverage.absent).toEqual(['k'])
    expect((await read(csvOf(plain.filter(([id]) => id !== 'm0')), { isDry: true })).coverage.absent).toEqual([])
    expect((await read(csvOf(plain.filter(([id]) => id !== 'm5')), { isDry: true })).coverage.absent).toEqual([])
  })

  test('that name no zone may be up to 26 hours from what they seem', async () => {
    await day()
    const about = (time: string): Line => ['m7', 'ada@example.com', time]
    const hasAbsence = async (line: Line, plain = true) =>
      (await read(csvOf([...shifted(DAY, 0), line]), { isDry: true })).coverage.absent.length > 0 || !plain

    expect(await hasAbsence(about('2026-11-28 11:03:00'))).toBe(false)
    expect(await hasAbsence(about('2026-11-29T09:02:30'))).toBe(false)
    expect(await hasAbsence(about('2026-11-30 16:02:00'))).toBe(false)
    expect(await hasAbsence(about('2026-11-29T09:02:30Z'))).toBe(true)
    expect(await hasAbsence(about('1795942950'))).toBe(true)
    expect(await hasAbsence(about('2026-11-28 11:01:00'))).toBe(true)
  })

  test('I9 that name no zone tell nothing of two calls to one mailbox, of which they may be either', async () => {
    // Slow enough that nothing shows in which zone the file is.
    await acceptedSend('m0', 'bob@example.com', at('07:00:00'))
    await unknownSend('early', 'ada@example.com', at('09:02:00'))
    await unknownSend('k', 'ada@example.com', at('14:02:07'))
    const lines: Line[] = [['m0', 'bob@example.com', '2026-11-29T14:00:00Z'], ADA]
    const read5HoursEarly = (of: readonly Line[]) => read(csvOf(of), { isExclusive: true })

    expect(outcomesOf(await read5HoursEarly(shifted(lines, IN_NEW_YORK)))).toEqual(['known', 'ambiguous'])
    expect(await sendRow(pool, 'early', 'status')).toEqual({ status: 'needs_review' })
    await pool.query(`update send_attempts set outcome = 'refused' where dedupe_key = 'k'`)
    expect(outcomesOf(await read5HoursEarly(shifted(lines, IN_NEW_YORK)))).toEqual(['known', 'settles'])
  })

  test('I7 I9 by no shift of half hours does an email that went out count as lacking, or another send as sent', async () => {
    let [told, lacking, settling] = [0, 0, 0]
    for (let seed = 1; seed <= 2; seed += 1) {
      await pool.query('truncate email_sends, send_attempts cascade')
      const isExclusive = seed % 2 === 0
      const { lines, sent, unsent } = await world(seed, isExclusive)
      for (let minutes = -14 * 60; minutes <= 14 * 60; minutes += 30) {
        const { coverage, lines: found } = await read(csvOf(shifted(lines, minutes)), { isDry: true, isExclusive })
        const settled = found.filter(({ outcome }) => outcome === 'settles')
        expect({
          seed,
          minutes,
          absent: coverage.absent.filter((key) => sent.has(key)),
          // A message is called as its send is.
          wrong: settled.filter(({ line, dedupe_key }) => dedupe_key !== lines[line - 2]?.[0]),
        }).toEqual({ seed, minutes, absent: [], wrong: [] })
        settling += settled.length
        if (minutes === 0) told += coverage.absent.length
      }
      lacking += unsent
    }
    // In the right zone it does tell.
    expect(told).toBeGreaterThan(lacking / 4)
    expect(settling).toBeGreaterThan(10)
  })
})

/** What an account has sent in ten hours, and the file of a part of it. Some of our calls have no answer; half of those went out. */
async function world(seed: number, isExclusive: boolean): Promise<{ lines: Line[]; sent: Set<string>; unsent: number }> {
  const { below, chance } = chancesOf(seed)
  const sent = new Set<string>()
  const logged: Line[] = []
  let unsent = 0
  for (let n = 0; n < 24; n += 1) {
    const claimedAt = new Date(at('05:00:00').getTime() + n * 25 * 60_000 + below(20 * 60_000))
    const to = `r${below(16)}@example.com`
    const id = `s${seed}m${n}`
    const log = (seconds: number, status: string) =>
      logged.push([id, to, new Date(claimedAt.getTime() + seconds * 1_000).toISOString(), status])
    const isSent = chance(80)
    const isSlow = chance(20)
    if (isSent && (isSlow || chance(70))) log(1 + below(5), 'sent')
    if (isSent) log(10 + below(isSlow ? 20_000 : 60), 'delivered')
    // Somebody else's.
    if (!isExclusive && chance(10)) continue
    if (isSent && chance(75)) await acceptedSend(id, to, claimedAt)
    else await unknownSend(id, to, claimedAt)
    if (isSent) sent.add(id)
    else unsent += 1
  }
  logged.sort(([, , one], [, , other]) => Date.parse(one) - Date.parse(other))
  const first = chance(50) ? 0 : below(logged.length / 3)
  const last = chance(50) ? logged.length : logged.length - below(logged.length / 3)
  return { lines: logged.slice(first, last), sent, unsent }
}

describe('a log that is read again', () => {
  const byWrongColumn: Reading = { columns: { recipient: 'From' }, reason: 'log of the 29th' }

  test('I7 by the right columns, takes back what was lacking by the wrong ones', async () => {
    await day()
    const csv = csvOf([...DAY, ADA])

    await read(csv, byWrongColumn)
    expect([await absences(), await verdictOf('k'), (await countReview(pool)).not_sent]).toEqual([['k'], 'not_sent', 1])

    const { coverage } = await read(csv)
    expect(coverage.absent).toEqual([])
    expect([await absences(), await verdictOf('k'), (await countReview(pool)).not_sent]).toEqual([[], 'cant_tell', 0])
    expect((await pool.query('select lines, columns, reason from sending_logs')).rows).toEqual([
      {
        lines: 5,
        columns: { recipient: 'To', message_id: 'ID', status: 'Status', time: 'Date', subject: null },
        reason: 'asked Inboxili',
      },
    ])
  })

  test('in a zone in which its times are off, takes back all that it said', async () => {
    await day()
    const csv = csvOf(shifted(DAY, IN_NEW_YORK))

    await read(csv, { zone: 'America/New_York' })
    expect(await verdictOf('k')).toBe('not_sent')

    await read(csv, { zone: 'UTC' })
    expect([await absences(), await verdictOf('k')]).toEqual([[], 'cant_tell'])

    await read(csv, { zone: 'America/New_York' })
    expect(await verdictOf('k')).toBe('not_sent')
  })

  test('once an email is known that it should have, takes back all that it said', async () => {
    await day()
    await read(csvOf(DAY))
    await acceptedSend('m6', 'dan@example.com', at('15:00:00'))

    expect((await read(csvOf(DAY))).coverage).toMatchObject({ known: 3, missing: 1, absent: [] })
    expect([await absences(), await verdictOf('k')]).toEqual([[], 'cant_tell'])
  })

  test('I7 another file that has it takes back what this one said, and leaves the rest', async () => {
    await day()
    await unknownSend('lacking', 'dan@example.com', at('14:10:00'))
    await read(csvOf(DAY))
    expect(await absences()).toEqual(['k', 'lacking'])

    await read(csvOf([ADA]))

    expect(await absences()).toEqual(['lacking'])
    expect([await verdictOf('k'), await verdictOf('lacking')]).toEqual(['cant_tell', 'not_sent'])
  })

  test('another file that lacks it too keeps it so when the first one takes it back', async () => {
    await day()
    const csv = csvOf(shifted(DAY, IN_NEW_YORK))
    await read(csv, { zone: 'America/New_York' })
    await read(csvOf(DAY))
    expect(await absences()).toEqual(['k', 'k'])
    expect((await findEvidence(pool, 'k', NOW))?.lines.filter(({ kind }) => kind === 'sending_log')).toHaveLength(1)

    await read(csv, { zone: 'UTC' })

    expect([await absences(), await verdictOf('k')]).toEqual([['k'], 'not_sent'])
  })

  test('leaves what it said of a send that has been decided about', async () => {
    await day()
    await read(csvOf(DAY))
    await pool.query(`update email_sends set state = 'abandoned' where dedupe_key = 'k'`)

    await read(csvOf(DAY))

    expect([await absences(), (await audited()).length]).toEqual([['k'], 1])
  })

  test('I12 each reading that finds or takes back something is audited, with how it was read; the same again is not', async () => {
    await day()
    const csv = csvOf([...DAY, ADA])
    const { file_sha256 } = await read(csv, byWrongColumn)
    await read(csv, { ...byWrongColumn, reason: 'once more' })
    await read(csv, { isDry: true })
    await read(csv)

    const reading = { zone: 'UTC', lines: 5, known: 2, missing: 0, times_off_by_minutes: null }
    const range = { from: '2026-11-29T00:00:00.000Z', until: '2026-11-29T23:59:00.000Z' }
    const columns = { recipient: 'To', message_id: 'ID', status: 'Status', time: 'Date', subject: null }
    const row = { actor: 'person:ann', via: 'page', action: 'read_log', subject: `log:${file_sha256}`, before: null }
    expect(await audited()).toEqual([
      {
        ...row,
        reason: 'log of the 29th',
        after: { ...reading, ...range, columns: { ...columns, recipient: 'From' }, absent: 1, withdrawn: [] },
      },
      { ...row, reason: 'asked Inboxili', after: { ...reading, ...range, columns, absent: 0, withdrawn: ['k'] } },
    ])
    expect(JSON.stringify(await audited())).not.toContain('@')
  })

  test('I12 a crash leaves the reading before it whole, and the next one does all', async () => {
    await day()
    await unknownSend('lacking', 'dan@example.com', at('14:10:00'))
    const csv = csvOf([...DAY, ADA])
    await read(csv, byWrongColumn)
    const kept = async () =>
      Promise.all(['sending_logs', 'log_absences', 'audit_log'].map(async (table) => (await pool.query(`table ${table}`)).rows))
    const before = await kept()
    await pool.query(
      `create function break_down() returns trigger language plpgsql as $$ begin raise exception 'the disk is full'; end $$`,
    )
    await pool.query('create trigger break_down before insert on audit_log for each row execute function break_down()')
    try {
      await expect(read(csv)).rejects.toThrow('the disk is full')
    } finally {
      await pool.query('drop trigger break_down on audit_log; drop function break_down')
    }
    expect(await kept()).toEqual(before)

    await read(csv)

    expect([await absences(), (await audited()).length]).toEqual([['lacking'], 2])
  })

  test('by two people at once and in two ways, it is kept as one of them has read it', async () => {
    await day()
    const csv = csvOf([...DAY, ADA])
    const [locked, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const holding = inTransaction(pool, async (tx) => {
      await tx.query(`select pg_advisory_xact_lock(hashtextextended('sending logs', 0))`)
      locked.resolve()
      await release.promise
    })
    await locked.promise
    const wrong = read(csv, byWrongColumn)
    await untilWaiting(pool, 1)
    const right = read(csv)
    await untilWaiting(pool, 2)
    release.resolve()
    await holding
    await Promise.all([wrong, right])

    // The lock is a queue: who came second stands.
    expect((await audited()).map(({ after }) => after.columns.recipient)).toEqual(['From', 'To'])
    expect(await absences()).toEqual([])
  })

  test('by many at once, it is kept and audited once', async () => {
    await day()

    const found = await Promise.all(Array.from({ length: 8 }, () => read(csvOf(DAY))))

    expect(found.map(({ coverage }) => coverage.absent)).toEqual(Array(8).fill(['k']))
    expect([await absences(), (await audited()).length]).toEqual([['k'], 1])
    expect((await pool.query('select from sending_logs')).rowCount).toBe(1)
  })
})

describe('the command', () => {
  test('with --json prints the object of the API, with every line, and says of times that are off how far', async () => {
    await day()
    const csv = csvOf(shifted([...DAY, ADA], IN_NEW_YORK))
    const path = join(directory, 'log.csv')
    writeFileSync(path, csv)
    const command = (json: boolean) =>
      reconcileCommand(pool, path, false, { json, unicode: true, isWatched: false, say: () => undefined })

    const { stdout } = await command(true)
    const { stderr } = await command(false)

    const asked = await read(csv, { isDry: true })
    expect(JSON.parse(stdout)).toEqual({ ...JSON.parse(JSON.stringify(asked)), lines_left_out: 0 })
    expect(reconciledSchema.safeParse(JSON.parse(stdout)).error).toBe(undefined)
    expect(asked.lines).toHaveLength(5)
    expect(stderr).toContain(' · the times are off by about 5 h, so none of them is used: give the zone\n')
  })
})
