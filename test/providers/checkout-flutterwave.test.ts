import { describe, expect, test } from 'vitest'
import { createProvider } from '../../src/providers/registry.ts'
import { BODY_H, judge } from '../support/judge.ts'

const CHECKOUT = '75d0a284a32aa234b6f28e13bbd71d591cd16e2b875ef5d978bc03d9b17c5527'
const FLUTTERWAVE = 'qyXpOnGOR+yrXdHYjM3Zg8MKGHR9orRkxUO6XjtY7oY='
const MISSING = { ok: false, reason: 'missing_signature' }
const BAD = { ok: false, reason: 'bad_credentials' }

describe('checkout', () => {
  const checkout = (authorization: string | string[], options?: unknown, signature: string | string[] = CHECKOUT) =>
    judge('checkout', {
      headers: { 'Cko-Signature': signature, Authorization: authorization },
      body: BODY_H,
      secrets: ['cko_test'],
      options,
    }).verdict

  test('takes the right signature only, once and in its own form', () => {
    expect(checkout([])).toEqual({ ok: true, secretIndex: 0 })
    for (const wrong of [
      CHECKOUT.toUpperCase(),
      `sha256=${CHECKOUT}`,
      CHECKOUT.slice(1),
      `${CHECKOUT}0`,
      [CHECKOUT, CHECKOUT],
      '',
    ])
      expect(checkout([], undefined, wrong).ok).toBe(false)
  })

  test('does not look at Authorization unless it is told to', () => {
    expect(checkout('anything').ok).toBe(true)
  })

  test('wants both the signature and the key in Authorization where one is set', () => {
    const one = { authorization: 'static-key' }
    const two = { authorization: ['new-key', 'static-key'] }

    expect(checkout('static-key', one).ok).toBe(true)
    expect(checkout('static-key', two).ok).toBe(true)
    expect(checkout('static-kez', one)).toEqual(BAD)
    expect(checkout('Bearer static-key', one)).toEqual(BAD)
    expect(checkout(['static-key', 'static-key'], one)).toEqual(BAD)
    expect(checkout('', one)).toEqual(MISSING)
    expect(checkout([], one)).toEqual(MISSING)
    expect(checkout('static-key', one, [])).toEqual(MISSING)
    expect(checkout('static-key', one, CHECKOUT.replace('7', '8'))).toEqual({ ok: false, reason: 'signature_mismatch' })
  })

  test.each([[''], [' '], [[]], [['a', '']]])('C-13 refuses to be set up with a blank key: %j', (authorization) => {
    expect(() => createProvider('checkout', { authorization })).toThrow(/authorization/)
  })

  test('the key in Authorization is never stored', () => {
    expect(createProvider('checkout', { authorization: 'static-key' }).factHeaders ?? []).toEqual([])
  })

  test.each([
    ['https://api.sandbox.checkout.com/workflows/events/evt_1', false],
    ['https://vkuhvk4v.api.sandbox.checkout.com/workflows/events/evt_1', false],
    ['https://api.checkout.com/workflows/events/evt_1', null],
    ['https://example.com/?https://api.sandbox.checkout.com/', null],
    ['https://notsandbox.checkout.com/', null],
    [17, null],
  ])('C-32 the link %s says of the mode: %s', (href, livemode) => {
    const body = JSON.stringify({
      id: 'evt_1',
      type: 'payment_captured',
      created_on: '2026-09-21T14:13:05.1234567Z',
      data: { id: 'pay_1' },
      _links: { self: { href } },
    })

    expect(judge('checkout', { body }).events).toMatchObject([
      { id: 'evt_1', type: 'payment_captured', livemode, occurredAt: new Date('2026-09-21T14:13:05.123Z'), objectRef: 'pay_1' },
    ])
  })

  test('broken JSON is no event, and nothing breaks', () => {
    expect(judge('checkout', { body: '{"id":"evt_1","type":"authentication_failed",\ufffd' })).toMatchObject({
      events: [],
      unusable: 'not_json',
    })
  })
})

