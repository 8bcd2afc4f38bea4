import { createHmac } from 'node:crypto'
import { beforeEach, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { testDatabase } from '../support/database.ts'
import { countRows, emptyTables, ingest, storedEvents } from '../support/posting.ts'
import { hexHmac } from '../support/service.ts'

// What only shows once a request has come by HTTP and its events are stored.

const database = await testDatabase()
const PASSWORD = 'hook:pa:ss wörd'
const BASIC = `Basic ${Buffer.from(PASSWORD).toString('base64')}`
const sources = {
  slack: { provider: 'slack', secrets: ['slack_test'] },
  postmark: { provider: 'postmark', secrets: [PASSWORD] },
  chargebee: { provider: 'chargebee', secrets: [PASSWORD] },
  xendit: { provider: 'xendit', secrets: ['xnd-token-1'] },
  mercadopago: { provider: 'mercadopago', secrets: ['mp_test'] },
  mailgun: { provider: 'mailgun', secrets: ['mg_test'] },
  coinbase: { provider: 'coinbase-commerce', secrets: ['cc_test'] },
  mollie: { provider: 'mollie', classic: true, confirm: () => undefined },
}
const { post, logged, clock } = await ingest(database, { sources })
const NOW = 1_790_000_000
clock.now = NOW * 1000
beforeEach(() => emptyTables(database))

test('Slack gets its challenge, each time, and one ignored event is stored', async () => {
  const body = '{"token":"t","challenge":"<b>3eZbrw1aB10yFvgDnqfw</b>","type":"url_verification"}'
  const signature = `v0=${hexHmac(`v0:${NOW}:${body}`, 'slack_test')}`
  const headers = { 'x-slack-request-timestamp': String(NOW), 'x-slack-signature': signature }

  for (const answer of [await post('/webhooks/slack', body, headers), await post('/webhooks/slack', body, headers)]) {
    expect([answer.status, answer.text]).toEqual([200, '<b>3eZbrw1aB10yFvgDnqfw</b>'])
    expect(answer.headers['content-type']).toMatch(/^text\/plain/)
  }
  expect(await storedEvents(database)).toMatchObject([{ type: 'url_verification', status: 'ignored', redeliveries: 1 }])

  const forged = await post('/webhooks/slack', body, { ...headers, 'x-slack-signature': signature.replace(/.$/, '') })
  expect([forged.status, forged.text]).toEqual([401, ''])
})

test('a message that Postmark delivers to two people is two events, however often and at once they come', async () => {
  const to = (recipient: string) => JSON.stringify({ RecordType: 'Delivery', MessageID: 'm1', Recipient: recipient })
  const bodies = Array.from({ length: 20 }, (_, index) => to(index % 2 ? 'ada@example.com' : 'grace@example.com'))

  const answers = await Promise.all(bodies.map((body) => post('/webhooks/postmark', body, { authorization: BASIC })))

  expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200))
  const events = await storedEvents(database)
  expect(events.map((event) => event.event_id.slice(0, 11))).toEqual(['m1:Delivery', 'm1:Delivery'])
  expect(new Set(events.map((event) => event.body?.toString()))).toEqual(
    new Set([to('ada@example.com'), to('grace@example.com')]),
  )
  expect(await countRows(database)).toMatchObject({ events: 2, conflicts: 0 })
})

test('what is made up under an ID of Chargebee doesn’t hold back the real event: each body is an event, each once', async () => {
  const of = (amount: number) => `{"id":"ev_1","event_type":"payment_succeeded","content":{"transaction":{"amount":${amount}}}}`

  for (const amount of [1, 2, 1]) await post('/webhooks/chargebee', of(amount), { authorization: BASIC })

  const further = 'ev_1:c5c15e2ed684d96e606e1021c668fc2c364adc0b6b1511ab7390e2f9b65702cd'
  expect(await countRows(database)).toMatchObject({ events: 2, conflicts: 0 })
  expect(await storedEvents(database)).toMatchObject([
    { event_id: 'ev_1', redeliveries: 1 },
    { event_id: further, redeliveries: 0 },
  ])
})

test('twenty bodies under one ID of Chargebee at once are twenty events, and twenty redeliveries', async () => {
  const bodies = Array.from({ length: 20 }, (_, n) => `{"id":"ev_1","event_type":"payment_succeeded","content":{"n":${n}}}`)
  const all = () => Promise.all(bodies.map((body) => post('/webhooks/chargebee', body, { authorization: BASIC })))

  const [first, again] = [await all(), await all()]

  expect(first.map(({ json }) => json.status)).toEqual(Array(20).fill('accepted'))
  expect(again.map(({ json }) => json.status)).toEqual(Array(20).fill('duplicate'))
  expect(await countRows(database)).toMatchObject({ events: 20, conflicts: 0 })
  expect((await storedEvents(database)).map(({ redeliveries }) => redeliveries)).toEqual(Array(20).fill(1))
})

test('what Chargebee says of its deliveries makes no further event', async () => {
  const of = (status: string) => `{"id":"ev_1","event_type":"payment_succeeded","content":{},"webhook_status":"${status}"}`

  for (const status of ['scheduled', 're_scheduled']) await post('/webhooks/chargebee', of(status), { authorization: BASIC })

  expect(await storedEvents(database)).toMatchObject([{ event_id: 'ev_1', redeliveries: 1, benign_variants: 1 }])
  expect(await countRows(database)).toMatchObject({ events: 1, conflicts: 0 })
})

