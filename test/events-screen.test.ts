import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import { insertEvent, insertFollowUp, insertSend } from './support/ops-rows.ts'
import { testPages } from './support/page.ts'
import { INBOXILI_SECRET } from './support/service.ts'

const database = await testDatabase()
const { pool } = database
const { get, submit } = await testPages(database, {
  sources: {
    stripe: { provider: 'stripe', secrets: ['whsec_1'] },
    inboxili: { provider: 'inboxili', secrets: [INBOXILI_SECRET] },
  },
  followUps: [
    {
      source: 'stripe',
      type: 'invoice.paid',
      email: ({ id }: { id: string }) => ({
        key: `invoice:${id}:paid`,
        to: 'ada@example.com',
        from_email: 'billing@example.com',
        subject: 'Your receipt',
        text_body: 'Thank you',
      }),
    },
  ],
})

const hostile = {
  id: '<svg onload=alert(1)>',
  type: '"></td><script>alert(1)</script>',
  body: Buffer.from('{"name":"<img src=x onerror=alert(1)>","amount":10.00,"big":9007199254740993,"bidi":"a\u202eb"}'),
}
const hostileRow = await insertEvent(pool, hostile.id, {
  type: hostile.type,
  body: hostile.body,
  error: '<b>bold</b>',
  status: 'failed',
})
const paid = await insertEvent(pool, 'evt_1042', {
  redeliveries: 3,
  benign_variants: 1,
  last_redelivered_at: new Date(),
  secret_index: 0,
  secret_fingerprint: '9c1e',
})
await insertSend(pool, 'invoice:evt_1042:paid', { state: 'sent', delivered_at: new Date() })
await insertFollowUp(pool, paid, 'invoice:evt_1042:paid')
const other = Buffer.from('{"id":"evt_1042","amount":12.00}')
await pool.query('insert into webhook_conflicts (event, body, body_sha256) values ($1, $2, $3)', [
  paid,
  other,
  createHash('sha256').update(other).digest(),
])
await insertEvent(pool, 'evt_test', { livemode: false, status: 'ignored', processed_at: new Date() })

test('C-67 what strangers wrote is text on the list and in each view of the event', async () => {
  const pages = [
    '/ops/events',
    ...['pretty', 'raw', 'headers', 'redeliveries', 'conflicts'].map((tab) => `/ops/events/${hostileRow}?tab=${tab}`),
  ]
  for (const path of pages) {
    const { status, text } = await get(path)
    expect(status, path).toBe(200)
    expect(text, path).not.toMatch(/<script>|<svg onload|<img src=x|<b>bold/)
    expect(text, path).toContain('&lt;svg onload=alert(1)&gt;')
    expect(text, path).toContain('&lt;script&gt;alert(1)&lt;/script&gt;')
  }
  const { text } = await get(`/ops/events/${hostileRow}`)
  expect(text).toContain('&quot;amount&quot;: 10.00,\n')
  expect(text).toContain('&quot;big&quot;: 9007199254740993,\n')
  expect(text).toContain('a<span class="chip">U+202E</span>b')
})

test('an event tells by what it was verified, what it caused, and that it came again', async () => {
  const { text } = await get(`/ops/events/${paid}`)

  expect(text).toContain('verified by secret 1 (fingerprint <code>9c1e</code>)')
  expect(text).toContain('<a href="/ops/sends/invoice%3Aevt_1042%3Apaid">invoice:evt_1042:paid</a>')
  expect(text).toContain('Redeliveries 3')
  expect((await get(`/ops/events/${paid}?tab=redeliveries`)).text).toMatch(
    /Redelivery, same bytes<\/dt><dd>1<\/dd>\s*<dt>Redelivery, same JSON in other bytes<\/dt><dd>1<\/dd>/,
  )
})

test('the same ID with other content is shown line by line beside what is kept, and both can be fetched', async () => {
  const { text } = await get(`/ops/events/${paid}?tab=conflicts`)

  expect(text).toContain('<span class="added">+   &quot;amount&quot;: 12.00</span>')
  const href = /href="(\/ops\/events\/\d+\/conflicts\/\d+)"/.exec(text)?.[1] ?? ''
  const answer = await get(href).buffer(true)
  expect(answer.headers['content-type']).toBe('application/octet-stream')
  expect(answer.headers['content-disposition']).toMatch(/^attachment; filename="event-\d+-conflict-\d+\.bin"$/)
  expect(Buffer.from(answer.body).toString()).toBe('{"id":"evt_1042","amount":12.00}')
})

