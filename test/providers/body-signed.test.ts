import { describe, expect, test } from 'vitest'
import { isSameEvent } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { type Attempt, BODY_H, judge } from '../support/judge.ts'

// Coinbase Commerce, Authorize.Net and Recurly sign the body, each in its own way.

const PASSED = { ok: true, secretIndex: 0 }
const MISSING = { ok: false, reason: 'missing_signature' }
const MALFORMED = { ok: false, reason: 'malformed_signature' }
const MISMATCH = { ok: false, reason: 'signature_mismatch' }

describe('coinbase-commerce', () => {
  const GOOD = 'dddb99005f81761173391026e9fe3fec3bf0a9cd440a23261deb3afc0b9a0b6a'
  const coinbase = (signature: string | string[], body = BODY_H) =>
    judge('coinbase-commerce', { headers: { 'X-CC-Webhook-Signature': signature }, body, secrets: ['cc_test'] })

  test.each([
    [GOOD, PASSED],
    [GOOD.replace(/a$/, 'b'), MISMATCH],
    [GOOD.slice(1), MALFORMED],
    [`${GOOD}0`, MALFORMED],
    [`sha256=${GOOD}`, MALFORMED],
    [GOOD.toUpperCase(), MALFORMED],
    [[GOOD, GOOD], MALFORMED],
    ['', MISSING],
    [[], MISSING],
  ])('the signature %j', (signature, verdict) => {
    expect(coinbase(signature).verdict).toEqual(verdict)
  })

  test('the event is the inner one; what belongs to the delivery makes no conflict (C-35)', () => {
    const delivery = (attempt: number, amount: string) =>
      `{"id":"d${attempt}","attempt_number":${attempt},"scheduled_for":"2026-09-21T14:1${attempt}:06Z","event":{"id":"e1","type":"charge:confirmed","created_at":"2026-09-21T14:13:05Z","data":{"code":"66BEOV2A","amount":"${amount}"}}}`
    const [first, again, other] = [delivery(1, '1.00'), delivery(2, '1.00'), delivery(1, '2.00')].map((body) =>
      coinbase('', body),
    )
    if (!first || !again || !other) throw new Error('not judged')

    expect(first.events).toMatchObject([
      { id: 'e1', type: 'charge:confirmed', objectRef: '66BEOV2A', occurredAt: new Date('2026-09-21T14:13:05Z'), livemode: null },
    ])
    expect(again.events.map(({ id }) => id)).toEqual(['e1'])
    expect(isSameEvent(first.provider, first.request, again.request, 'e1')).toBe(true)
    expect(isSameEvent(first.provider, first.request, other.request, 'e1')).toBe(false)
  })

  test.each(['{"id":"outer","type":"outer"}', '{"id":"outer","event":[]}', '{"event":{"type":"x"}}', '{"event":"e1"}'])(
    'the outer ID is none: %s',
    (body) => {
      expect(coinbase('', body)).toMatchObject({ events: [], unusable: 'no_id' })
    },
  )
})

describe('authorize-net', () => {
  // Keyed with the eight characters A1B2C3D4, and with the four bytes that they name.
  const TEXT =
    '9E3A62F5A2BF035C83B5E5F76F506FD645EE34A80550E3C6F58E902098EA033685114B8EC702A26E3917B09083B6271FAA0B910C870C2375C4C13CF69778623F'
  const HEX =
    '20EA98C0B4315302B633BD60575BD75363FF5AF24C91FA2EB54AD1F5A51933B1D8A132DA48F4DB9642E56CD0FF7135CE2FD2AE06BD51700C69A459628EB9D056'
  const anet = (signature: string | string[], options = {}) =>
    judge('authorize-net', { headers: { 'X-ANET-Signature': signature }, body: BODY_H, secrets: ['A1B2C3D4'], options }).verdict

  test.each([
    [`sha512=${TEXT}`, PASSED],
    [`sha512=${TEXT.toLowerCase()}`, PASSED],
    [`sha512=${TEXT.slice(0, 64)}${TEXT.slice(64).toLowerCase()}`, PASSED],
    [`sha512=${HEX}`, MISMATCH],
    [`sha512=${TEXT.replace(/F$/, 'E')}`, MISMATCH],
    [TEXT, MALFORMED],
    [`SHA512=${TEXT}`, MALFORMED],
    [`sha512${TEXT}`, MALFORMED],
    [`sha256=${TEXT}`, MALFORMED],
    [`sha512=${TEXT.slice(1)}`, MALFORMED],
    [`sha512=${TEXT}0`, MALFORMED],
    [[`sha512=${TEXT}`, `sha512=${TEXT}`], MALFORMED],
    ['', MISSING],
    [[], MISSING],
  ])('the signature %j', (signature, verdict) => {
    expect(anet(signature)).toEqual(verdict)
  })

  test('tries the one reading of the key that it is told, and never the other', () => {
    expect(anet(`sha512=${HEX}`, { keyEncoding: 'hex' })).toEqual(PASSED)
    expect(anet(`sha512=${TEXT}`, { keyEncoding: 'hex' })).toEqual(MISMATCH)
    expect(anet(`sha512=${TEXT}`, { keyEncoding: 'utf8' })).toEqual(PASSED)
    expect(() => createProvider('authorize-net', { keyEncoding: 'both' })).toThrow(/keyEncoding/)
  })

  test('reads the time with its seven digits, and the transaction', () => {
    const body =
      '{"notificationId":"n1","eventType":"net.authorize.payment.refund.created","eventDate":"2026-09-21T14:13:05.3410577Z","payload":{"id":"60020981676"}}'

    expect(judge('authorize-net', { body }).events).toMatchObject([
      {
        id: 'n1',
        type: 'net.authorize.payment.refund.created',
        objectRef: '60020981676',
        occurredAt: new Date('2026-09-21T14:13:05.341Z'),
      },
    ])
  })
})