describe('flutterwave', () => {
  test('v4 takes the right signature only, once and in its own form', () => {
    const v4 = (signature: string | string[], options?: unknown) =>
      judge('flutterwave', { headers: { 'Flutterwave-Signature': signature }, body: BODY_H, secrets: ['flw_test'], options })
        .verdict

    expect(v4(FLUTTERWAVE)).toEqual({ ok: true, secretIndex: 0 })
    expect(v4(FLUTTERWAVE, { version: 'v4' }).ok).toBe(true)
    expect(v4(FLUTTERWAVE, { version: 'v3' })).toEqual(MISSING)
    for (const wrong of [FLUTTERWAVE.slice(0, -1), FLUTTERWAVE.replace('Y=', 'Z='), [FLUTTERWAVE, FLUTTERWAVE], 'flw_test', ''])
      expect(v4(wrong).ok).toBe(false)
  })

  test('v3 wants the secret hash itself, and a source of v4 never takes it', () => {
    const v3 = (given: string | string[], version = 'v3', secrets = ['new-hash', 'old-hash']) =>
      judge('flutterwave', { headers: { 'verif-hash': given }, body: BODY_H, secrets, options: { version } }).verdict

    expect(v3('new-hash')).toEqual({ ok: true, secretIndex: 0 })
    expect(v3('old-hash')).toEqual({ ok: true, secretIndex: 1 })
    expect(v3('old-hash', 'v4')).toEqual(MISSING)
    for (const wrong of ['old-hasi', 'old-has', 'old-hashh', 'OLD-HASH', 'new-hash,old-hash']) expect(v3(wrong)).toEqual(BAD)
    expect(v3(['old-hash', 'old-hash']).ok).toBe(false)
    expect(v3('')).toEqual(MISSING)
    expect(v3([])).toEqual(MISSING)
    expect(v3('', 'v3', ['']).ok).toBe(false)
  })

  test('only v4 vouches for what an event says', () => {
    const [v4, v3] = ['v4', 'v3'].map((version) => createProvider('flutterwave', { version }))

    expect([v4?.contentIsSigned, v4?.idIsSigned, v3?.contentIsSigned, v3?.idIsSigned]).toEqual([true, true, false, false])
    expect(() => createProvider('flutterwave', { version: 'v2' })).toThrow(/version/)
  })

  test('v4 has an ID and a time of its own; without the ID the hash stands in', () => {
    const body = '{"webhook_id":"wbk_1","timestamp":1789999990000,"type":"charge.completed","data":{"id":"chg_1"}}'

    expect(judge('flutterwave', { body }).events).toMatchObject([
      {
        id: 'wbk_1',
        idBasis: 'provider',
        type: 'charge.completed',
        livemode: null,
        occurredAt: new Date(1_789_999_990_000),
        objectRef: 'chg_1',
      },
    ])
    expect(judge('flutterwave', { body: '{"type":"charge.completed","data":{"id":"chg_1"}}' }).events).toMatchObject([
      { id: 'sha256:a4f8d24dbdbfae8adb8dfbdbfd85e1d27081cd70227351a42ddea978e5bd8823', idBasis: 'body_hash' },
    ])
  })

  test('C-27 v3 puts its ID together, with all digits; without the number the hash stands in', () => {
    const events = (body: string) => judge('flutterwave', { body, options: { version: 'v3' } }).events

    expect(events('{"event":"charge.completed","data":{"id":9007199254740993}}')).toMatchObject([
      {
        id: 'charge.completed:9007199254740993',
        idBasis: 'derived',
        type: 'charge.completed',
        objectRef: 'charge:9007199254740993',
      },
    ])
    expect(events('{"event":"charge.completed","data":{}}')).toMatchObject([
      { id: 'sha256:211f1b660f87f74735b58c4ccd005a0afb9794a456fe342e2a017699f908d000', idBasis: 'body_hash' },
    ])
  })
})
