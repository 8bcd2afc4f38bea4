import { randomUUID } from 'node:crypto'
import supertest from 'supertest'
import { describe, expect, test } from 'vitest'
import { readConfig } from '../src/config.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent, insertFollowUp, insertSend } from './support/ops-rows.ts'
import { testPages } from './support/page.ts'

const { pool, url } = await testDatabase()
const setup = { sources: { stripe: { provider: 'stripe', secrets: ['whsec_test_A'] } } }
const now = new Date()
/** What the configuration says; one test hides personal data for a while. */
let config = readConfig(setup)
const { get, submit, app, cookies } = await testPages({ pool, url }, setup, {
  config: () => config,
  publicUrl: 'http://hooks.example.com',
  now: () => now,
})

const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000)
/** The keys that a list shows, in its order. */
const rowsOf = (page: string) => [...page.matchAll(/<tr data-row="([^"]*)"/g)].map(([, key]) => key)
/** What a reader of the page sees, with a blank between its blocks. */
const wordsOf = (page: string) =>
  page
    .replace(/^[\s\S]*<main/, '<main')
    .replace(/<\/?(p|div|dt|dd|td|th|li|h\d|summary|pre|dl|tr|button|section)\b[^>]*>/g, ' ')
    .replace(/<[^>]*>/g, '')
    .replaceAll('&quot;', '"')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')
    .replace(/\s+/g, ' ')

test('before the first send the list says how to make one', async () => {
  const { status, text } = await get('/ops/sends', 'reader')

  expect(status).toBe(200)
  expect(wordsOf(text)).toContain('No sends yet.')
  expect(wordsOf(text)).toContain('npx oncehook trigger stripe invoice.paid')
  // So that the first one can be told of while the page is open.
  expect(text).toMatch(/<p class="new-rows" data-new-rows hidden>[\s\S]*<div data-rows>/)
})

