import { describe, expect, test } from 'vitest'
import { readEvents } from '../../src/providers/read-events.ts'
import { sampleRequest } from '../../src/sandbox/samples.ts'
import { requestOf, setups } from '../support/provider-setups.ts'

const NOW = 1_790_000_000
const EMAIL = 'grace@example.com'

// Where each says whether it is live, and where a rule finds the recipient.
const facts: [name: string, live: boolean | null, test: boolean | null, email: string][] = [
  ['paddle', null, null, 'data.custom_data.email'],
  ['lemonsqueezy', true, false, 'data.attributes.user_email'],
  ['square', true, false, 'data.object.payment.buyer_email_address'],
  ['razorpay', null, null, 'payload.payment.entity.email'],
  ['checkout', null, false, 'data.metadata.email'],
  ['paystack', true, false, 'data.customer.email'],
  ['flutterwave', null, null, 'data.customer.email'],
  ['flutterwave, v3', null, null, 'data.customer.email'],
  ['shopify', null, false, 'email'],
]

describe.each(facts)('a sample of %s', (title, live, isTest, place) => {
  const setup = setups.find((each) => each.title === title)
  const sample = (livemode: boolean) => {
    if (!setup) throw new Error(`there is no set-up ${title}`)
    const { definition, options, secret, provider } = setup
    const type = definition.sample.types.paid ?? ''
    const made = sampleRequest({ provider: definition.name, options, secret, type, nowSeconds: NOW, email: EMAIL, livemode })
    return { body: made.body.toString(), ...readEvents(provider, requestOf(made)) }
  }

  test('C-32 says its mode as the provider would', () => {
    expect(sample(true).events).toMatchObject([{ livemode: live }])
    expect(sample(false).events).toMatchObject([{ livemode: isTest }])
  })

  test('has its recipient where a rule looks, and the time at which it was made', () => {
    const { body, events } = sample(true)

    expect(JSON.parse(body)).toHaveProperty(place, EMAIL)
    if (title !== 'flutterwave, v3') expect(events).toMatchObject([{ occurredAt: new Date(NOW * 1000) }])
  })
})
