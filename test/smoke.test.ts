import request from 'supertest'
import { expect, test } from 'vitest'
import { key } from '../src/config.ts'
import { testDatabase } from './support/database.ts'
import { hexHmac, INBOXILI_SECRET, stripeSignature, testService } from './support/service.ts'

const database = await testDatabase()
const service = await testService(database, {
  sources: { stripe: { provider: 'stripe', secrets: ['whsec_test_A'] } },
  followUps: [
    {
      source: 'stripe',
      type: 'invoice.paid',
      email: ({ data }) => ({
        key: key('invoice', data.object.id, 'paid'),
        to: data.object.customer_email,
        from_email: 'b@example.com',
        subject: 's',
        html_body: 'x',
      }),
    },
  ],
})

test('a payment posted three times becomes one event, one email and a delivered send', async () => {
  const body = JSON.stringify({
    id: 'evt_1',
    type: 'invoice.paid',
    livemode: true,
    data: { object: { id: 'in_1', customer_email: 'ada@example.com' } },
  })
  const post = () =>
    request(service.app)
      .post('/webhooks/stripe')
      .set('stripe-signature', stripeSignature(body, 'whsec_test_A', Math.floor(service.clock.now / 1000)))
      .send(body)

  const answers = [await post(), await post(), await post()]
  expect(await service.drain()).toEqual([])

  expect(answers.map((answer) => [answer.status, answer.body.status])).toEqual([
    [200, 'accepted'],
    [200, 'duplicate'],
    [200, 'duplicate'],
  ])
  expect(service.sandbox.ledger.length).toBe(1)
  const { rows } = await database.pool.query('select status, message_id from email_sends')
  expect(rows).toEqual([{ status: 'sent', message_id: expect.any(String) }])

  const report = JSON.stringify({ event: 'delivered', message_id: rows[0].message_id })
  await request(service.app)
    .post('/webhooks/inboxili')
    .set('x-inboxili-signature', hexHmac(report, INBOXILI_SECRET))
    .send(report)
    .expect(200)
  expect(await service.drain()).toEqual([])
  const { rows: settled } = await database.pool.query('select status, settled_by from email_sends')
  expect(settled).toEqual([{ status: 'delivered', settled_by: expect.stringMatching(/^event:\d+$/) }])
})
