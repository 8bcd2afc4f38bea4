import { describe, expect, test } from 'vitest'
import { BODY_H, judge } from '../support/judge.ts'

const LEMON = '2b67c2441451f4f19518665dc9de0610af16c19d7604f5c22ba5c470d3547afb'
const PAYSTACK =
  '5686e7f4930cef50d6f3a6be8c49ff16f4142a5858590b9adc3da7aa6d22aa3527610c1d4171ccb7f9496f7364c38633b349f5d443b839727a075699eadadde6'

const eventsOf = (provider: string, body: string, options?: unknown) => judge(provider, { body, options }).events

describe('lemonsqueezy', () => {
  const lemon = (signature: string | string[]) =>
    judge('lemonsqueezy', { headers: { 'X-Signature': signature }, body: BODY_H, secrets: ['ls-secret'] }).verdict
  const body = (meta: object, data: object) => JSON.stringify({ meta, data })

  test('takes the right signature only, once and in its own form', () => {
    expect(lemon(LEMON)).toEqual({ ok: true, secretIndex: 0 })
    for (const wrong of [LEMON.toUpperCase(), `sha256=${LEMON}`, LEMON.slice(1), `${LEMON}0`, [LEMON, LEMON], ''])
      expect(lemon(wrong).ok).toBe(false)
  })

  test('puts the ID together of name, kind, number and time, whatever the unsigned header says', () => {
    const meta = { event_name: 'order_created', test_mode: true, webhook_id: 'w1' }
    const data = { type: 'orders', id: '4101', attributes: { updated_at: '2026-09-21T14:13:05.000000Z' } }
    const { events } = judge('lemonsqueezy', { headers: { 'X-Event-Name': 'order_refunded' }, body: body(meta, data) })

    expect(events).toMatchObject([
      {
        id: 'order_created:orders:4101:2026-09-21T14:13:05.000000Z',
        idBasis: 'derived',
        idIsSigned: true,
        type: 'order_created',
        livemode: false,
        occurredAt: new Date('2026-09-21T14:13:05Z'),
        objectRef: 'orders:4101',
      },
    ])
  })

  test('C-32 says live only where the event says so', () => {
    const livemode = (meta: object) => eventsOf('lemonsqueezy', body({ event_name: 'a', ...meta }, {}))[0]?.livemode

    expect(livemode({ test_mode: false })).toBe(true)
    expect(livemode({})).toBeNull()
    expect(livemode({ test_mode: 'false' })).toBeNull()
  })

  test('falls back to the hash where a part is missing, and to a person where the type is', () => {
    expect(eventsOf('lemonsqueezy', '{"meta":{"event_name":"order_created"},"data":{"type":"orders","id":"1"}}')).toMatchObject([
      {
        id: 'sha256:8c64acd7fc266e5b8d5cfb0e810c447f7d5a9645ddce6e6d90cdde37b3ba4590',
        idBasis: 'body_hash',
        type: 'order_created',
      },
    ])
    expect(judge('lemonsqueezy', { body: body({}, { type: 'orders', id: '1' }) })).toMatchObject({
      events: [],
      unusable: 'no_id',
    })
  })
})

describe('paystack', () => {
  const paystack = (signature: string | string[]) =>
    judge('paystack', { headers: { 'x-paystack-signature': signature }, body: BODY_H, secrets: ['sk_test_1'] }).verdict

  test('takes the right signature only, once and in its own form', () => {
    expect(paystack(PAYSTACK)).toEqual({ ok: true, secretIndex: 0 })
    for (const wrong of [PAYSTACK.toUpperCase(), PAYSTACK.slice(0, 64), `${PAYSTACK}0`, [PAYSTACK, PAYSTACK], ''])
      expect(paystack(wrong).ok).toBe(false)
  })

  test.each([
    ['302961', '{"event":"charge.success","data":{"id":302961,"domain":"live","paid_at":"2026-09-21T14:13:05.000Z"}}'],
    [
      '9007199254740993',
      '{"event":"charge.success","data":{"id":9007199254740993,"domain":"live","paid_at":"2026-09-21T14:13:05Z"}}',
    ],
    ['TRF_1', '{"event":"charge.success","data":{"id":"TRF_1","domain":"live","paid_at":"2026-09-21T14:13:05Z"}}'],
  ])('C-27 puts the ID together of type and number, with all its digits: %s', (id, body) => {
    expect(eventsOf('paystack', body)).toMatchObject([
      {
        id: `charge.success:${id}`,
        idBasis: 'derived',
        type: 'charge.success',
        livemode: true,
        occurredAt: new Date('2026-09-21T14:13:05Z'),
        objectRef: `charge:${id}`,
      },
    ])
  })

  test('a charge, its dispute and a transfer of the same number are three objects', () => {
    const object = (event: string) => eventsOf('paystack', JSON.stringify({ event, data: { id: 7 } }))[0]?.objectRef

    expect(['charge.success', 'charge.dispute.create', 'charge.dispute.resolve', 'transfer.failed'].map(object)).toEqual([
      'charge:7',
      'charge.dispute:7',
      'charge.dispute:7',
      'transfer:7',
    ])
  })

  test.each([
    ['test', false],
    ['live', true],
    ['constructor', null],
    [true, null],
    [undefined, null],
  ])('C-32 reads the mode from the domain %s', (domain, livemode) => {
    expect(eventsOf('paystack', JSON.stringify({ event: 'a.b', data: { id: 1, domain } }))).toMatchObject([{ livemode }])
  })

  test('falls back to the hash where the object has no ID', () => {
    expect(eventsOf('paystack', '{"event":"subscription.create","data":{"subscription_code":"SUB_1"}}')).toMatchObject([
      {
        id: 'sha256:c7a0bb56a53ab4590db4b7f65b3be9ea0a049b844cd8c448e50796913b8f8c1b',
        idBasis: 'body_hash',
        type: 'subscription.create',
        objectRef: null,
      },
    ])
  })

  test.each(['{}', '[]', '""', 'true', '1.5', '1e400', 'null', '" "'])('never makes an ID of %s', (id) => {
    expect(eventsOf('paystack', `{"event":"charge.success","data":{"id":${id}}}`)).toMatchObject([{ idBasis: 'body_hash' }])
  })
})
