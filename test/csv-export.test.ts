import type { Readable } from 'node:stream'
import { describe, expect, test, vi } from 'vitest'
import { exportCsv } from '../src/ops/csv-export.ts'
import { sendFilter } from '../src/ops/filters.ts'
import { maskFor } from '../src/ops/personal-data.ts'
import { readCsv } from '../src/sends/csv.ts'
import { testApi } from './support/api.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent, insertSend } from './support/ops-rows.ts'

const database = await testDatabase()
const { pool } = database
const { get } = await testApi(database)
const hiding = await testApi(database, {}, { ops: { hidePersonalData: true } })

const csv = (path: string, api = { get }, by: 'reader' | 'operator' = 'reader') =>
  api.get(path, by).set('accept', 'text/csv').buffer(true).parse(asText)
function asText(res: unknown, done: (error: Error | null, body: string) => void) {
  const stream = res as Readable // what supertest hands over
  const chunks: Buffer[] = []
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  stream.on('end', () => done(null, Buffer.concat(chunks).toString('utf8')))
}
/** The cells, read by a reader of our own that follows RFC 4180. */
async function cellsOf(text: string): Promise<string[][]> {
  const rows: string[][] = []
  for await (const { cells } of readCsv(
    (async function* () {
      yield Buffer.from(text)
    })(),
  ))
    rows.push(cells)
  return rows
}

describe('a list as CSV', () => {
  test('has a byte order mark, a line of names, CRLF, and quotes where they are needed', async () => {
    await insertSend(pool, 'csv:1', {
      state: 'sent',
      recipient: 'one@example.com',
      queued_at: new Date('2026-11-29T14:00:00.123Z'),
      completed_at: new Date('2026-11-29T14:00:01Z'),
      message: JSON.stringify({ to: 'one@example.com', subject: 'Say "hi", ok\n2' }),
    })

    const { status, headers, body } = await csv('/v1/sends?recipient=one@example.com')

    expect([status, headers['content-type'], headers['content-disposition']]).toEqual([
      200,
      'text/csv; charset=utf-8',
      'attachment; filename="sends.csv"',
    ])
    expect(body).toBe(
      '\uFEFFdedupe_key,status,state,needs_review,version,policy,recipient,subject,source_event,requested_by,queued_at,send_after,claimed_at,' +
        'sending_at,message_id,completed_at,delivered_at,bounced_at,bounce_kind,complained_at,settled_at,settled_by,last_error\r\n' +
        'csv:1,sent,sent,false,1,claim,one@example.com,"Say ""hi"", ok\n2",,token:test,2026-11-29T14:00:00.123Z,,,,,2026-11-29T14:00:01.000Z,,,,,,,\r\n',
    )
  })

  test.each(['=1+2', '+1', '-1', '@SUM(A1)', '\tx', '\rx', "=cmd|' /C calc'!A0"])(
    'C-67 %j is no formula of a spreadsheet',
    async (subject) => {
      await pool.query(`delete from email_sends where dedupe_key = '=csv'`)
      await insertSend(pool, '=csv', { recipient: 'two@example.com', message: JSON.stringify({ subject }) })

      const { body } = await csv('/v1/sends?recipient=two@example.com')

      const [, row = []] = await cellsOf(body)
      expect([row[0], row[7]]).toEqual(["'=csv", `'${subject}`])
    },
  )

  test('I18 has every row of the filter once, page by page, whatever the limit', async () => {
    await pool.query(
      `insert into email_sends (dedupe_key, match_key, state, policy, recipient, message, message_sha256, requested_by, queued_at)
       select 'many:' || n, 'many@example.com', 'queued', 'claim', 'many@example.com', '{}', '\\x00', 'test', '2026-01-01'::timestamptz + n * interval '1 s'
       from generate_series(1, 950) n`,
    )
    await insertSend(pool, 'other:1')

    const { body } = await csv('/v1/sends?recipient=many@example.com&limit=3')

    const [, ...rows] = await cellsOf(body)
    expect(rows.map(([key]) => key)).toEqual(Array.from({ length: 950 }, (_, index) => `many:${950 - index}`))
  })

  test('is there for events and for the audit too', async () => {
    await insertEvent(pool, 'evt_csv', { source: 'csv', received_at: new Date('2026-11-29T14:00:00Z') })
    await pool.query(
      `insert into audit_log (actor, via, action, subject, before) values ('x', 'api', 'only here', 's', '{"a":"b,c"}')`,
    )

    const events = await cellsOf((await csv('/v1/events?source=csv')).body)
    const audit = await cellsOf((await csv('/v1/audit?action=only%20here')).body)

    expect(events.map((row) => [row[1], row[2]])).toEqual([
      ['source', 'event_id'],
      ['csv', 'evt_csv'],
    ])
    expect(audit.map((row) => [row[2], row[4], row[7]])).toEqual([
      ['actor', 'action', 'before'],
      ['x', 'only here', '{"a":"b,c"}'],
    ])
  })

  test('I16 is audited with its filter, and JSON is not', async () => {
    await pool.query('truncate audit_log')

    await csv('/v1/sends?status=sent,bounced&limit=5')
    await get('/v1/sends')
    await get('/v1/sends').set('accept', '*/*')
    await get('/v1/sends').set('accept', 'application/json, text/csv')

    const { rows } = await pool.query('select actor, via, action, subject, after from audit_log')
    expect(rows).toEqual([
      { actor: 'token:grafana', via: 'api', action: 'export', subject: 'sends', after: { status: ['sent', 'bounced'] } },
    ])
  })

  test('hides personal data where the configuration says so, from readers only', async () => {
    await insertSend(pool, 'csv:hidden', { recipient: 'carol@example.com', message: JSON.stringify({ subject: 'For Carol' }) })

    const hidden = await csv('/v1/sends?q=csv:hidden', hiding)
    const shown = await csv('/v1/sends?q=csv:hidden', hiding, 'operator')

    expect(hidden.body).toContain('csv:hidden')
    expect(hidden.body).not.toMatch(/carol@|For Carol/)
    expect(shown.body).toMatch(/carol@example.com,For Carol/)
  })

  test('a filter that is wrong is a problem, not a file', async () => {
    const { status, headers } = await csv('/v1/sends?status=gone')

    expect([status, headers['content-type']]).toEqual([400, 'application/problem+json; charset=utf-8'])
  })
})

test('I18 asks for the next page only when its reader has taken the one before', async () => {
  const query = vi.fn(pool.query.bind(pool))
  const filter = sendFilter(() => new Date()).parse({ recipient: 'many@example.com' })
  const by = { actor: 'token:x', via: 'api', mask: maskFor('operator', { hidePersonalData: false }) }
  const lines = await exportCsv({ pool, reads: { query } as never }, { list: 'sends', filter }, by)
  const listed = () => query.mock.calls.filter(([text]) => /from email_sends/.test(JSON.stringify(text))).length

  await lines.next()
  const afterHead = listed()
  await lines.next()
  const afterPage = listed()
  await lines.return(undefined)

  expect(afterHead).toBe(0)
  expect(afterPage).toBeLessThan(6)
})