describe('the list of sends', () => {
  test('shows the newest first, page after page, with the whole filter in its address', async () => {
    for (const number of [1, 2, 3])
      await insertSend(pool, `page:${number}`, { state: 'sent', queued_at: minutesAgo(100 - number) })

    const first = await get('/ops/sends?q=page%3A&status=sent&limit=2&view=&policy=')
    const [, next = ''] = /<a href="([^"]*)" rel="next">/.exec(first.text) ?? []
    const second = await get(next.replaceAll('&amp;', '&'))

    expect(rowsOf(first.text)).toEqual(['page:3', 'page:2'])
    expect(wordsOf(first.text)).toContain('3 match')
    expect(next).toMatch(/^\/ops\/sends\?q=page%3A&amp;status=sent&amp;limit=2&amp;.*cursor=/)
    expect(rowsOf(second.text)).toEqual(['page:1'])
    expect(second.text).toContain('« Newest')
    expect(second.text).not.toContain('rel="next"')
    expect(second.text).toContain('<option value="sent" selected>Sent, not confirmed</option>')
    expect(second.text).toMatch(/<input id="field-q"[^>]* value="page:"/)
  })

  test('takes each filter, several statuses at once too, and shows it in the form again', async () => {
    const event = await insertEvent(pool, 'evt_filters')
    const of = { source_event: event, recipient: 'Fil@example.com', queued_at: minutesAgo(50) }
    await insertSend(pool, 'filters:1', { ...of, state: 'needs_review', policy: 'per_period' })
    await insertSend(pool, 'filters:2', { ...of, state: 'rejected' })
    await insertSend(pool, 'filters:3', { state: 'sent', queued_at: minutesAgo(5_000) })
    const keysOf = async (query: string) => rowsOf((await get(`/ops/sends?q=filters&${query}`)).text)

    expect(await keysOf('status=needs_review,rejected')).toEqual(['filters:2', 'filters:1'])
    expect(await keysOf('status=needs_review&status=rejected')).toEqual(['filters:2', 'filters:1'])
    expect(await keysOf('policy=per_period')).toEqual(['filters:1'])
    expect(await keysOf('source=stripe')).toEqual(['filters:2', 'filters:1'])
    expect(await keysOf('since=24h')).toEqual(['filters:2', 'filters:1'])
    expect(await keysOf(`until=${minutesAgo(60).toISOString()}`)).toEqual(['filters:3'])
    expect(await keysOf('recipient=fil%40example.com')).toEqual(['filters:2', 'filters:1'])
    const { text } = await get('/ops/sends?status=needs_review,rejected&since=36h&source=gone&recipient=fil%40example.com')
    expect(text).toContain('<option value="needs_review,rejected" selected>Needs a decision or Not sent, key free</option>')
    expect(text).toContain('<option value="36h" selected>36h</option>')
    expect(text).toContain('<option value="gone" selected>gone</option>')
    expect(text).toMatch(/<input id="field-recipient"[^>]* value="fil@example.com"/)
  })

  test('reads and shows times in the zone of who looks, on a day of 25 hours too, and hands them on as instants', async () => {
    await pool.query(`update people set settings = jsonb_build_object('timeZone', 'Europe/Berlin') where name = 'mia'`)
    // Clocks go back from 03:00 to 02:00 at 01:00 UTC.
    for (const [number, at] of [
      '2026-10-24T21:59:59Z',
      '2026-10-24T22:00:00Z',
      '2026-10-25T22:59:59Z',
      '2026-10-25T23:00:00Z',
    ].entries())
      await insertSend(pool, `zones:${number}`, { state: 'sent', queued_at: new Date(at) })
    const day = '?q=zones&since=2026-10-25&until=2026-10-26'

    const typed = await get(`/ops/sends${day}`)
    const given = await get('/ops/sends?q=zones&since=2026-10-25T01:30:00Z&until=2026-10-25T23:00:00Z')
    const reader = await get(`/ops/sends${day}`, 'reader')

    expect(rowsOf(typed.text)).toEqual(['zones:2', 'zones:1'])
    expect(typed.text).toContain('<option value="2026-10-25" selected>2026-10-25</option>')
    expect(typed.text).toMatch(/<input id="field-until"[^>]* value="2026-10-26"/)
    expect(wordsOf(typed.text)).toContain('like 24h, 7d or 2026-11-29 22:00, in Europe/Berlin')
    expect(wordsOf(typed.text)).toContain('--since 2026-10-24T22:00:00.000Z --until 2026-10-25T23:00:00.000Z')
    expect(typed.text).toContain(
      '/v1/sends?q=zones&amp;since=2026-10-24T22%3A00%3A00.000Z&amp;until=2026-10-25T23%3A00%3A00.000Z',
    )
    expect(given.text).toContain('<option value="2026-10-25T01:30:00Z" selected>2026-10-25 02:30:00 UTC+01:00</option>')
    expect(given.text).toMatch(/<input id="field-until"[^>]* value="2026-10-26 00:00:00"/)
    expect(rowsOf(given.text)).toEqual(['zones:2'])
    // Whose zone is UTC.
    expect(rowsOf(reader.text)).toEqual(['zones:3', 'zones:2'])
    await pool.query(`update people set settings = '{}' where name = 'mia'`)
  })

  test('says of a filter that is wrong what is wrong with it, and keeps it', async () => {
    const { status, text } = await get('/ops/sends?since=yesterday&unknown_since=once&q=kept&nonsense=1&cursor=x')

    expect(status).toBe(400)
    expect(text).toContain('<title>Error: Sends')
    expect(text).toContain('<a href="#field-since">Asked for: must be a time like 24h, 7d or 2026-11-29 22:00</a>')
    expect(text).toContain(
      '<a href="#field-unknown_since">A call unknown since: must be a time like 24h, 7d or 2026-11-29 22:00</a>',
    )
    expect(text).toContain('<p class="error" id="error-unknown_since">must be a time like 24h, 7d or 2026-11-29 22:00</p>')
    expect(text).toContain('nonsense: unknown field')
    expect(text).toMatch(/<input id="field-q"[^>]* value="kept"/)
  })

  test('offers itself as a link with fixed times, as a call and as a command', async () => {
    await insertSend(pool, 'forms:1', { state: 'sent' })

    const { text } = await get('/ops/sends?q=forms%3A1&since=24h')

    const copied = [...text.matchAll(/data-copy="([^"]*)"/g)].map(([, value]) =>
      value?.replaceAll('&amp;', '&').replaceAll('&quot;', '"'),
    )
    expect(copied[0]).toBe('address')
    const fixed = new URL(copied[1] ?? '')
    expect(fixed.origin + fixed.pathname).toBe('http://hooks.example.com/ops/sends')
    expect([...fixed.searchParams.keys()]).toEqual(['q', 'since', 'until'])
    expect(fixed.searchParams.get('since')).toBe(new Date(now.getTime() - 86_400_000).toISOString())
    expect(fixed.searchParams.get('until')).toBe(now.toISOString())
    expect(copied[2]).toBe('curl -sS "$ONCEHOOK_URL/v1/sends?q=forms%3A1&since=24h" -H "Authorization: Bearer $ONCEHOOK_TOKEN"')
    expect(wordsOf(text)).toContain('oncehook sends list --q forms:1 --since 24h')
    const unknown = (await get('/ops/sends?unknown_since=1h')).text
    const hourAgo = encodeURIComponent(new Date(now.getTime() - 3_600_000).toISOString())
    expect(unknown).toContain(`?unknown_since=${hourAgo}&amp;until=`)
    expect(unknown).toMatch(/<input id="field-unknown_since"[^>]* value="1h"/)
    expect(wordsOf(unknown)).toContain('oncehook sends list --unknown-since 1h')
  })

  test('lets operators tick what needs a decision, and nothing else, and take it to the check of the desk', async () => {
    await insertSend(pool, 'ticks:1', { state: 'needs_review', version: 3 })
    await insertSend(pool, 'ticks:2', { state: 'sent' })

    const operators = (await get('/ops/sends?q=ticks')).text
    const readers = (await get('/ops/sends?q=ticks', 'reader')).text

    const ticks = [...operators.matchAll(/<input type="checkbox" name="(\w+)" form="bulk" value="([^"]*)"/g)].map(
      ([, ...it]) => it,
    )
    expect(ticks).toEqual([['sends', '3 ticks:1']])
    expect(readers).not.toContain('type="checkbox"')
    const fields = [...operators.slice(operators.indexOf('id="bulk"')).matchAll(/ name="(\w+)"/g)].map(([, name]) => name)
    expect([...new Set(fields)].sort()).toEqual(['decision', 'form', 'preset', 'reason', 'which'])
    const checked = { sends: '3 ticks:1', decision: 'abandoned', preset: '', reason: 'not in the log', which: 'ticked' }
    const { status, headers } = await submit('/ops/review/check', checked)
    expect(status).toBe(303)
    expect(wordsOf((await get(String(headers.location))).text)).toContain('1 will change, 0 skipped. Nothing has happened yet.')
  })

  test('C-67 shows keys, addresses, subjects and message IDs of strangers as text', async () => {
    const hostile = '<img src=x onerror=alert(1)>'
    const message = { to: 'ada@example.com', from_email: 'b@example.com', subject: hostile, text_body: 'x' }
    await insertSend(pool, `hostile:"${hostile}\u202E%/?#😀`, {
      state: 'needs_review',
      recipient: `${hostile}@example.com`,
      message: JSON.stringify(message),
      message_id: hostile,
    })

    const { text } = await get(`/ops/sends?q=${encodeURIComponent('hostile:"<')}&status=needs_review`)

    expect(rowsOf(text)).toHaveLength(1)
    expect(text).not.toMatch(/<(img|script>)/)
    expect(text.slice(text.indexOf('<tbody'), text.indexOf('</tbody'))).toContain('U+202E')
    expect(wordsOf(text).split(hostile)).toHaveLength(5)
    const [, link = ''] = /<a class="mono" href="([^"]*)"/.exec(text) ?? []
    expect((await get(link)).status).toBe(200)
  })

  test('needs a session', async () => {
    for (const path of ['/ops/sends', '/ops/sends.csv', '/ops/search?q=x']) {
      const { status, headers } = await supertest(app).get(path)
      expect([status, headers.location]).toEqual([303, `/ops/sign-in?to=${encodeURIComponent(path)}`])
    }
  })
})