test('a token of Mailgun makes one event, whatever is posted with it', async () => {
  const token = 'a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0'
  const signature = { timestamp: String(NOW), token, signature: hexHmac(`${NOW}${token}`, 'mg_test') }
  const of = (id: string, recipient: string) => JSON.stringify({ signature, 'event-data': { id, event: 'delivered', recipient } })
  const bodies = [of('m1', 'ada@example.com'), of('m1', 'forged@example.com'), of('m2', 'forged@example.com')]

  const answers = []
  for (const body of bodies) answers.push((await post('/webhooks/mailgun', body)).json.status)

  expect(answers).toEqual(['accepted', 'duplicate', 'duplicate'])
  expect(await storedEvents(database)).toMatchObject([{ event_id: 'm1', redeliveries: 2 }])
  expect(await countRows(database)).toMatchObject({ events: 1, conflicts: 2 })
})

test('a body of Xendit under another ID is no new event, and the token is not stored', async () => {
  const body = '{"event":"payment.succeeded","data":{"id":"py-1"}}'
  const headers = (id: string) => ({ 'x-callback-token': 'xnd-token-1', 'webhook-id': id })

  const first = await post('/webhooks/xendit', body, headers('w1'))
  const other = await post('/webhooks/xendit', body, headers('w2'))

  expect([first.json.status, other.json.status]).toEqual(['accepted', 'duplicate'])
  expect(await storedEvents(database)).toMatchObject([{ event_id: 'w1', headers: { 'webhook-id': 'w1' } }])
  expect(JSON.stringify(await storedEvents(database))).not.toContain('xnd-token-1')
})

test('C-69 neither a password nor what is sent in place of one is logged or stored', async () => {
  const body = '{"id":"ev_1","event_type":"payment_succeeded","email":"ada@example.com"}'
  const wrong = 'Basic aG9vazp3cm9uZy1wYXNzd29yZA=='

  const good = await post('/webhooks/chargebee', body, { authorization: BASIC })
  const refused = await post('/webhooks/chargebee', body, { authorization: wrong })
  const unknown = await post('/webhooks/xendit', body, { 'x-callback-token': 'wrong-token', 'webhook-id': 'w1' })

  expect([good.status, refused.status, unknown.status]).toEqual([200, 401, 401])
  expect(logged).toEqual(expect.arrayContaining([expect.objectContaining({ reason: 'bad_credentials' })]))
  const kept = JSON.stringify([logged, (await storedEvents(database)).map((event) => event.headers)])
  for (const secret of [PASSWORD, BASIC, wrong, 'wrong-password', 'wrong-token', 'xnd-token-1', 'ada@example.com'])
    expect(kept).not.toContain(secret)
})

test('the query of Mercado Pago is part of what it signs, and its body is not', async () => {
  const digest = createHmac('sha256', 'mp_test').update(`id:123;request-id:r1;ts:${NOW};`).digest('hex')
  const headers = { 'x-signature': `ts=${NOW},v1=${digest}`, 'x-request-id': 'r1' }
  const body = (status: string) => `{"id":9007199254740993,"action":"payment.updated","data":{"id":"123"},"status":"${status}"}`

  expect((await post('/webhooks/mercadopago?data.id=123&type=payment', body('a'), headers)).status).toBe(200)
  expect((await post('/webhooks/mercadopago?data.id=124&type=payment', body('b'), headers)).status).toBe(401)
  expect((await post('/webhooks/mercadopago', body('c'), headers)).status).toBe(401)
  expect((await post('/webhooks/mercadopago?data.id=123', body('d'), headers)).status).toBe(200)

  expect(await storedEvents(database)).toMatchObject([
    { event_id: '9007199254740993', type: 'payment.updated' },
    { event_id: expect.stringMatching(/^9007199254740993:[0-9a-f]{64}$/), type: 'payment.updated' },
  ])
  expect(await countRows(database)).toMatchObject({ events: 2, conflicts: 0 })
})

test('Coinbase Commerce delivers an event again under a new outer ID: no conflict', async () => {
  const attempts = [1, 2, 3].map(
    (attempt) => `{"id":"d${attempt}","attempt_number":${attempt},"event":{"id":"e1","type":"charge:failed"}}`,
  )

  for (const body of attempts) await post('/webhooks/coinbase', body, { 'x-cc-webhook-signature': hexHmac(body, 'cc_test') })

  expect(await storedEvents(database)).toMatchObject([{ event_id: 'e1', redeliveries: 2 }])
  expect(await countRows(database)).toMatchObject({ events: 1, conflicts: 0 })
})

test('each classic delivery of Mollie is an event of its own, stored as the form that came', async () => {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' }

  for (const _ of [1, 2]) expect((await post('/webhooks/mollie', 'id=tr_1', headers)).json.status).toBe('accepted')

  const events = await storedEvents(database)
  expect(events.map(({ id_basis, type, body }) => [id_basis, type, body?.toString()])).toEqual([
    ['delivery', 'classic', 'id=tr_1'],
    ['delivery', 'classic', 'id=tr_1'],
  ])
})

test('a classic source of Mollie needs confirm and takes no secrets', () => {
  const mollie = (fields: object) => () => readConfig({ sources: { mollie: { provider: 'mollie', classic: true, ...fields } } })

  expect(mollie({})).toThrow(/confirm/)
  expect(mollie({ confirm: () => undefined, secrets: ['a'] })).toThrow(/secret/)
  expect(mollie({ confirm: () => undefined })).not.toThrow()
})