describe('recurly', () => {
  const GOOD = 'fc7ea876a8f2d61a328660b43348a0debc2983e640c574f8f1b4f6168afd7182'
  const OTHER = 'a94a60ba4f701f9c2fe9ba5b53d8db5d221c947ade2a2c5411e3a6421258084c'
  const recurly = (signature: string | string[], attempt: Attempt = {}) =>
    judge('recurly', {
      headers: { 'Recurly-Signature': signature },
      body: BODY_H,
      secrets: ['rec_test'],
      now: 1_700_000_000,
      ...attempt,
    }).verdict

  test.each([
    [`1700000000000,${GOOD}`, { ...PASSED, signedAt: 1_700_000_000 }],
    [`1700000000000,${OTHER},${GOOD}`, { ...PASSED, signedAt: 1_700_000_000 }],
    [`1700000000000,${GOOD},${OTHER}`, { ...PASSED, signedAt: 1_700_000_000 }],
    [`1700000000000,${OTHER}`, MISMATCH],
    [`1700000000001,${GOOD}`, MISMATCH],
    [`1700000000000,${GOOD.slice(1)}`, MALFORMED],
    [`1700000000000,${GOOD}0`, MALFORMED],
    [`1700000000000,${GOOD.toUpperCase()}`, MALFORMED],
    [`1700000000000 ${GOOD}`, MALFORMED],
    ['1700000000000', MALFORMED],
    [GOOD, MALFORMED],
    [`,${GOOD}`, MALFORMED],
    [`${GOOD},1700000000000`, MALFORMED],
    [[`1700000000000,${GOOD}`, `1700000000000,${GOOD}`], MALFORMED],
    ['', MISSING],
    [[], MISSING],
  ])('the signature %j', (signature, verdict) => {
    expect(recurly(signature)).toEqual(verdict)
  })

  test('C-16 bounds the age at 300 seconds, counted in milliseconds', () => {
    const at = (now: number) => recurly(`1700000000000,${GOOD}`, { now })
    // One millisecond more than the time above, which makes the difference at the bound.
    const later = '8a346dd0a5c80850e4520efb7de513e4a07c9c3dcb9bfaa81f6ad2fe9acff62c'

    expect(at(1_700_000_300).ok).toBe(true)
    expect(at(1_700_000_301)).toMatchObject({ ok: false, reason: 'timestamp_too_old' })
    expect(at(1_699_999_700).ok).toBe(true)
    expect(at(1_699_999_699)).toMatchObject({ ok: false, reason: 'timestamp_too_new' })
    expect(recurly(`1700000000001,${later}`, { now: 1_699_999_700 })).toMatchObject({ ok: false, reason: 'timestamp_too_new' })
  })

  // Each signature is right for the literal time.
  test.each([
    ['abc', '017d8f92cd86e9fcdc4ba7462ba4d05e30aefc0f2ad8b8d07b244497ac4e2c3f'],
    ['', '6e35002d20e212053a55054106eac91e32a111073e3ef24a3e52938f16ced414'],
    ['1e13', 'f3a5e88e33f4a5e775b4c1b628d367cd659c37d5b6d5e1eaace6df262782024b'],
    ['-1', '6a6fc5a213caebd75ce15fb0908ce376c33d95a90cc28c81fd2164a2908ff4ab'],
    ['0x65', '3e3c8de9119d04b38a34bd473bfa00cc1f0f192e9b1733735c78f7f691cec55b'],
    [' 1700000000000', 'cbfe651ca506c3b50803cafec3bed8b6301c881b096f2677c6ad988bf1baaa5d'],
    ['1700000000000000', '85b03cd528bfa9e793a8d74d17da33cc5c0d642c6a6b64e1dbef7b0e72dbd874'],
  ])('C-17 refuses the time "%s" however rightly it is signed', (time, digest) => {
    expect(recurly(`${time},${digest}`, { tolerance: Number.MAX_SAFE_INTEGER })).toEqual(MALFORMED)
  })

  test('takes a time in seconds for what it is in milliseconds: long ago', () => {
    const seconds = 'd00b15ca6da5e589d47faf1337b3e741bbf2415d35be9ec42c4bb84443b17590'

    expect(recurly(`1700000000,${seconds}`)).toEqual({ ok: false, reason: 'timestamp_too_old', signedAt: 1_700_000 })
  })

  test.each([
    ['{"id":"n1","object_type":"payment","event_type":"succeeded"}', 'payment.succeeded'],
    ['{"id":"n1","object_type":"payment"}', null],
    ['{"id":"n1","event_type":"succeeded"}', null],
    ['{"id":"n1","object_type":{},"event_type":"succeeded"}', null],
  ])('the type of %s', (body, type) => {
    expect(judge('recurly', { body }).events).toMatchObject([{ id: 'n1', type }])
  })
})
