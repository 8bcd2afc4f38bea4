import { describe, expect, test } from 'vitest'
import { BODY_H, judge } from '../support/judge.ts'

const RAZORPAY = '6cae030098b82e9016da848f9d9881ce64033208d9d7995a35b0d3f0c22ad455'
const SHOPIFY = 'uBy9FSY+q9mABDmJX7YZhNapro0YN62OWYIBdigtXTo='

const razorpay = (signature: string | string[]) =>
  judge('razorpay', { headers: { 'X-Razorpay-Signature': signature }, body: BODY_H, secrets: ['rzp_test'] }).verdict
const shopify = (headers: Record<string, string | string[]>, body = BODY_H) =>
  judge('shopify', { headers, body, secrets: ['shpss_test'] })

describe('razorpay', () => {
  test.each([
    ['abc', 'sha256=abc'],
    ['nothing after the prefix', 'sha256='],
    ['63 digits', RAZORPAY.slice(1)],
    ['65 digits', `${RAZORPAY}0`],
    ['640 digits', RAZORPAY.repeat(10)],
    ['a prefix', `sha256=${RAZORPAY}`],
    ['upper case', RAZORPAY.toUpperCase()],
    ['white space', `${RAZORPAY} `],
    ['one flipped bit', RAZORPAY.replace(/^6/, '7')],
  ])('C-11 refuses a signature of the wrong form, a thousand times: %s', (_name, signature) => {
    for (let i = 0; i < 1_000; i++) expect(razorpay(signature).ok).toBe(false)
  })

  test('C-10 takes the right signature, and refuses it doubled, missing or empty', () => {
    expect(razorpay(RAZORPAY)).toEqual({ ok: true, secretIndex: 0 })
    expect(razorpay([RAZORPAY, RAZORPAY])).toEqual({ ok: false, reason: 'malformed_signature' })
    expect(razorpay([])).toEqual({ ok: false, reason: 'missing_signature' })
    expect(razorpay('')).toEqual({ ok: false, reason: 'missing_signature' })
  })

  test.each([
    ['payment.captured', ['payment'], 'pay_1'],
    ['refund.processed', ['refund', 'payment'], 'rfnd_1'],
    ['order.paid', ['payment', 'order'], 'order_1'],
    // Nothing of the payload is named like the type: the first that it contains.
    ['subscription.charged', ['payment'], 'pay_1'],
    ['payment.captured', ['__proto__'], 'pay_1'],
    ['made.up', ['nothing'], null],
  ])('the event %s with %j is about %s', (event, contains, objectRef) => {
    const payload = Object.fromEntries(
      ['pay_1', 'rfnd_1', 'order_1'].map((id, index) => [['payment', 'refund', 'order'][index], { entity: { id } }]),
    )
    const body = JSON.stringify({ event, contains, payload, created_at: 1_789_999_991 })

    expect(judge('razorpay', { headers: { 'x-razorpay-event-id': 'SAb1' }, body }).events).toMatchObject([
      { id: 'SAb1', idIsSigned: false, type: event, livemode: null, occurredAt: new Date(1_789_999_991_000), objectRef },
    ])
  })

  test('an event without its header, or with two, waits for a person instead of coming back under its hash', () => {
    const body = '{"event":"payment.captured"}'

    expect(judge('razorpay', { body })).toMatchObject({ events: [], unusable: 'no_id' })
    expect(judge('razorpay', { headers: { 'x-razorpay-event-id': ['a', 'b'] }, body })).toMatchObject({
      events: [],
      unusable: 'no_id',
    })
  })
})

describe('shopify', () => {
  const webhook = (changes: Record<string, string | string[]> = {}, body?: string) =>
    shopify({ 'X-Shopify-Webhook-Id': 'w1', 'X-Shopify-Topic': 'orders/paid', 'X-Shopify-Event-Id': 'e1', ...changes }, body)

  test('takes the signature under either name, and the newer one where both are there', () => {
    expect(shopify({ 'X-Shopify-Hmac-SHA256': SHOPIFY }).verdict).toEqual({ ok: true, secretIndex: 0 })
    expect(shopify({ 'shopify-hmac-sha256': SHOPIFY }).verdict).toEqual({ ok: true, secretIndex: 0 })
    expect(shopify({ 'shopify-hmac-sha256': 'AAAA', 'x-shopify-hmac-sha256': SHOPIFY }).verdict.ok).toBe(false)
  })

  test.each([
    ['in hex', 'b81cbd15263eabd9800439895fb61984d6a9ae8d1837ad8e59820176282d5d3a'],
    ['without its padding', SHOPIFY.slice(0, -1)],
    ['with other spare bits', SHOPIFY.replace('o=', 'p=')],
    ['doubled', [SHOPIFY, SHOPIFY]],
    ['empty', ''],
  ])('refuses a signature %s', (_name, signature) => {
    expect(shopify({ 'X-Shopify-Hmac-Sha256': signature }).verdict).toMatchObject({ ok: false })
  })

  test('knows an event by its webhook ID and topic, not by the event ID that topics share', () => {
    const [paid] = webhook({}, '{"id":1}').events
    const [updated] = webhook({ 'X-Shopify-Webhook-Id': 'w2', 'X-Shopify-Topic': 'orders/updated' }, '{"id":1}').events

    expect(paid).toMatchObject({ id: 'w1', idIsSigned: false, type: 'orders/paid' })
    expect(updated).toMatchObject({ id: 'w2', type: 'orders/updated' })
  })

  test('an event without its ID, or with two, waits for a person instead of coming back under its hash', () => {
    expect(webhook({ 'X-Shopify-Webhook-Id': [] }, '{"id":1}')).toMatchObject({ events: [], unusable: 'no_id' })
    expect(webhook({ 'X-Shopify-Webhook-Id': ['a', 'b'] }, '{"id":1}')).toMatchObject({ events: [], unusable: 'no_id' })
  })

  test('C-27 names the object by all digits of its ID', () => {
    expect(webhook({}, '{"id":820982911946154509}').events).toMatchObject([{ objectRef: '820982911946154509' }])
    expect(webhook({}, String.raw`{"id":1,"admin_graphql_api_id":"gid:\/\/shopify\/Order\/1"}`).events).toMatchObject([
      { objectRef: 'gid://shopify/Order/1' },
    ])
  })

  test('has the time of the signed object, never of the header', () => {
    const triggered = { 'X-Shopify-Triggered-At': '2026-09-21T14:13:05.123456789Z' }
    const body = '{"id":1,"updated_at":"2026-09-21T10:13:05-04:00"}'

    expect(webhook(triggered, body).events).toMatchObject([{ occurredAt: new Date('2026-09-21T14:13:05Z') }])
    expect(webhook(triggered, '{"id":1}').events).toMatchObject([{ occurredAt: null }])
  })

  test('C-32 marks tests, and says of nothing else that it is live', () => {
    expect(webhook({}, '{"id":1,"test":true}').events).toMatchObject([{ livemode: false }])
    expect(webhook({ 'X-Shopify-Test': 'true' }, '{"id":1}').events).toMatchObject([{ livemode: false }])
    expect(webhook({}, '{"id":1,"test":false}').events).toMatchObject([{ livemode: null }])
    expect(webhook({ 'X-Shopify-Test': 'false' }, '{"id":1,"test":"true"}').events).toMatchObject([{ livemode: null }])
  })

  test('C-31 takes bodies of more than a megabyte', () => {
    expect(webhook().provider.maxBodyBytes).toBe(5_242_880)
  })
})
