import request from 'supertest'
import { expect, test } from 'vitest'
import { showSendCommand } from '../src/cli/sends.ts'
import { findSend } from '../src/ops/send-queries.ts'
import { insertEvent, insertFollowUp, insertSend } from './support/ops-rows.ts'
import { message, patientDatabase } from './support/sends.ts'
import { stripeSignature, testService } from './support/service.ts'

const SECRET = 'whsec_of_the_tests'
const database = await patientDatabase()
const { pool } = database
const service = await testService(database, {
  sources: { stripe: { provider: 'stripe', secrets: [SECRET] } },
  followUps: [
    {
      name: 'receipt',
      source: 'stripe',
      type: ['invoice.paid', 'invoice.payment_succeeded'],
      email: ({ data }) => ({ key: `invoice:${data.object.id}:paid`, ...message(data.object.customer_email) }),
    },
  ],
})

async function post(id: string, type: string, invoice: string, to = 'ada@example.com'): Promise<void> {
  const seconds = Math.floor(service.clock.now / 1_000)
  const body = JSON.stringify({
    id,
    type,
    livemode: true,
    created: seconds,
    data: { object: { id: invoice, customer_email: to } },
  })
  const signature = stripeSignature(body, SECRET, seconds)
  await request(service.app).post('/webhooks/stripe').set('stripe-signature', signature).type('json').send(body).expect(200)
  await service.drain()
}

test('I3 three events of one fact are one email, and the send says why', async () => {
  await post('evt_1', 'invoice.paid', 'in_1')
  expect((await findSend(pool, 'invoice:in_1:paid'))?.explanation).toBeNull()
  await post('evt_2', 'invoice.payment_succeeded', 'in_1')
  // Stripe may make two Event objects of one fact.
  await post('evt_3', 'invoice.paid', 'in_1')
  // A redelivery is no further event.
  await post('evt_1', 'invoice.paid', 'in_1')

  const send = await findSend(pool, 'invoice:in_1:paid')
  expect(send?.explanation).toBe('3 events → 1 email, because the key is taken.')
  expect(send?.events.map(({ source, type, event_id, outcome }) => [source, type, event_id, outcome])).toEqual([
    ['stripe', 'invoice.paid', 'evt_1', 'queued'],
    ['stripe', 'invoice.payment_succeeded', 'evt_2', 'held'],
    ['stripe', 'invoice.paid', 'evt_3', 'held'],
  ])
  expect(service.sandbox.ledger.filter((call) => call.to === 'ada@example.com')).toHaveLength(1)

  const { stdout } = await showSendCommand(pool, 'invoice:in_1:paid', { width: 120, unicode: true })
  expect(stdout.split('\n').slice(2, 6)).toEqual([
    '3 events → 1 email, because the key is taken.',
    '  stripe invoice.paid evt_1',
    '  stripe invoice.payment_succeeded evt_2',
    '  stripe invoice.paid evt_3',
  ])
})

test('an event that is refused the key for another recipient is none of those', async () => {
  await post('evt_4', 'invoice.paid', 'in_2')
  await post('evt_5', 'invoice.payment_succeeded', 'in_2', 'bea@example.com')

  expect((await findSend(pool, 'invoice:in_2:paid'))?.explanation).toBeNull()
})

test('a request that came first is counted beside the events, and the mark of policy timestamp is named', async () => {
  await insertSend(pool, 'welcome:1', { requested_by: 'token:shop', policy: 'timestamp' })
  await insertFollowUp(pool, await insertEvent(pool, 'evt_6'), 'welcome:1', { outcome: 'held' })

  expect((await findSend(pool, 'welcome:1'))?.explanation).toBe(
    '1 event and a request by token:shop → 1 email, because the key is taken, or an email of this kind has gone to this recipient.',
  )
})