describe('the list as CSV', () => {
  test('has every row of the filter, and that somebody has it is audited', async () => {
    for (const number of [1, 2, 3])
      await insertSend(pool, `csv:${number}`, { state: 'sent', recipient: '=cmd@example.com', queued_at: minutesAgo(number) })

    const { status, headers, text } = await get('/ops/sends.csv?q=csv%3A&limit=1&status=sent')

    expect(status).toBe(200)
    expect(headers).toMatchObject({
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': 'attachment; filename="sends.csv"',
      'cache-control': 'no-store',
    })
    const lines = text.split('\r\n')
    expect(lines[0]).toMatch(/^\uFEFFdedupe_key,status,/)
    expect(lines.slice(1, 4).map((line) => line.split(',')[0])).toEqual(['csv:1', 'csv:2', 'csv:3'])
    expect(lines[1]).toContain(`,'=cmd@example.com,`)
    const { rows } = await pool.query(`select actor, via, subject, after ->> 'q' as q from audit_log where action = 'export'`)
    expect(rows).toEqual([{ actor: 'person:mia', via: 'page', subject: 'sends', q: 'csv:' }])
  })

  test('is no export when only its head is asked for', async () => {
    const count = async () => (await pool.query(`select from audit_log where action = 'export'`)).rowCount
    const before = await count()

    const { status, headers } = await supertest(app).head('/ops/sends.csv').set('cookie', cookies.operator)

    expect([status, headers['content-type']]).toEqual([200, 'text/csv; charset=utf-8'])
    expect(await count()).toBe(before)
  })

  test('reads times in the zone of who looks', async () => {
    await pool.query(`update people set settings = jsonb_build_object('timeZone', 'Europe/Berlin') where name = 'mia'`)
    for (const [number, at] of ['2026-06-30T21:59:59Z', '2026-06-30T22:00:00Z'].entries())
      await insertSend(pool, `zoned:${number}`, { state: 'sent', queued_at: new Date(at) })

    const { text } = await get('/ops/sends.csv?q=zoned&since=2026-07-01')

    expect([...text.matchAll(/^zoned:\d/gm)].map(([key]) => key)).toEqual(['zoned:1'])
    await pool.query(`update people set settings = '{}' where name = 'mia'`)
  })

  test('is refused for a filter that is wrong', async () => {
    const { status, text } = await get('/ops/sends.csv?since=yesterday')

    expect(status).toBe(400)
    expect(text).toContain('href="/ops/sends?since=yesterday"')
  })
})

