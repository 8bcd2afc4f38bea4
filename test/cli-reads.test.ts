import { stripVTControlCharacters } from 'node:util'
import { beforeAll, describe, expect, test } from 'vitest'
import { listEventsCommand, showEventCommand } from '../src/cli/events.ts'
import { shortened, visible } from '../src/cli/output.ts'
import { listSendsCommand, showSendCommand } from '../src/cli/sends.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertEvent, insertFollowUp, insertReport, insertSend } from './support/ops-rows.ts'

const { pool } = await testDatabase()
const terminal = { width: 120, unicode: true }
const longKey = `invoice:${'7'.repeat(60)}:paid`
let eventId = ''

beforeAll(async () => {
  const at = (time: string) => new Date(`2026-11-29T${time}Z`)
  await insertSend(pool, 'invoice:INV-1042:paid', {
    state: 'needs_review',
    queued_at: at('14:02:07'),
    last_error: 'no answer in 15 s',
  })
  await insertSend(pool, 'refund:re_80:done', {
    state: 'sent',
    queued_at: at('11:40:51'),
    recipient: 'di@example.com',
    message_id: 'm_80',
    bounced_at: at('11:41:00'),
    bounce_kind: 'hard',
  })
  await insertSend(pool, longKey, { queued_at: at('10:00:00'), recipient: 'long@example.com' })
  eventId = await insertEvent(pool, 'evt_1Q', {
    received_at: at('14:02:06.881'),
    redeliveries: 2,
    last_redelivered_at: at('15:00:00'),
  })
  await pool.query(`update email_sends set source_event = $1 where dedupe_key = 'invoice:INV-1042:paid'`, [eventId])
  await insertFollowUp(pool, eventId, 'invoice:INV-1042:paid', { at: at('14:02:06.971') })
  const attempt = await insertAttempt(pool, 'invoice:INV-1042:paid', {
    outcome: 'unknown',
    claimed_at: at('14:02:07.114'),
    called_at: at('14:02:07.121'),
    ended_at: at('14:02:22.121'),
    error: 'no answer in 15 s',
  })
  const report = await insertEvent(pool, 'm_93c:delivered', {
    source: 'inboxili',
    type: 'delivered',
    received_at: at('14:06:41'),
  })
  await insertReport(pool, report, { attempt, message_id: 'm_93c' })
})

