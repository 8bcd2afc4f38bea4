import { generateKeyPairSync, sign } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { payloadOf } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { isUsableSecret } from '../../src/providers/signature.ts'
import { judge } from '../support/judge.ts'

const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const PEM = publicKey.export({ format: 'pem', type: 'spki' }) as string

const signed = (serialized: string | Buffer) => sign('sha1', Buffer.from(serialized as string), privateKey).toString('base64')
const post = (form: string | Buffer, signature: string) =>
  judge('paddle-classic', {
    body: Buffer.concat([Buffer.from(form as string), Buffer.from(`&p_signature=${encodeURIComponent(signature)}`)]),
    secrets: [PEM],
  })

const FORM = 'alert_name=payment_succeeded&alert_id=9007199254740993&event_time=2026-09-21+14%3A13%3A05&order_id=88'
// As PHP 8 writes it.
const SERIALIZED =
  'a:4:{s:8:"alert_id";s:16:"9007199254740993";s:10:"alert_name";s:17:"payment_succeeded";s:10:"event_time";s:19:"2026-09-21 14:13:05";s:8:"order_id";s:2:"88";}'

test('reads an event of all fields but the signature, with every digit of its ID', () => {
  const { verdict, events, provider, request } = post(FORM, signed(SERIALIZED))

  expect(verdict).toEqual({ ok: true, secretIndex: 0 })
  expect(events).toMatchObject([
    {
      id: '9007199254740993',
      idBasis: 'provider',
      idIsSigned: true,
      type: 'payment_succeeded',
      livemode: null,
      occurredAt: new Date('2026-09-21T14:13:05Z'),
      objectRef: '88',
    },
  ])
  expect(payloadOf(provider, request, '9007199254740993')).toEqual({
    alert_id: '9007199254740993',
    alert_name: 'payment_succeeded',
    event_time: '2026-09-21 14:13:05',
    order_id: '88',
  })
})

describe('the form is decoded as PHP does', () => {
  test.each([
    ['bytes are counted, not characters', 'n=Zo%C3%AB+%F0%9F%9A%80', 'a:1:{s:1:"n";s:9:"Zoë 🚀";}'],
    ['a plus sign is a space, %2B is a plus sign', 'n=a+b%2Bc', 'a:1:{s:1:"n";s:5:"a b+c";}'],
    ['quotes and semicolons are not escaped', 'n=%22%3B%7D', 'a:1:{s:1:"n";s:3:"";}";}'],
    ['an empty value stays', 'n=&o', 'a:2:{s:1:"n";s:0:"";s:1:"o";s:0:"";}'],
    ['of a repeated name the last counts', 'n=1&o=2&n=3', 'a:2:{s:1:"n";s:1:"3";s:1:"o";s:1:"2";}'],
    ['a lone percent sign stays', 'n=100%25&o=5%&p=%zz', 'a:3:{s:1:"n";s:4:"100%";s:1:"o";s:2:"5%";s:1:"p";s:3:"%zz";}'],
    ['empty pairs are none', '&&n=1&', 'a:1:{s:1:"n";s:1:"1";}'],
    ['names are sorted by their bytes', 'b=1&B=2&_=3', 'a:3:{s:1:"B";s:1:"2";s:1:"_";s:1:"3";s:1:"b";s:1:"1";}'],
  ])('%s', (_name, form, serialized) => {
    expect(post(form, signed(serialized)).verdict).toEqual({ ok: true, secretIndex: 0 })
  })

  test('bytes that are no UTF-8 are signed as they are', () => {
    const serialized = Buffer.from('a:1:{s:1:"n";s:2:"\xe9\xff";}', 'latin1')

    expect(post('n=%E9%ff', signed(serialized)).verdict.ok).toBe(true)
    expect(post(Buffer.from('n=\xe9\xff', 'latin1'), signed(serialized)).verdict.ok).toBe(true)
  })
})

test.each([
  ['a field added', `${FORM}&coupon=x`],
  ['a field taken away', FORM.replace('&order_id=88', '')],
  ['a field changed', FORM.replace('88', '89')],
  ['a field doubled', `${FORM}&order_id=89`],
])('refuses %s', (_name, form) => {
  expect(post(form, signed(SERIALIZED)).verdict).toEqual({ ok: false, reason: 'signature_mismatch' })
})

test('a double that PHP doesn’t see is not read either', () => {
  const { verdict, provider, request } = post(`order_id=1&${FORM}`, signed(SERIALIZED))

  expect(verdict.ok).toBe(true)
  expect(payloadOf(provider, request, '')).toMatchObject({ order_id: '88' })
})

test('refuses signatures of another form or kind', () => {
  const good = signed(SERIALIZED)
  const sha256 = sign('sha256', Buffer.from(SERIALIZED), privateKey).toString('base64')

  expect(post(FORM, '').verdict).toEqual({ ok: false, reason: 'missing_signature' })
  expect(post(FORM, sha256).verdict).toEqual({ ok: false, reason: 'signature_mismatch' })
  for (const wrong of [
    good.slice(4),
    `${good}AAAA`,
    ` ${good}`,
    good.replace('=', ''),
    Buffer.from(good, 'base64').toString('hex'),
    'é',
  ])
    expect(post(FORM, wrong).verdict.ok).toBe(false)
  for (const body of ['', '&', '%', '{"p_signature":"x"}', Buffer.from([0xff, 0x00])])
    expect(judge('paddle-classic', { body, secrets: [PEM] }).verdict).toEqual({ ok: false, reason: 'missing_signature' })
})

test('only an RSA public key is a key', () => {
  const { scheme } = createProvider('paddle-classic')
  const spki = (publicKey.export({ format: 'der', type: 'spki' }) as Buffer).toString('base64')
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'pem', type: 'spki' }) as string
  const secretKey = privateKey.export({ format: 'pem', type: 'pkcs8' }) as string

  expect([PEM, spki, ec, secretKey, 'text', ''].map((key) => isUsableSecret(scheme, key))).toEqual([
    true,
    true,
    false,
    false,
    false,
    false,
  ])
})