describe('views', () => {
  const save = (fields: Record<string, string>, who: 'operator' | 'reader' = 'operator') =>
    submit('/ops/views/sends', fields, who)

  test('are names for addresses, which everybody sees and none of which overrides the address', async () => {
    await insertSend(pool, 'views:1', { state: 'rejected' })

    const saved = await save({ name: 'Refused', query: 'status=rejected&policy=&q=views&cursor=abc&limit=5&view=7' })
    const location = String(saved.headers.location)
    const asSaved = await get(location, 'reader')
    const changed = await get(location.replace('q=views', 'q=nothing'), 'reader')

    expect(saved.status).toBe(303)
    expect(location).toMatch(/^\/ops\/sends\?q=views&status=rejected&view=\d+&done=/)
    expect(asSaved.text).toMatch(/aria-current="true">Refused<\/a>/)
    expect(rowsOf(asSaved.text)).toEqual(['views:1'])
    expect(changed.text).toContain('Refused (changed)')
    expect(wordsOf(changed.text)).toContain('Reset to “Refused”')
    expect(rowsOf(changed.text)).toEqual([])
    // The form's own address is a change of the same view.
    const [, view] = /view=(\d+)/.exec(location) ?? []
    expect(asSaved.text).toContain(`<input type="hidden" name="view" value="${view}">`)
  })

  test('have instants for times, so that all see the same rows, and stay themselves when the form shows them in local form', async () => {
    const setZone = (zone: string) =>
      pool.query(`update people set settings = jsonb_build_object('timeZone', $1::text) where name = 'mia'`, [zone])
    const named = (view: string, times: string) => get(`/ops/sends?${times}&view=${view}`)
    await setZone('America/New_York')
    const list = (await get('/ops/sends?since=2026-11-28&until=2026-11-29+22%3A00')).text

    const saved = await save({
      name: 'Zoned',
      query: /name="query" value="([^"]*)"/.exec(list)?.[1]?.replaceAll('&amp;', '&') ?? '',
    })

    const [, view = ''] = /view=(\d+)/.exec(String(saved.headers.location)) ?? []
    const instants = 'since=2026-11-28T05%3A00%3A00.000Z&until=2026-11-30T03%3A00%3A00.000Z'
    expect(list).toContain(`data-copy="address" data-address="/ops/sends?${instants.replace('&', '&amp;')}" hidden>Copy link<`)
    expect((await pool.query(`select query from saved_views where name = 'Zoned'`)).rows).toEqual([{ query: instants }])
    await setZone('Europe/Berlin')
    const asSaved = (await named(view, instants)).text
    expect(asSaved).toMatch(/<input id="field-until"[^>]* value="2026-11-30 04:00:00"/)
    expect(asSaved).toContain('Zoned</a>')
    const shown = await named(view, 'since=2026-11-28T05%3A00%3A00.000Z&until=2026-11-30+04%3A00%3A00')
    expect(shown.text).toContain('Zoned</a>')
    const changed = await named(view, 'since=2026-11-28T05%3A00%3A00.000Z&until=2026-11-30+04%3A00%3A01')
    expect(changed.text).toContain('Zoned (changed)</a>')
    await pool.query(`update people set settings = '{}' where name = 'mia'`)
  })

  test('are replaced by a change under their own name, never under that of another', async () => {
    const id = async (name: string) => (await pool.query(`select id from saved_views where name = $1`, [name])).rows[0]?.id
    await save({ name: 'One', query: 'status=sent' })
    await save({ name: 'Other', query: 'status=bounced' })

    const own = await save({ name: 'One', query: 'status=delivered', replaces: await id('One') })
    const taken = await save({ name: 'Other', query: 'status=queued', replaces: await id('One') })
    const again = await save({ name: 'One', query: 'status=queued' })

    expect([own.status, taken.status, again.status]).toEqual([303, 409, 409])
    const { rows } = await pool.query(`select name, query from saved_views where name in ('One', 'Other') order by name`)
    expect(rows).toEqual([
      { name: 'One', query: 'status=delivered' },
      { name: 'Other', query: 'status=bounced' },
    ])
  })

  test('are saved by operators only, once for a form sent twice, and not from another site', async () => {
    const form = randomUUID()
    const twice = [await save({ form, name: 'Twice', query: 'q=1' }), await save({ form, name: 'Twice', query: 'q=1' })]
    const reader = await save({ name: 'Reader', query: 'q=1' }, 'reader')
    const foreign = await supertest(app)
      .post('/ops/views/sends')
      .set('cookie', cookies.operator)
      .set('origin', 'https://evil.example')
      .type('form')
      .send({ form: randomUUID(), name: 'Foreign', query: 'q=1' })

    expect([...twice.map(({ status }) => status), reader.status, foreign.status]).toEqual([303, 303, 403, 403])
    expect(twice[0]?.headers.location).toBe(twice[1]?.headers.location)
    expect((await get('/ops/sends?q=new', 'reader')).text).toContain('Saving a view needs role operator.')
    const { rows } = await pool.query(`select name from saved_views where name in ('Twice', 'Reader', 'Foreign')`)
    expect(rows).toEqual([{ name: 'Twice' }])
  })
})

