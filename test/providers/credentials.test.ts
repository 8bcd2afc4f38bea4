import { describe, expect, test } from 'vitest'
import { isSameEvent, readEvents } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { judge } from '../support/judge.ts'

// Providers that sign nothing: the request carries a secret, and that is all that is proven.

const PASSED = { ok: true, secretIndex: 0 }
const MISSING = { ok: false, reason: 'missing_signature' }
const MALFORMED = { ok: false, reason: 'malformed_signature' }
const BAD = { ok: false, reason: 'bad_credentials' }
const SECRET = 'hook:pa:ss wörd'
const BASIC = 'Basic aG9vazpwYTpzcyB3w7ZyZA=='

test.each(['xendit', 'chargebee', 'postmark'])('%s says of itself that nothing is signed', (name) => {
  expect(createProvider(name)).toMatchObject({ idIsSigned: false, contentIsSigned: false, scheme: { signed: '' } })
})

describe.each(['chargebee', 'postmark'])('%s, HTTP Basic', (name) => {
  const basic = (authorization: string | string[], secrets = [SECRET]) =>
    judge(name, { headers: { Authorization: authorization }, body: '{}', secrets }).verdict

  test.each([BASIC, BASIC.replace('Basic', 'basic'), BASIC.replace('Basic', 'BASIC')])(
    'takes a UTF-8 password with colons, whatever the case of the scheme: %s',
    (authorization) => {
      expect(basic(authorization)).toEqual(PASSED)
    },
  )

  test.each([
    ['the password in Latin-1', 'Basic aG9vazpwYTpzcyB39nJk', BAD],
    ['no password', 'Basic aG9vaw==', BAD],
    ['a blank at the end of the password', 'Basic aG9vazpwYTpzcyB3w7ZyZCA=', BAD],
    ['another user', 'Basic aG9va3M6cGE6c3Mgd8O2cmQ=', BAD],
    ['the first letter only', 'Basic aA==', BAD],
    ['no base64', 'Basic hook:pass', MALFORMED],
    ['nothing after the scheme', 'Basic', MALFORMED],
    ['another scheme', BASIC.replace('Basic', 'Bearer'), MALFORMED],
    ['no scheme', BASIC.slice('Basic '.length), MALFORMED],
    ['two in one', `${BASIC}, ${BASIC}`, MALFORMED],
    ['the header twice', [BASIC, BASIC], MALFORMED],
    ['an empty header', '', MISSING],
    ['no header', [], MISSING],
  ])('refuses %s', (_name, authorization, verdict) => {
    expect(basic(authorization)).toEqual(verdict)
  })

  test('C-15 tells which of two passwords it was', () => {
    expect(basic(BASIC, ['hook:new', SECRET])).toEqual({ ok: true, secretIndex: 1 })
    expect(basic(BASIC, ['hook:new'])).toEqual(BAD)
    expect(basic('Basic Og==', ['', '  '])).toEqual({ ok: false, reason: 'no_matching_key' })
  })
})

describe('xendit', () => {
  const xendit = (headers: Record<string, string | string[]>, body: string, secrets = ['xnd-token-1']) =>
    judge('xendit', { headers: { 'X-Callback-Token': 'xnd-token-1', ...headers }, body, secrets })

  test('a token beyond ASCII is taken as text, and as the Latin-1 that Node reads its bytes as', () => {
    const onTheWire = Buffer.from('tökén').toString('latin1')

    expect(xendit({ 'X-Callback-Token': 'tökén' }, '{}', ['tökén']).verdict.ok).toBe(true)
    expect(xendit({ 'X-Callback-Token': onTheWire }, '{}', ['tökén']).verdict.ok).toBe(true)
    expect(xendit({ 'X-Callback-Token': 'token' }, '{}', ['tökén']).verdict.ok).toBe(false)
  })

  test.each([
    ['xnd-token-1', PASSED],
    ['xnd-token-2', BAD],
    ['xnd-token-', BAD],
    ['xnd-token-11', BAD],
    ['XND-TOKEN-1', BAD],
    ['Bearer xnd-token-1', BAD],
    ['  ', MISSING],
    ['', MISSING],
    [[], MISSING],
    [['xnd-token-1', 'xnd-token-1'], MALFORMED],
  ])('the token %j', (token, verdict) => {
    expect(xendit({ 'X-Callback-Token': token }, '{}').verdict).toEqual(verdict)
  })

  test('has the ID of the header, which a stored request keeps, and the type of the body, if there is one', () => {
    const body = '{"event":"payout.failed","created":"2026-09-21T14:13:05.000Z","data":{"id":"disb-1"}}'
    const { events, provider } = xendit({ 'Webhook-Id': 'w1' }, body)

    expect(events).toMatchObject([
      {
        id: 'w1',
        idBasis: 'provider',
        idIsSigned: false,
        type: 'payout.failed',
        objectRef: 'disb-1',
        livemode: null,
        occurredAt: new Date('2026-09-21T14:13:05Z'),
      },
    ])
    expect(provider.factHeaders).toEqual(['webhook-id'])
    expect(xendit({ 'Webhook-Id': 'w2' }, '{"id":"inv-1","status":"PAID"}').events).toMatchObject([
      { id: 'w2', type: null, objectRef: 'inv-1' },
    ])
  })

  test.each([{}, { 'webhook-id': '' }, { 'webhook-id': ['w1', 'w2'] }])('without one ID it is no usable event: %j', (headers) => {
    expect(xendit(headers, '{"event":"payment.succeeded"}')).toMatchObject({ events: [], unusable: 'no_id' })
  })
})

