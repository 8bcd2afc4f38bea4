import { expect, test } from 'vitest'
import { isRecord } from '../src/providers/json.ts'
import { payloadOf, readEvents } from '../src/providers/read-events.ts'
import { createProvider, providers } from '../src/providers/registry.ts'
import { verify } from '../src/providers/signature.ts'
import { type SampleOptions, sampleRequest } from '../src/sandbox/samples.ts'

const NOW = 1_790_000_000
const WHSEC = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
const GENERIC = { header: 'X-Signature', prefix: 'v0=', algorithm: 'sha512', encoding: 'base64' }

function receive(options: SampleOptions) {
  const provider = createProvider(options.provider, options.options)
  const { headers, body } = sampleRequest(options)
  const request = { headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]])), body }
  const verdict = verify(provider.scheme, request, [options.secret], NOW, 300)
  const read = readEvents(provider, request)
  const payload = payloadOf(provider, request, read.events[0]?.id ?? '')
  return { verdict, events: read.events, unusable: read.unusable, payload: isRecord(payload) ? payload : {} }
}

const cases: [SampleOptions, string][] = [
  [{ provider: 'stripe', secret: 'whsec_test_A', type: 'invoice.paid', id: 'evt_1', nowSeconds: NOW }, 'evt_1'],
  [{ provider: 'standard-webhooks', secret: WHSEC, type: 'order.paid', id: 'msg_1', nowSeconds: NOW }, 'msg_1'],
  [{ provider: 'svix', secret: WHSEC, type: 'order.paid', id: 'msg_1', nowSeconds: NOW }, 'msg_1'],
  [{ provider: 'github', secret: 'gh_test', type: 'sponsorship.created', id: 'g1', nowSeconds: NOW }, 'g1'],
  [{ provider: 'gocardless', secret: 'gc_test', type: 'payments.paid_out', id: 'EV1', nowSeconds: NOW }, 'EV1'],
  [{ provider: 'inboxili', secret: 'inbx_test', type: 'delivered', id: 'm1', nowSeconds: NOW }, 'm1:delivered'],
  [
    {
      provider: 'generic',
      options: { ...GENERIC, id: 'meta.id', type: 'meta.type' },
      secret: 's',
      type: 'a.b',
      id: 'e1',
      nowSeconds: NOW,
    },
    'e1',
  ],
  [
    {
      provider: 'generic',
      options: { ...GENERIC, timestampHeader: 'X-Time', id: { header: 'X-Id' }, type: { header: 'X-Topic' } },
      secret: 's',
      type: 'a.b',
      id: 'e1',
      nowSeconds: NOW,
    },
    'e1',
  ],
]

test('there is a sample of every provider', () => {
  expect(new Set(cases.map(([options]) => options.provider))).toEqual(new Set(providers.keys()))
})

test.each(cases)('a sample verifies with its provider and is its type of event: %j', (options, id) => {
  const { verdict, events, unusable } = receive(options)

  expect(verdict.ok).toBe(true)
  expect(unusable).toBeUndefined()
  expect(events.map((event) => [event.id, event.type])).toEqual([[id, options.type]])
})

test.each(cases)('a sample without a given ID has one of its own: %j', ({ id: _id, ...options }) => {
  const first = receive(options)
  const second = receive(options)

  expect(first.verdict.ok && second.verdict.ok).toBe(true)
  expect(first.events[0]?.id).not.toBe(second.events[0]?.id)
})

test.each(['invoice.paid', 'invoice.payment_failed', 'charge.refunded', 'customer.subscription.deleted', 'made.up.v9'])(
  'a Stripe %s has its recipient where a rule looks, and an object of its own',
  (type) => {
    const options = { provider: 'stripe', secret: 'whsec_test_A', type, nowSeconds: NOW, email: 'grace@example.com' }
    const { payload, events } = receive(options)
    const other = receive(options)

    expect(events).toMatchObject([{ type, livemode: true, occurredAt: new Date(NOW * 1000) }])
    expect(payload).toMatchObject({
      object: 'event',
      data: { object: { customer_email: 'grace@example.com', id: expect.any(String) } },
    })
    expect(payload.data).not.toEqual(other.payload.data)
  },
)

test('C-32 a sample can be of test mode', () => {
  const options = { provider: 'stripe', secret: 'whsec_test_A', type: 'invoice.paid', nowSeconds: NOW, livemode: false }

  expect(receive(options).events).toMatchObject([{ livemode: false }])
})

test('a secret that can not sign and a provider that is not known throw', () => {
  expect(() => sampleRequest({ provider: 'svix', secret: 'whpk_AAAA', type: 'a', nowSeconds: NOW })).toThrow(/can't sign/)
  expect(() => sampleRequest({ provider: 'stripe', secret: '', type: 'a', nowSeconds: NOW })).toThrow(/can't sign/)
  expect(() => sampleRequest({ provider: 'nobody', secret: 'a', type: 'a', nowSeconds: NOW })).toThrow(/unknown provider/)
})