test('the list is narrowed by each filter of its address, and shows the form again for one that is wrong', async () => {
  const shown = async (query: string) =>
    [...(await get(`/ops/events?${query}`)).text.matchAll(/data-row="(\d+)"/g)].map(([, id]) => id)

  expect(await shown('')).toHaveLength(3)
  expect(await shown('status=failed&source=&type=')).toEqual([hostileRow])
  expect(await shown('mode=test')).toHaveLength(1)
  expect(await shown('has=conflict')).toEqual([paid])
  expect(await shown('has=redelivery')).toEqual([paid])
  expect(await shown('event_id=evt_1042')).toEqual([paid])

  const wrong = await get('/ops/events?status=%3Cb%3E&since=yesterday')
  expect(wrong.status).toBe(400)
  expect(wrong.text).toContain('There is a problem')
  expect(wrong.text).toContain('value="yesterday"')
  expect(wrong.text).not.toContain('<b>')
})

test('pages of the list lead on by a cursor, which the address holds', async () => {
  const first = await get('/ops/events?limit=2')
  const next = /<a href="([^"]+)" rel="next">/.exec(first.text)?.[1]?.replaceAll('&amp;', '&') ?? ''

  expect(next).toMatch(/^\/ops\/events\?limit=2&cursor=/)
  expect((await get(next)).text.match(/data-row=/g)).toHaveLength(1)
})

test('a replay is asked for from the list, shows what it would do, and sends nothing that has been sent', async () => {
  const planned = await submit('/ops/replays', { source: 'stripe', event_id: 'evt_1042', status: 'processed' })
  expect(planned.status).toBe(303)
  const path = planned.headers.location?.split('?')[0] ?? ''
  const plan = await get(path)
  expect(plan.text).toContain('Dry run: nothing has happened')
  expect(plan.text).toMatch(/<b>0<\/b> emails would be sent/)
  expect(plan.text).toMatch(/Nothing is sent, the key is taken: Delivered<\/td><td class="number">1/)

  const reader = await submit(`${path}/start`, {}, 'reader')
  const started = await submit(`${path}/start`, {})

  expect([reader.status, started.status]).toEqual([403, 303])
  const { rows } = await pool.query(`select actor, via from audit_log where action = 'replay'`)
  expect(rows).toEqual([{ actor: 'person:mia', via: 'page' }])
  expect((await get(path)).text).toContain('1 of 1 gone through')
  expect((await get('/ops/replays')).text).toContain(path)
})

test('a replay of nothing in particular, of what waits, or by a wrong filter is refused in words', async () => {
  for (const fields of [{}, { status: 'pending' }, { since: 'yesterday' }, { source: 'stripe', mode: 'test' }])
    expect((await submit('/ops/replays', fields as Record<string, string>)).status, JSON.stringify(fields)).toBe(400)
})

test('what is not there says so, whatever the address holds', async () => {
  for (const path of [
    '/ops/events/999',
    '/ops/events/abc',
    '/ops/events/99999999999999999999',
    '/ops/replays/x',
    '/ops/events/1/body/x',
    '/ops/events/999/body',
    `/ops/events/${paid}/conflicts/77`,
  ])
    expect((await get(path)).status, path).toBe(404)
})

test('a reader from whom personal data is hidden sees no body', async () => {
  const masked = await testDatabase()
  const pages = await testPages(masked, { sources: {}, ops: { hidePersonalData: true } })
  const row = await insertEvent(masked.pool, 'evt_1', { body: Buffer.from('{"email":"ada@example.com"}') })

  for (const tab of ['pretty', 'raw', 'conflicts'])
    expect((await pages.get(`/ops/events/${row}?tab=${tab}`, 'reader')).text).not.toContain('ada@')
  expect((await pages.get(`/ops/events/${row}/body`, 'reader')).status).toBe(403)
  expect((await pages.get(`/ops/events/${row}`)).text).toContain('ada@example.com')
})