describe('sends list', () => {
  test('on a terminal is a table with the words of the page, and its hint goes to stderr', async () => {
    const { stdout, stderr, exitCode } = await listSendsCommand(pool, { ...terminal, status: 'needs_review,bounced' })

    expect(stdout).toBe(
      [
        'STATUS              KEY                    TO               ASKED FOR (UTC)      WHY',
        '? Needs a decision  invoice:INV-1042:paid  ada@example.com  2026-11-29 14:02:07  no answer in 15 s',
        '✕ Bounced           refund:re_80:done      di@example.com   2026-11-29 11:40:51  hard bounce',
        '',
      ].join('\n'),
    )
    expect({ stderr, exitCode }).toEqual({ stderr: '2 sends\n', exitCode: 0 })
  })

  test('fits the width by shortening the middle of keys', async () => {
    const { stdout } = await listSendsCommand(pool, { width: 100, unicode: true })

    expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBe(100)
    expect(stdout).toMatch(/ invoice:7*…7*:paid /)
    expect(stdout).toContain(' ada@example.com ')
  })

  test('in a pipe is tab-separated with full values, one row a line', async () => {
    const { stdout } = await listSendsCommand(pool, {})

    expect(stdout.split('\n').map((line) => line.split('\t'))).toEqual([
      ['needs_review', 'invoice:INV-1042:paid', 'ada@example.com', '2026-11-29T14:02:07.000Z', '', 'no answer in 15 s', ''],
      ['bounced', 'refund:re_80:done', 'di@example.com', '2026-11-29T11:40:51.000Z', 'm_80', 'hard bounce', ''],
      ['queued', longKey, 'long@example.com', '2026-11-29T10:00:00.000Z', '', '', expect.stringMatching(/^20\d\d-.*Z$/)],
      [''],
    ])
  })

  test('as JSON is the API’s own object and nothing else, and its cursor leads on', async () => {
    const first = await listSendsCommand(pool, { ...terminal, json: true, limit: 2 })
    const page = JSON.parse(first.stdout)
    const second = await listSendsCommand(pool, { ...terminal, json: true, limit: 2, cursor: page.next_cursor })

    expect(Object.keys(page)).toEqual(['sends', 'next_cursor'])
    expect(page.sends).toMatchObject([{ dedupe_key: 'invoice:INV-1042:paid', needs_review: true }, { status: 'bounced' }])
    expect(first.stderr).toBe('')
    expect(JSON.parse(second.stdout)).toMatchObject({ sends: [{ dedupe_key: longKey }], next_cursor: null })
  })

  test('says on stderr how to go on, and that nothing matches', async () => {
    const more = await listSendsCommand(pool, { ...terminal, limit: 1 })
    const none = await listSendsCommand(pool, { ...terminal, q: 'nowhere' })

    expect(more.stderr).toMatch(/^1 send · more: --cursor [\w-]+\n$/)
    expect(none).toEqual({ stdout: '', stderr: 'No send matches.\n', exitCode: 0 })
  })

  test('takes the filters of the API', async () => {
    const keys = async (options: object) =>
      (await listSendsCommand(pool, options)).stdout.split('\n').flatMap((line) => line.split('\t')[1] ?? [])

    expect(await keys({ source: 'stripe' })).toEqual(['invoice:INV-1042:paid'])
    expect(await keys({ policy: 'timestamp' })).toEqual([])
    expect(await keys({ unknownSince: '2026-11-29T11:00Z' })).toEqual(['invoice:INV-1042:paid'])
    expect(await keys({ unknownSince: '2026-11-29T15:00Z' })).toEqual([])
    expect(await keys({ since: '2026-11-29T11:00Z', until: '2026-11-29T14:00Z' })).toEqual(['refund:re_80:done'])
    expect(await listSendsCommand(pool, { policy: 'often' })).toMatchObject({
      exitCode: 2,
      stderr: expect.stringMatching(/^oncehook: --policy: /),
    })
  })

  test('with an option that can’t be read ends with 2 and names it', async () => {
    const { stdout, stderr, exitCode } = await listSendsCommand(pool, { ...terminal, since: 'yesterday' })

    expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 2 })
    expect(stderr).toMatch(/^oncehook: --since: /)
  })

  test('has colours only when told, and the words stay the same', async () => {
    const plain = await listSendsCommand(pool, terminal)
    const colored = await listSendsCommand(pool, { ...terminal, color: true })

    expect(plain.stdout).not.toContain('\u001b')
    expect(colored.stdout).toContain('\u001b[31m✕ Bounced')
    expect(stripVTControlCharacters(colored.stdout)).toBe(plain.stdout)
  })

  test('on a terminal that only knows ASCII has ASCII icons', async () => {
    const { stdout, stderr } = await listSendsCommand(pool, { width: 80, limit: 3 })

    expect(stdout + stderr).toMatch(/^[\n\x20-\x7e]+$/)
    expect(stdout).toContain('x Bounced')
  })
})

