import type { AddressInfo } from 'node:net'
import { afterAll, expect, test } from 'vitest'
import { createPanel } from '../src/sandbox/panel.ts'
import { testDatabase } from './support/database.ts'
import { testPages } from './support/page.ts'
import { testService } from './support/service.ts'

const database = await testDatabase()
const { pool } = database
const userConfig = {
  sources: { stripe: { provider: 'stripe' as const, secrets: ['whsec_of_the_tests'] } },
  followUps: [
    {
      source: 'stripe',
      type: ['invoice.paid', 'invoice.payment_succeeded'],
      email: ({ data }: { data: { object: { id: string; customer_email: string } } }) => ({
        key: `invoice:${data.object.id}:paid`,
        to: data.object.customer_email,
        from_email: 'billing@example.com',
        subject: `Receipt ${data.object.id}`,
        html_body: '<p>Thank you</p>',
      }),
    },
  ],
}
const service = await testService(database, userConfig)
const server = service.app.listen(0, '127.0.0.1')
afterAll(() => server.close())
const clock = { now: new Date() }
const panel = createPanel({
  sandboxUrl: service.sandbox.url,
  serviceUrl: () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  now: () => clock.now,
  source: () => ({
    name: 'stripe',
    provider: 'stripe',
    options: {},
    secret: 'whsec_of_the_tests',
    mode: 'live',
    type: 'invoice.paid',
    otherType: 'invoice.payment_succeeded',
  }),
})
const { get, submit } = await testPages(database, userConfig, { sandbox: panel })
const without = await testPages(await testDatabase())

test('without a sandbox there is no panel, and no form of it', async () => {
  expect((await without.get('/ops/sandbox')).status).toBe(404)
  for (const path of ['arm', 'clear', 'deliver', 'send'])
    expect((await without.submit(`/ops/sandbox/${path}`, {})).status, path).toBe(404)
})

test('a sample is the same minutes later: a redelivery, and no conflict', async () => {
  const first = await submit('/ops/sandbox/send', { kind: 'new' })
  clock.now = new Date(clock.now.getTime() + 200_000)
  const again = await submit('/ops/sandbox/send', { kind: 'again' })
  clock.now = new Date()

  expect((await get(String(first.headers.location))).text).toMatch(/stripe invoice\.paid evt_\w+: accepted\./)
  expect((await get(String(again.headers.location))).text).toMatch(/stripe invoice\.paid evt_\w+: duplicate\./)
  const { rows } = await pool.query(
    'select redeliveries, benign_variants, (select count(*)::int from webhook_conflicts) as conflicts from webhook_redeliveries',
  )
  expect(rows).toEqual([{ redeliveries: 1, benign_variants: 0, conflicts: 0 }])
  await service.drain()
  service.sandbox.disarm()
  await pool.query('truncate webhook_events, email_sends, follow_ups, send_attempts, delivery_reports, settlements cascade')
})

test('a sample, the same again, another event of the payment and twenty at once make one email for each payment', async () => {
  for (const kind of ['new', 'again', 'other', 'many'])
    expect((await submit('/ops/sandbox/send', { kind })).status, kind).toBe(303)
  expect(await service.drain()).toEqual([])

  const { rows: events } = await pool.query(
    'select type, coalesce(again.redeliveries, 0) as redeliveries from webhook_events left join webhook_redeliveries again on event = id order by id',
  )
  expect(events).toEqual([
    { type: 'invoice.paid', redeliveries: 1 },
    { type: 'invoice.payment_succeeded', redeliveries: 0 },
    { type: 'invoice.paid', redeliveries: 19 },
  ])
  expect(service.sandbox.ledger.filter(({ accepted }) => accepted)).toHaveLength(3)
  const { text } = await get('/ops/sandbox')
  expect(text).toContain('Emails per send: at most <b>1</b> ✓')
  expect(text.match(/accepted [0-9a-f-]+/g)).toHaveLength(2)
})

test('what is armed meets the next call, and the table shows what went out beside what is believed', async () => {
  expect((await submit('/ops/sandbox/arm', { what: 'fault', name: 'reset', times: '1' })).status).toBe(303)
  await submit('/ops/sandbox/send', { kind: 'new' })
  await service.drain()

  const { text } = await get('/ops/sandbox')
  expect(text).toContain('not yet: it went out, and no report has said so')

  await submit('/ops/sandbox/arm', { what: 'fault', name: '422', times: '1' })
  await submit('/ops/sandbox/clear', {})
  await submit('/ops/sandbox/send', { kind: 'new' })
  await service.drain()
  expect(service.sandbox.ledger.at(-1)?.answer).toBe(200)
})

test('C-68 the panel is for operators, and takes only what it knows', async () => {
  expect((await submit('/ops/sandbox/send', { kind: 'new' }, 'reader')).status).toBe(403)
  expect((await submit('/ops/sandbox/arm', { what: 'fault', name: 'constructor', times: '1' })).status).toBe(400)
  expect((await submit('/ops/sandbox/arm', { what: 'fault', name: 'timeout', times: '0' })).status).toBe(400)
  expect((await submit('/ops/sandbox/send', { kind: 'all' })).status).toBe(400)
  expect((await get('/ops/sandbox/send')).status).toBe(405)
})

test('a send from before the sandbox was started is not told to have gone out or not', async () => {
  await pool.query(
    `update email_sends set queued_at = now() - interval '1 day', message = message || '{"subject":"of yesterday"}'`,
  )

  const { text } = await get('/ops/sandbox')

  expect(text).toContain('not known: the sandbox was started at')
  expect(text).not.toContain('✕')
})

test('the panel has the lines that do the same, the number of held reports, and for readers no form', async () => {
  service.sandbox.armReports({ kind: 'hold' })
  await submit('/ops/sandbox/send', { kind: 'new' })
  await service.drain()

  const { text } = await get('/ops/sandbox')
  const reader = await get('/ops/sandbox', 'reader')

  expect(text).toContain('<code>npx oncehook trigger stripe invoice.payment_succeeded --about ID</code>')
  expect(text).toContain('Deliver the held reports now (1)')
  expect(reader.text).toContain('needs role operator')
  expect(reader.text).not.toContain('action="/ops/sandbox/')
})