describe('chargebee', () => {
  const chargebee = (body: string) => judge('chargebee', { headers: { authorization: BASIC }, body, secrets: [SECRET] })

  test.each([
    ['subscription_cancelled', '{"subscription":{"id":"sub_1"},"customer":{"id":"c_1"}}', 'sub_1'],
    ['payment_succeeded', '{"transaction":{"id":"txn_1"},"invoice":{"id":"inv_1"},"customer":{"id":"c_1"}}', 'txn_1'],
    ['invoice_generated', '{"invoice":{"id":"inv_1"},"customer":{"id":"c_1"}}', 'inv_1'],
    ['customer_changed', '{"customer":{"id":"c_1"}}', 'c_1'],
    ['plan_created', '{"toString":1}', null],
    ['plan_created', '[]', null],
  ])('a %s is about what its type names', (type, content, objectRef) => {
    const { events } = chargebee(`{"id":"ev_1","event_type":"${type}","occurred_at":1789999990,"content":${content}}`)

    expect(events).toMatchObject([{ id: 'ev_1', idBasis: 'provider', type, objectRef, occurredAt: new Date(1_789_999_990_000) }])
  })

  test('C-35 how its deliveries stand makes no conflict, and an amount does', () => {
    const at = (amount: number, status: string) =>
      `{"id":"ev_1","event_type":"payment_succeeded","content":{"transaction":{"amount":${amount}}},"webhook_status":"${status}","webhooks":[{"id":"whv1","webhook_status":"${status}"}]}`
    const [first, again, other] = [at(1, 'scheduled'), at(1, 're_scheduled'), at(2, 'scheduled')].map(chargebee)
    if (!first || !again || !other) throw new Error('not judged')

    expect(isSameEvent(first.provider, first.request, again.request, 'ev_1')).toBe(true)
    expect(isSameEvent(first.provider, first.request, other.request, 'ev_1')).toBe(false)
  })
})

describe('postmark', () => {
  const provider = createProvider('postmark')
  const idsOf = (body: string) => readEvents(provider, { headers: {}, body: Buffer.from(body) }).events.map(({ id }) => id)

  test.each([
    ['{"RecordType":"Delivery","MessageID":"m1","DeliveredAt":"2026-09-21T14:13:05Z"}', 'm1:Delivery'],
    ['{"RecordType":"Open","MessageID":"m1","ReceivedAt":"2026-09-21T14:13:05Z"}', 'm1:Open:2026-09-21T14:13:05Z'],
    ['{"RecordType":"Click","MessageID":"m1","ReceivedAt":"2026-09-21T14:13:06Z"}', 'm1:Click:2026-09-21T14:13:06Z'],
    ['{"RecordType":"Bounce","MessageID":"m1","ID":4323372036854775807}', 'm1:Bounce:4323372036854775807'],
    ['{"RecordType":"Bounce","MessageID":"m1","ID":42}', 'm1:Bounce:42'],
    ['{"RecordType":"Bounce","MessageID":"m1"}', 'm1:Bounce'],
    ['{"RecordType":"Open","MessageID":"m1"}', 'm1:Open'],
    ['{"RecordType":"SpamComplaint","MessageID":"m1","ID":42}', 'm1:SpamComplaint'],
    ['{"RecordType":"SubscriptionChange","MessageID":"m1"}', 'm1:SubscriptionChange'],
    ['{"RecordType":"toString","MessageID":"m1"}', 'm1:toString'],
  ])('puts its ID together: %s', (body, id) => {
    expect(idsOf(body)).toEqual([id])
  })

  test.each([
    '{"MessageID":"m1"}',
    '{"RecordType":"Delivery"}',
    '{"RecordType":"Delivery","MessageID":null}',
    '{"RecordType":{},"MessageID":"m1"}',
  ])('without its parts there is no ID: %s', (body) => {
    expect(idsOf(body)).toEqual([])
  })

  test.each([
    ['DeliveredAt', '2026-09-21T14:13:05Z'],
    ['BouncedAt', '2026-09-21T10:13:05.0000000-04:00'],
    ['ReceivedAt', '2026-09-21T14:13:05.0000000Z'],
    ['ChangedAt', '2026-09-21T14:13:05Z'],
  ])('reads the time in %s', (name, time) => {
    const body = `{"RecordType":"Delivery","MessageID":"m1","${name}":"${time}"}`

    expect(judge('postmark', { body }).events).toMatchObject([
      { occurredAt: new Date('2026-09-21T14:13:05Z'), objectRef: 'm1', idBasis: 'derived' },
    ])
  })

  test('with a header of its own, only that header counts', () => {
    const options = { header: 'X-Postmark-Secret' }
    const custom = (headers: Record<string, string | string[]>) =>
      judge('postmark', { headers, body: '{}', secrets: [SECRET], options }).verdict

    expect(custom({ 'X-Postmark-Secret': SECRET })).toEqual(PASSED)
    expect(custom({ 'X-Postmark-Secret': `${SECRET}!` })).toEqual(BAD)
    expect(custom({ Authorization: BASIC })).toEqual(MISSING)
    expect(() => createProvider('postmark', { header: 'a b' })).toThrow(/header/)
  })
})