describe('the search of the header', () => {
  const search = (q: string, more = '') => get(`/ops/search?q=${encodeURIComponent(q)}${more}`)

  test('opens the one send or event that it finds', async () => {
    await insertSend(pool, 'invoice:INV-1042:paid', { state: 'sent', message_id: 'm_93c' })
    const event = await insertEvent(pool, 'evt_one_1042')

    for (const q of ['INV-1042', ' invoice:INV-1042:paid ', 'm_93c']) {
      const { status, headers } = await search(q)
      expect([status, headers.location]).toEqual([303, '/ops/sends/invoice%3AINV-1042%3Apaid'])
    }
    expect((await search('evt_one_1042')).headers.location).toBe(`/ops/events/${event}`)
  })

  test('lists several sends, and the events that name the same', async () => {
    await insertSend(pool, 'several:one', { state: 'sent' })
    await insertSend(pool, 'several:two', { state: 'sent' })
    const event = await insertEvent(pool, 'evt_naming')
    await pool.query(`insert into event_refs (ref, event_id) values ('several', $1)`, [event])

    const { status, text } = await search('several')

    expect(status).toBe(200)
    expect(rowsOf(text)).toEqual(['several:two', 'several:one', event])
  })

  test('lists the events of several sources that have the same ID', async () => {
    const one = await insertEvent(pool, 'evt_same')
    await insertEvent(pool, 'evt_same', { source: 'shop' })

    const { text } = await search('evt_same')

    expect(rowsOf(text)).toHaveLength(2)
    expect(rowsOf(text)[1]).toBe(one)
  })

  test('says where the chain broke when there is no send', async () => {
    const kept = await insertEvent(pool, 'evt_kept', { status: 'ignored' })
    const failed = await insertEvent(pool, 'evt_failed', { status: 'failed', error: 'no address' })
    await insertFollowUp(pool, failed, null, { outcome: 'failed', error: 'no address' })
    await pool.query(`insert into event_refs (ref, event_id) values ('inv-kept', $1), ('inv-failed', $2)`, [kept, failed])

    const nothing = wordsOf((await search('inv-unheard-of')).text)
    expect(nothing).toContain(
      'No event that is stored names it. Searched keys of sends, recipients, message IDs, event IDs, what events refer to.',
    )
    expect(nothing).toContain('Search raw bodies of the last 24 h')
    const ofKept = await search('INV-kept')
    expect(wordsOf(ofKept.text)).toContain('One event names it and was kept; no rule asked for an email.')
    expect(rowsOf(ofKept.text)).toEqual([kept])
    const ofFailed = await search('INV-failed')
    expect(wordsOf(ofFailed.text)).toContain('The follow-up failed: no address')
    expect(wordsOf(ofFailed.text)).toContain('evt_failed receipts failed: no address –')
  })

  test('says the same on the list, and whether the other filters are the cause', async () => {
    await insertSend(pool, 'beyond:1', { state: 'sent' })

    const unknown = (await get('/ops/sends?q=unheard-of')).text
    const beyond = (await get('/ops/sends?q=beyond&status=bounced')).text

    expect(wordsOf(unknown)).toContain('No send matches. No event that is stored names it.')
    expect(wordsOf(beyond)).toContain('There are sends for it, but none that the other filters want.')
    expect(beyond).toContain('<a href="/ops/sends?q=beyond">Without the other filters</a>')
  })

  test('looks through raw bodies of the last day when asked, not those of events before', async () => {
    const body = (text: string) => ({ body: Buffer.from(`{"note":"${text}"}`) })
    await insertEvent(pool, 'evt_body_old', { ...body('needle-in-body'), received_at: minutesAgo(25 * 60) })
    const recent = await insertEvent(pool, 'evt_body', { ...body('needle-in-body'), status: 'ignored' })

    const found = await search('needle-in-body', '&bodies=1')
    const missed = await search('no-such-needle', '&bodies=1')

    expect(rowsOf(found.text)).toEqual([recent])
    expect(wordsOf(missed.text)).toContain('No body has this text.')
  })

  test('shows what was typed as text and refuses what cannot be asked', async () => {
    const hostile = await search('"><script>alert(1)</script>')
    const nul = await get('/ops/search?q=a%00b')
    const empty = await get('/ops/search?q=')

    expect(hostile.text).not.toContain('<script>')
    expect(nul.status).toBe(400)
    expect(nul.text).toContain('href="#field-q"')
    expect(empty.status).toBe(200)
  })
})

test('what the configuration hides from readers is in no list and in no file', async () => {
  await insertSend(pool, 'hidden:1', {
    state: 'needs_review',
    recipient: 'hid@example.com',
    last_error: 'no answer for hid@example.com',
  })
  await insertSend(pool, 'hidden:2', { state: 'sent', recipient: 'hid@example.com' })
  config = readConfig({ ...setup, ops: { hidePersonalData: true } })
  try {
    for (const path of ['/ops/sends?q=hidden%3A', '/ops/search?q=hidden%3A', '/ops/sends.csv?q=hidden%3A']) {
      const { status, text } = await get(path, 'reader')
      expect(status).toBe(200)
      expect(text).toContain('h•••@example.com')
      expect(text).not.toContain('hid@example.com')
      expect((await get(path)).text).toContain('hid@example.com')
    }
    expect(wordsOf((await get('/ops/search?q=hid&bodies=1', 'reader')).text)).toContain('Searching bodies needs role operator.')
  } finally {
    config = readConfig(setup)
  }
})