describe('sends show', () => {
  test('answers in a sentence first, then tells what happened with offsets from the first moment', async () => {
    const { stdout, exitCode } = await showSendCommand(pool, 'invoice:INV-1042:paid', terminal)

    expect(exitCode).toBe(0)
    expect(stdout.replace(/no report in \d+ \w+/, 'no report in so long')).toBe(
      [
        '? Needs a decision   invoice:INV-1042:paid → ada@example.com',
        "We don't know whether this email was sent: no answer in 15 s. It will not be sent again unless a person decides.",
        'Subject: Your receipt',
        '  2026-11-29 14:02:06.881Z  event received  stripe invoice.paid evt_1Q, 15 bytes, sha256 906c…c783',
        '                     +0 ms  decision        New: first time we see evt_1Q (2 redeliveries later: same bytes)',
        '                    +90 ms  follow-up       rule "receipts" for evt_1Q → this send',
        '                   +119 ms  asked for       by token:test, policy claim',
        '                   +233 ms  claim           key was free → claimed for call 1, policy claim',
        '         +240 ms → +15.2 s  call 1          POST /api/v1/transactional/send · no answer in 15 s → unknown',
        '               +4 min 34 s  report          delivered, m_93c, of call 1, m_93c:delivered',
        "Can't tell: no report in so long, which proves nothing",
        '  oncehook sends resolve invoice:INV-1042:paid --decision sent|abandoned|retry --reason "…"',
        '',
      ].join('\n'),
    )
  })

  test('has its times in the zone of the machine where that is asked for', async () => {
    const local = { ...terminal, zone: 'Europe/Berlin' }
    const show = await showSendCommand(pool, 'invoice:INV-1042:paid', local)
    const list = await listSendsCommand(pool, { ...local, q: 'invoice:INV-1042:paid' })

    expect(show.stdout).toContain('  2026-11-29 15:02:06.881+01:00  event received  stripe')
    expect(list.stdout.split('\n').slice(0, 2)).toEqual([
      'STATUS              KEY                    TO               ASKED FOR (Europe/Berlin)  WHY',
      '? Needs a decision  invoice:INV-1042:paid  ada@example.com  2026-11-29 15:02:07        no answer in 15 s',
    ])
  })

  test('as JSON is the send as the API has it', async () => {
    const { stdout } = await showSendCommand(pool, 'invoice:INV-1042:paid', { json: true })

    expect(JSON.parse(stdout)).toMatchObject({
      status: 'needs_review',
      attempts: [{ number: 1 }],
      events: [{ event_id: 'evt_1Q' }],
    })
  })

  test('ends with 1 when no send has the key', async () => {
    for (const key of ['nobody', 'a\0b']) {
      const { stdout, stderr, exitCode } = await showSendCommand(pool, key, terminal)
      expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 1 })
      expect(stderr).toMatch(/^oncehook: no send has the key/)
    }
  })
})

describe('events', () => {
  test('are listed with their statuses in words', async () => {
    const { stdout, stderr } = await listEventsCommand(pool, { ...terminal, eventId: 'evt_1Q' })

    expect(stdout).toBe(
      [
        'ID  STATUS       SOURCE  TYPE          EVENT ID  RECEIVED (UTC)       AGAIN  WHY',
        `${eventId.padEnd(2)}  ✓ Processed  stripe  invoice.paid  evt_1Q    2026-11-29 14:02:06      2`,
        '',
      ].join('\n'),
    )
    expect(stderr).toBe('1 event\n')
  })

  test('in a pipe and as JSON are full values', async () => {
    const piped = await listEventsCommand(pool, { source: 'stripe' })
    const json = await listEventsCommand(pool, { source: 'stripe', json: true })

    expect(piped.stdout).toBe(`${eventId}\tprocessed\tstripe\tinvoice.paid\tevt_1Q\t2026-11-29T14:02:06.881Z\t2\t\n`)
    expect(JSON.parse(json.stdout)).toMatchObject({
      events: [{ id: eventId, event_id: 'evt_1Q', redeliveries: 2 }],
      next_cursor: null,
    })
  })

  test('show what they caused', async () => {
    const { stdout, exitCode } = await showEventCommand(pool, eventId, terminal)

    expect(exitCode).toBe(0)
    expect(stdout).toContain(`✓ Processed   stripe invoice.paid evt_1Q   event ${eventId}\nReceived 2026-11-29 14:02:06 UTC`)
    expect(stdout).toContain('2 redeliveries, last 2026-11-29 15:00:00 UTC')
    expect(stdout).toContain('? Needs a decision   receipts: queued → invoice:INV-1042:paid → ada@example.com')
  })

  test('show what came under their ID after them', async () => {
    const id = await insertEvent(pool, 'evt_again', {
      received_at: new Date('2026-11-29T14:30:00Z'),
      redeliveries: 3,
      benign_variants: 1,
      last_redelivered_at: new Date('2026-11-29T15:00:00Z'),
    })
    await pool.query(
      `insert into webhook_conflicts (event, body, body_sha256, received_at, times) values ($1, 'x', sha256('x'), '2026-11-29T16:00:00Z', 2)`,
      [id],
    )
    const { stdout } = await showEventCommand(pool, id, terminal)

    expect(stdout).toContain(
      '\n3 redeliveries, last 2026-11-29 15:00:00 UTC · 1 × Redelivery, same JSON in other bytes\nConflict: same id, different content, at 2026-11-29 16:00:00 UTC, 2 times, sha256 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n',
    )
  })

  test('are filtered as by the API', async () => {
    const ids = async (options: object) =>
      (await listEventsCommand(pool, options)).stdout.split('\n').flatMap((line) => line.split('\t')[4] ?? [])

    expect(await ids({ has: 'conflict' })).toEqual(['evt_again'])
    expect(await ids({ mode: 'test' })).toEqual([])
    expect(await ids({ until: '2026-11-29T14:05Z', type: 'invoice.paid' })).toEqual(['evt_1Q'])
    expect(await listEventsCommand(pool, { has: 'luck' })).toMatchObject({
      exitCode: 2,
      stderr: expect.stringMatching(/^oncehook: --has: /),
    })
  })

  test('are found by the ID of their provider, where only one has it', async () => {
    const byRow = await showEventCommand(pool, eventId, terminal)
    await insertEvent(pool, 'evt_twice', { source: 'stripe' })
    await insertEvent(pool, 'evt_twice', { source: 'shop' })

    expect(await showEventCommand(pool, 'evt_1Q', terminal)).toEqual(byRow)
    const several = await showEventCommand(pool, 'evt_twice', terminal)
    expect(several).toMatchObject({
      exitCode: 1,
      stderr: 'oncehook: several events have the id evt_twice; name one by its row\n',
    })
    expect(several.stdout.match(/evt_twice/g)).toHaveLength(2)
    await pool.query(`delete from webhook_events where event_id = 'evt_twice'`)
  })

  test('that do not exist end with 1', async () => {
    for (const id of ['999999', 'evt_none', '99999999999999999999', '']) {
      expect(await showEventCommand(pool, id, terminal)).toEqual({
        stdout: '',
        stderr: `oncehook: no event has the id ${id}\n`,
        exitCode: 1,
      })
    }
  })
})

