import { createHmac } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { isSameEvent } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { judge } from '../support/judge.ts'

const KEY = 'mg-signing-key-1'
const TOKEN = 'a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0'
const NOW = 1_790_000_000
const MALFORMED = { ok: false, reason: 'malformed_signature' }
const MISSING = { ok: false, reason: 'missing_signature' }

const mac = (text: string, key = KEY) => createHmac('sha256', key).update(text).digest('hex')
const signatureAt = (timestamp: unknown, token = TOKEN) => ({ timestamp, token, signature: mac(`${timestamp}${token}`) })
const EVENT = {
  id: 'CPgfbmQMTCKtHW6uIWtuVe',
  event: 'delivered',
  timestamp: NOW - 10.5,
  message: { headers: { 'message-id': 'm1@example.com' } },
}

const post = (signature: unknown, { event = EVENT as object, secrets = [KEY] } = {}) =>
  judge('mailgun', { body: JSON.stringify({ signature, 'event-data': event }), secrets, now: NOW })

test('reads an event of which nothing is signed, and the token that counts once', () => {
  const { verdict, events } = post(signatureAt(String(NOW)))

  expect(verdict).toEqual({ ok: true, secretIndex: 0, signedAt: NOW })
  expect(events).toEqual([
    {
      id: 'CPgfbmQMTCKtHW6uIWtuVe',
      idBasis: 'provider',
      idIsSigned: false,
      type: 'delivered',
      livemode: null,
      occurredAt: new Date(1_789_999_989_500),
      objectRef: 'm1@example.com',
      replayKey: TOKEN,
      needsPerson: undefined,
    },
  ])
  expect(createProvider('mailgun').contentIsSigned).toBe(false)
})

test('C-16 takes a signed time of up to a day off, both ends included', () => {
  const verdictAt = (age: number) => post(signatureAt(NOW - age)).verdict

  expect([86_400, -86_400].map((age) => verdictAt(age).ok)).toEqual([true, true])
  expect(verdictAt(86_401)).toMatchObject({ ok: false, reason: 'timestamp_too_old' })
  expect(verdictAt(-86_401)).toMatchObject({ ok: false, reason: 'timestamp_too_new' })
})

test.each([
  ['abc'],
  [''],
  [null],
  [{}],
  [true],
  ['1e9'],
  ['-790000000'],
  ['0x6ab13b80'],
  [' 1790000000'],
  ['1790000000 '],
  [1_790_000_000.5],
])('C-17 refuses the time %j although it is signed', (timestamp) => {
  expect(post(signatureAt(timestamp)).verdict).toEqual(MALFORMED)
})

test.each([
  ['into the time', `${NOW}1`, TOKEN],
  ['into the token', String(NOW).slice(0, -1), `0${TOKEN.slice(1)}`],
])('a digit moved %s makes no second token of one signature', (_name, timestamp, token) => {
  const signature = mac(`${timestamp}${token}`)

  expect(post({ timestamp, token, signature }).verdict).toEqual(MALFORMED)
})

test('the signature of the main account does as well', () => {
  const ofBoth = { ...signatureAt(NOW), 'parent-signature': mac(`${NOW}${TOKEN}`, 'main-key') }

  expect(post(ofBoth).verdict.ok).toBe(true)
  expect(post(ofBoth, { secrets: ['main-key'] }).verdict).toEqual({ ok: true, secretIndex: 0, signedAt: NOW })
  expect(post(ofBoth, { secrets: ['other'] }).verdict).toEqual({ ok: false, reason: 'signature_mismatch' })
  expect(post({ ...ofBoth, signature: undefined }, { secrets: ['main-key'] }).verdict.ok).toBe(true)
})

describe('refuses', () => {
  const good = signatureAt(NOW)

  test.each([
    ['no signature', { ...good, signature: undefined }, MISSING],
    ['an empty one', { ...good, signature: '' }, MISSING],
    ['one that is no text', { ...good, signature: { a: 1 } }, MISSING],
    ['nothing at all', undefined, MISSING],
    ['a text', 'signature', MISSING],
    ['upper case', { ...good, signature: good.signature.toUpperCase() }, MALFORMED],
    ['63 digits', { ...good, signature: good.signature.slice(1) }, MALFORMED],
    ['a prefix', { ...good, signature: `sha256=${good.signature}` }, MALFORMED],
    ['no token', { ...good, token: undefined }, MALFORMED],
    ['a token that is no text', { ...good, token: [TOKEN] }, MALFORMED],
    ['an empty token', { ...good, token: '', signature: mac(String(NOW)) }, MALFORMED],
    ['another token', { ...good, token: TOKEN.replace('a', 'b') }, { ok: false, reason: 'signature_mismatch' }],
  ])('%s', (_name, signature, verdict) => {
    expect(post(signature).verdict).toEqual(verdict)
  })

  test.each([
    '',
    'null',
    '[]',
    '{',
    `timestamp=${NOW}&token=${TOKEN}&signature=${good.signature}`,
    '['.repeat(100_000),
    Buffer.from([0xff]),
  ])('a body that is no such JSON (%#)', (body) => {
    expect(judge('mailgun', { body, secrets: [KEY], now: NOW }).verdict).toEqual(MISSING)
  })
})

test('C-32 test mode says so', () => {
  const livemode = (flags: object) => post(signatureAt(NOW), { event: { ...EVENT, flags } }).events[0]?.livemode

  expect([{ 'is-test-mode': true }, { 'is-test-mode': false }, { 'is-test-mode': 'true' }, {}].map(livemode)).toEqual([
    false,
    true,
    null,
    null,
  ])
})

test('C-35 a redelivery that is signed anew is no conflict', () => {
  const provider = createProvider('mailgun')
  const first = post(signatureAt(NOW)).request
  const again = post(signatureAt(NOW + 600, 'b'.repeat(50))).request
  const other = post(signatureAt(NOW), { event: { ...EVENT, event: 'complained' } }).request

  expect(isSameEvent(provider, first, again, EVENT.id)).toBe(true)
  expect(isSameEvent(provider, first, other, EVENT.id)).toBe(false)
})
