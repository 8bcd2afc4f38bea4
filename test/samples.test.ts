import { describe, expect, test } from 'vitest'
import { readEvents } from '../src/providers/read-events.ts'
import { createProvider } from '../src/providers/registry.ts'
import { verify } from '../src/providers/signature.ts'
import { type SampleOptions, sampleRequest } from '../src/sandbox/samples.ts'
import { type ProviderSetup, requestOf, setups } from './support/provider-setups.ts'

const NOW = 1_790_000_000
const GENERIC = { header: 'X-Signature', prefix: 'v0=', algorithm: 'sha512', encoding: 'base64' }

function sampleOf({ definition, options, secret, privateKeys }: ProviderSetup, about: { type: string; id?: string }) {
  return sampleRequest({ provider: definition.name, options, secret, privateKeys, nowSeconds: NOW, ...about })
}

function receive(setup: ProviderSetup, about: { type: string; id?: string }) {
  const { provider, secret, keyring } = setup
  const request = requestOf(sampleOf(setup, about))
  const verdict = verify(provider.scheme, request, [secret], NOW, provider.toleranceSeconds, keyring)
  return { request, verdict, ...readEvents(provider, request) }
}

describe.each(setups)('$title', (setup) => {
  const { definition, provider } = setup
  // Inboxili and Resend speak of emails: they have types, but none of a payment.
  const types = Object.values(definition.sample.types).concat(definition.sample.types.paid ? [] : ['delivered'])

  test.each(types)('a sample of %s verifies, and is one event of that type', (type) => {
    const { verdict, events, unusable } = receive(setup, { type })

    expect(verdict).toMatchObject({ ok: true })
    expect(unusable).toBeUndefined()
    // What only names an object says no type.
    expect(events.map((event) => event.type)).toEqual([provider.requiresConfirm ? 'classic' : type])
  })

  test.each(types)('a sample of %s has the ID that was asked for, and else one of its own', (type) => {
    const id = definition.sample.newId('0123456789abcdef01234567', '0f8fad5b-d9cb-469f-a165-70867728950e')
    const given = receive(setup, { type, id }).events.map((event) => event.id)
    const again = receive(setup, { type, id }).events.map((event) => event.id)
    const [first] = receive(setup, { type }).events
    const [second] = receive(setup, { type }).events

    if (provider.idBasis === 'provider') expect(given).toEqual([id])
    if (provider.idBasis !== 'delivery') expect(again).toEqual(given)
    expect(first?.id).not.toBe(second?.id)
  })

  test.runIf(provider.idBasis === 'provider')('a sample of the same ID has the same content minutes later', () => {
    const [type = ''] = types
    const id = definition.sample.newId('0123456789abcdef01234567', '0f8fad5b-d9cb-469f-a165-70867728950e')
    const at = (nowSeconds: number) => {
      const { options, secret, privateKeys } = setup
      return sampleRequest({
        provider: definition.name,
        options,
        secret,
        privateKeys,
        type,
        id,
        nowSeconds,
        happenedSeconds: NOW,
      })
    }

    // Mailgun signs in the body.
    const contentOf = (body: Buffer) => body.toString().replace(/"signature":\{[^}]*\}/, '')
    const [first, later] = [at(NOW), at(NOW + 300)]
    const verdict = verify(provider.scheme, requestOf(later), [setup.secret], NOW + 300, provider.toleranceSeconds, setup.keyring)

    expect(contentOf(later.body)).toBe(contentOf(first.body))
    expect(verdict).toMatchObject({ ok: true })
  })

  test('a sample that comes again is of the same object, and another sample is of another one', () => {
    const [type = ''] = types
    const [id, other] = ['0123456789abcdef01234567', 'fedcba9876543210fedcba98'].map((hex) =>
      definition.sample.newId(hex, `0f8fad5b-d9cb-469f-a165-${hex.slice(0, 12)}`),
    )
    const objects = [id, id, other].map((it) => receive(setup, { type, ...(it && { id: it }) }).events[0]?.objectRef)

    if (objects[0] === null) return
    expect(objects[1]).toBe(objects[0])
    expect(objects[2]).not.toBe(objects[0])
  })
})

const stripe = setups.find(({ definition }) => definition.name === 'stripe') as ProviderSetup

test.each(['invoice.paid', 'invoice.payment_failed', 'charge.refunded', 'customer.subscription.deleted', 'made.up.v9'])(
  'a Stripe %s has its recipient where a rule looks, and an object of its own',
  (type) => {
    const options = { provider: 'stripe', secret: 'whsec_test_A', type, nowSeconds: NOW, email: 'grace@example.com' }
    const [payload, other] = [sampleRequest(options), sampleRequest(options)].map(({ body }) => JSON.parse(body.toString()))

    expect(receive(stripe, { type }).events).toMatchObject([{ type, livemode: true, occurredAt: new Date(NOW * 1000) }])
    expect(payload).toMatchObject({
      object: 'event',
      data: { object: { customer_email: 'grace@example.com', id: expect.any(String) } },
    })
    expect(payload.data.object.id).not.toBe(other.data.object.id)
  },
)

test.each([
  { ...GENERIC, id: 'meta.id', type: 'meta.type' },
  { ...GENERIC, timestampHeader: 'X-Time', id: { header: 'X-Id' }, type: { header: 'X-Topic' } },
])('a sample is as the options of a generic source say: %j', (options) => {
  const provider = createProvider('generic', options)
  const request = requestOf(sampleRequest({ provider: 'generic', options, secret: 's', type: 'a.b', id: 'e1', nowSeconds: NOW }))

  expect(verify(provider.scheme, request, ['s'], NOW, 300).ok).toBe(true)
  expect(readEvents(provider, request).events).toMatchObject([{ id: 'e1', type: 'a.b' }])
})

test('C-32 a sample can be of test mode', () => {
  const request = requestOf(
    sampleRequest({ provider: 'stripe', secret: 'whsec_test_A', type: 'invoice.paid', nowSeconds: NOW, livemode: false }),
  )

  expect(readEvents(stripe.provider, request).events).toMatchObject([{ livemode: false }])
})

test('a secret that can not sign and a provider that is not known throw', () => {
  const sample = (options: Pick<SampleOptions, 'provider' | 'secret'>) => () =>
    sampleRequest({ type: 'a', nowSeconds: NOW, ...options })

  expect(sample({ provider: 'svix', secret: 'whpk_AAAA' })).toThrow(/can't sign/)
  expect(sample({ provider: 'stripe', secret: '' })).toThrow(/can't sign/)
  expect(sample({ provider: 'nobody', secret: 'a' })).toThrow(/unknown provider/)
})