describe('C-67 text of strangers', () => {
  const hostile = 'x\u001b[2J\u0007\r\n\tADMIN\u202e\u200b\u009b31m'

  test('reaches the terminal as text in every output, and JSON keeps its value', async () => {
    await insertSend(pool, `hostile:${hostile}`, { state: 'rejected', last_error: hostile })
    const event = await insertEvent(pool, hostile, { type: hostile, status: 'failed', processed_at: null, error: hostile })
    await insertFollowUp(pool, event, `hostile:${hostile}`, { rule: hostile, outcome: 'key_taken', error: hostile })

    const outputs = [
      await listSendsCommand(pool, terminal),
      await listSendsCommand(pool, { q: 'hostile:' }),
      await listSendsCommand(pool, { q: 'hostile:', json: true }),
      await showSendCommand(pool, `hostile:${hostile}`, terminal),
      await showSendCommand(pool, `nobody:${hostile}`, terminal),
      await listEventsCommand(pool, terminal),
      await listEventsCommand(pool, { status: 'failed' }),
      await showEventCommand(pool, event, terminal),
      await showEventCommand(pool, hostile, terminal),
    ]

    for (const { stdout, stderr } of outputs) expect(stdout + stderr).not.toMatch(/(?![\n\t])[\p{Cc}\p{Cf}]/u)
    expect(outputs[1]?.stdout.trimEnd().split('\n')).toHaveLength(1)
    expect(outputs[1]?.stdout.trimEnd().split('\t')).toHaveLength(6)
    expect(JSON.parse(outputs[2]?.stdout ?? '').sends[0].last_error).toBe(hostile)
  })

  test('is shown with its characters by number', () => {
    expect(visible('a\u001b[31m\u202eb')).toBe('a<U+001B>[31m<U+202E>b')
  })
})

describe('small parts', () => {
  test('a shortened text counts wide characters twice and cuts none in half', () => {
    expect(shortened('abcdefghij', 7, { unicode: true })).toBe('abc…hij')
    expect(shortened('🎉🎉🎉🎉🎉', 7, { unicode: true })).toBe('🎉…🎉')
    expect(shortened('abcdefghij', 7, {})).toBe('ab...ij')
    expect(shortened('abc', 3, {})).toBe('abc')
  })
})
