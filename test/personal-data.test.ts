import { describe, expect, test } from 'vitest'
import { maskFor, namesAddress } from '../src/ops/personal-data.ts'
import { createView } from '../src/ops/views.ts'
import { testApi } from './support/api.ts'
import { testDatabase } from './support/database.ts'
import { insertEvent, insertFollowUp, insertSend } from './support/ops-rows.ts'
import { testPages } from './support/page.ts'

const database = await testDatabase()
const { pool } = database
const api = await testApi(database, {}, { ops: { hidePersonalData: true } })
const pages = await testPages(database, { sources: {}, ops: { hidePersonalData: true } })
const mask = maskFor('reader', { hidePersonalData: true })
const keysOf = (body: { sends: { dedupe_key: string }[] }) => body.sends.map((send) => send.dedupe_key)

await insertSend(pool, 'receipt:1', { state: 'sent', recipient: 'grace.hopper@navy.example' })
const event = await insertEvent(pool, 'evt_1')
await insertFollowUp(pool, event, 'receipt:1')
await pool.query(`insert into event_refs (ref, event_id) values ('grace.hopper@navy.example', $1), ('inv-1042', $1)`, [event])

describe('I18 an address is masked whatever its local part is made of', () => {
  test.each([
    ["o'brien@example.com", 'o•••@example.com'],
    ["'quoted'@example.com", "'•••@example.com"],
    ['“curly”@example.com', '“•••@example.com'],
    ['a→b@example.com', 'a•••@example.com'],
    ['{x}|y*z!#$%&+/=?^_`~@example.com', '{•••@example.com'],
    ['müller😀@bücher.example', 'm•••@bücher.example'],
    [`${'x'.repeat(90)}@example.com`, 'x•••@example.com'],
    ['"john doe"@example.com', '"•••@example.com'],
    ['to <ada@a.example>, bob@b.example; "c@c.example"', 'to <a•••@a.example>, b•••@b.example; "c•••@c.example"'],
    ['a@b@c.example', 'a•••@b•••@c.example'],
    ['no address @ all, @ada', 'no address @ all, @ada'],
  ])('%s', (text, masked) => {
    expect(mask.text(text)).toBe(masked)
  })

  test('a long text without any takes one pass', () => {
    const text = 'x'.repeat(1_000_000)

    expect(mask.text(text)).toBe(text)
  })
})

describe('I18 a view that asks for an address does not tell it', () => {
  const views = [
    ['Plain', 'status=bounced&since=24h'],
    ['By recipient', 'recipient=hopper'],
    ['Encoded', 'q=grace.hopper%40navy.example'],
    ['Encoded twice', 'q=grace.hopper%2540navy.example'],
    ['grace.hopper@navy.example', 'q=grace.hopper@navy.example'],
  ] as const

  test('on lists, in settings, in the audit, in CSV and in the API, to readers', async () => {
    for (const [name, query] of views)
      await createView(pool, { screen: 'sends', name, query }, { actor: 'person:mia', via: 'page' })

    const texts: Record<string, string> = {}
    for (const path of ['/ops/sends', '/ops/settings/views', '/ops/audit', '/ops/audit.csv'])
      texts[path] = (await pages.get(path, 'reader').buffer(true)).text
    texts.api = JSON.stringify((await api.get('/v1/views')).body)
    texts.audit = JSON.stringify((await api.get('/v1/audit')).body)
    texts.csv = (await api.get('/v1/audit').set('accept', 'text/csv').buffer(true)).text

    for (const [place, text] of Object.entries(texts)) expect(text, place).not.toMatch(/hopper|%40navy|%2540navy/)
    expect(texts['/ops/sends']).toContain('Plain</a>')
    expect(texts['/ops/sends']).not.toContain('Encoded')
    expect(texts['/ops/settings/views']).toContain('<td class="first">Encoded twice</td>')
    expect(texts['/ops/settings/views']).toContain('<a href="/ops/sends?status=bounced&amp;since=24h">Plain</a>')
    expect(texts.api).toContain('"query":"(hidden)"')
    expect((await pages.get('/ops/sends')).text).toContain('q=grace.hopper%40navy.example')
  })

  test.each([
    ['q=a%40b', true],
    ['q=a%252540b', true],
    ['q=@', true],
    ['status=sent&recipient=x', true],
    ['recipient=', false],
    ['q=INV-1042&status=sent', false],
  ])('%s names one: %s', (query, expected) => {
    expect(namesAddress(query)).toBe(expected)
  })
})

describe('I18 who may not see addresses can not search by them', () => {
  test.each([
    'q=%40navy',
    'q=grace.hopper%40navy.example',
    'recipient=grace.hopper%40navy.example',
    'recipient=x',
    'q=%EF%BC%A0navy',
  ])('GET /v1/sends?%s is refused', async (query) => {
    const { status, body } = await api.get(`/v1/sends?${query}`)

    expect([status, body.code]).toEqual([400, 'invalid_request'])
    expect(body.errors).toEqual([
      { path: query.split('=')[0], message: 'addresses are hidden from role reader: search by a key or an ID' },
    ])
    expect((await api.get(`/v1/sends?${query}`, 'operator')).status).toBe(200)
    expect((await pages.get(`/ops/sends?${query}`, 'reader')).status).toBe(400)
    expect((await pages.get(`/ops/sends.csv?${query}`, 'reader')).status).toBe(400)
  })

  test.each(['hopper', 'grace.h', 'navy.example', 'race'])('a part of an address finds nothing: %s', async (q) => {
    const csv = await api.get(`/v1/sends?q=${q}`).set('accept', 'text/csv').buffer(true)
    const list = (await pages.get(`/ops/sends?q=${q}`, 'reader')).text
    const found = await pages.get(`/ops/search?q=${q}`, 'reader')

    expect((await api.get(`/v1/sends?q=${q}`)).body.sends).toEqual([])
    expect(csv.text.trim().split('\r\n')).toHaveLength(1)
    expect(list).toContain('<b>0</b> match')
    expect([found.status, found.text.includes('Searched keys of sends, message IDs')]).toEqual([200, true])
    expect(keysOf((await api.get(`/v1/sends?q=${q}`, 'operator')).body)).toEqual(['receipt:1'])
  })

  test('keys, IDs and what else an event names are found as before', async () => {
    for (const q of ['receipt', 'receipt:1', 'evt_1', 'INV-1042'])
      expect(keysOf((await api.get(`/v1/sends?q=${q}`)).body), q).toEqual(['receipt:1'])
    expect((await pages.get('/ops/search?q=INV-1042', 'reader')).headers.location).toBe('/ops/sends/receipt%3A1')
  })

  test('events are found by an ID that they name, by an address they are not', async () => {
    const address = 'ref=grace.hopper%40navy.example'

    expect((await api.get(`/v1/events?${address}`)).status).toBe(400)
    expect((await pages.get(`/ops/events?${address}`, 'reader')).status).toBe(400)
    expect((await pages.get(`/ops/events.csv?${address}`, 'reader')).status).toBe(400)
    expect((await api.get(`/v1/events?${address}`, 'operator')).body.events).toHaveLength(1)
    expect((await api.get('/v1/events?ref=INV-1042')).body.events).toHaveLength(1)
  })
})
