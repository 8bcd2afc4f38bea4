import { createHash, createHmac, generateKeyPairSync, sign as signAsymmetric } from 'node:crypto'
import { verify as octokitVerify } from '@octokit/webhooks-methods'
import fc from 'fast-check'
import { Webhook } from 'standardwebhooks'
import Stripe from 'stripe'
import { Webhook as SvixWebhook } from 'svix'
import { describe, expect, test } from 'vitest'
import { createProvider } from '../src/providers/registry.ts'
import { isUsableSecret, sign, type Verdict, verify } from '../src/providers/signature.ts'

const BODY_H = Buffer.from(
  String.raw`{"id":"evt_1","type":"invoice.paid","note":"Zoë 😀 \u00e9 a\/b","amount":10.00,"big":9007199254740993}`,
)
const NOW = 1_700_000_000
const TOLERANCE = 300
const STRIPE_A = '4bdd2158024e751bf5cd48f924c216930ccae5dbb8e8afc58e70a62a478977e7'
const STRIPE_B = '69c62c9164fd91b6a4dd4bb8cb6da96c5192077fd8709b86775d796ef23095e9'
const STANDARD_SECRET = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
const STANDARD_V1 = 'v1,7EIBjybjm/NLt1O9Z5Ymm9Ett/xtFjTajoGGcyza9ZA='
const GITHUB = 'sha256=03e51e5d2263f979baaabcc9669add8abcd2eb4b3337202604ca25bff35cdab7'
const GENERIC = '56e8271033125c6fb0ebbac2ccede0f9d6b79c9c07def3a2935fb6d76ffd9133'
const GENERIC_OPTIONS = { header: 'X-Signature', algorithm: 'sha256', encoding: 'hex', id: 'id', type: 'type' }
const PASSED = { ok: true, secretIndex: 0 }

interface Attempt {
  secrets?: string[]
  options?: unknown
  body?: Buffer
  now?: number
  tolerance?: number
}

function check(provider: string, headers: Record<string, string | string[]>, attempt: Attempt = {}): Verdict {
  const { secrets = [], options, body = BODY_H, now = NOW, tolerance = TOLERANCE } = attempt
  const values = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value].flat()]))
  return verify(createProvider(provider, options).scheme, { headers: values, body }, secrets, now, tolerance)
}

const stripe = (header: string | string[], attempt: Attempt = {}) =>
  check('stripe', { 'stripe-signature': header }, { secrets: ['whsec_test_A'], ...attempt })
const github = (header: string | string[], attempt: Attempt = {}) =>
  check('github', { 'x-hub-signature-256': header }, { secrets: ['gh_test'], ...attempt })
const generic = (header: string, attempt: Attempt = {}) =>
  check('generic', { 'x-signature': header }, { secrets: ['secret_test'], options: GENERIC_OPTIONS, ...attempt })
const standard = (signature: string | string[], attempt: Attempt & { id?: string; timestamp?: string } = {}) =>
  check(
    'standard-webhooks',
    {
      'webhook-id': attempt.id ?? 'msg_1',
      'webhook-timestamp': attempt.timestamp ?? '1700000000',
      'webhook-signature': signature,
    },
    { secrets: [STANDARD_SECRET], ...attempt },
  )

test('C-01 C-04 checks the received bytes, not re-serialised JSON and not Latin-1', () => {
  expect(BODY_H.length).toBe(105)
  expect(createHash('sha256').update(BODY_H).digest('hex')).toBe(
    '69e1f3b54d936f9030efd6c166bbdd39e3640c602cbc5775e309592daac396e5',
  )

  expect(generic(GENERIC)).toEqual(PASSED)
  expect(generic('1bc875899053152b0cc7df0ecc168e3c8053f1cc230a02f16fa6c5497d2224c2').ok).toBe(false)
  expect(generic('d731ec26a489447ad28ab6896ee891730193602bf35752ba14becf61454f4042').ok).toBe(false)
})

test('C-03 counts a byte order mark as signed', () => {
  const body = Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), BODY_H])

  expect(generic('3aa775f8a4441715db7e92fbb661bbf292482eb5e17dca711f827f04777afafe', { body })).toEqual(PASSED)
  expect(generic(GENERIC, { body })).toEqual({ ok: false, reason: 'signature_mismatch' })
})

test('C-07 reads the reference signatures of GitHub and Inboxili', () => {
  const inboxili = 'a401c3014569d6580654a375e029bc09b7fa3a0e4e208ddd9964dcd58c4b380e'
  const attempt = { secrets: ['inbx_test'], body: Buffer.from('{"event":"delivered","message_id":"m1"}') }

  expect(github(GITHUB)).toEqual(PASSED)
  expect(check('inboxili', { 'x-inboxili-signature': inboxili }, attempt)).toEqual(PASSED)
  expect(check('inboxili', { 'x-inboxili-signature': ` ${inboxili.toUpperCase()} ` }, attempt)).toEqual(PASSED)
  expect(check('inboxili', { 'x-inboxili-signature': `sha256=${inboxili}` }, attempt).ok).toBe(false)
})

describe('C-08 Stripe header grammar', () => {
  test.each([`t=1700000000, v1=${STRIPE_A}`, `v1=${STRIPE_A},t=1700000000`, `t=1700000000,v1=${STRIPE_A},v0=aa,foo,bar=`])(
    'C-08 accepts %s',
    (header) => {
      expect(stripe(header)).toEqual({ ok: true, secretIndex: 0, signedAt: 1_700_000_000 })
    },
  )

  test.each([
    ['t,v1', 'missing_signature'],
    [`v1=${STRIPE_A}`, 'malformed_signature'],
    ['t=1700000000', 'missing_signature'],
    [`t=1700000000,t=1700000000,v1=${STRIPE_A}`, 'malformed_signature'],
    [`t=1600000000,t=1700000000,v1=${STRIPE_A}`, 'malformed_signature'],
    [`t=1700000000,v0=${STRIPE_A}`, 'missing_signature'],
    [`t=1700000000,xv1=${STRIPE_A}`, 'missing_signature'],
    [`t=1700000000,v1=${STRIPE_A.toUpperCase()}`, 'missing_signature'],
    [`t=1700000001,v1=${STRIPE_A}`, 'signature_mismatch'],
  ])('C-08 refuses %s', (header, reason) => {
    expect(stripe(header)).toEqual({ ok: false, reason })
  })
})

test('C-09 takes any matching v1, whatever stands around it', () => {
  const junk = ['00', '11', '22'].map((byte) => `v1=${byte.repeat(32)}`)

  expect(stripe(`t=1700000000,v1=${STRIPE_B},v1=${STRIPE_A}`).ok).toBe(true)
  expect(stripe(`t=1700000000,v1=${STRIPE_A},v1=${STRIPE_B}`).ok).toBe(true)
  expect(stripe(`t=1700000000,${junk[0]},${junk[1]},v1=${STRIPE_A},${junk[2]}`).ok).toBe(true)
  expect(stripe(`t=1700000000,${junk}`)).toEqual({ ok: false, reason: 'signature_mismatch' })
})

test('C-10 calls an absent and an empty signature header missing', () => {
  const missing = { ok: false, reason: 'missing_signature' }

  expect(check('stripe', {}, { secrets: ['whsec_test_A'] })).toEqual(missing)
  expect(stripe('')).toEqual(missing)
  expect(github('')).toEqual(missing)
  expect(github([])).toEqual(missing)
  expect(generic('')).toEqual(missing)
  expect(standard('')).toEqual(missing)
})

test('C-11 refuses signatures of the wrong length a thousand times', () => {
  const digits = GENERIC.repeat(10)
  const bare = ['abc', digits.slice(0, 63), digits.slice(0, 65), digits.slice(0, 640)]

  for (let round = 0; round < 200; round++) {
    for (const signature of bare) {
      expect(github(`sha256=${signature}`).ok).toBe(false)
      expect(generic(signature).ok).toBe(false)
      expect(check('inboxili', { 'x-inboxili-signature': signature }, { secrets: ['secret_test'] }).ok).toBe(false)
    }
    expect(github('sha256=').ok).toBe(false)
    expect(github(GITHUB.slice('sha256='.length)).ok).toBe(false)
    expect(github(GITHUB.toUpperCase()).ok).toBe(false)
  }
})

test('C-12 reads the Standard Webhooks list by its version tags', () => {
  expect(standard(`v1,AAAA v1a,zzz ${STANDARD_V1} v2,x`).ok).toBe(true)
  expect(standard('v1,AAAA v1a,zzz v2,x')).toEqual({ ok: false, reason: 'missing_signature' })
  expect(standard(STANDARD_V1.slice(3))).toEqual({ ok: false, reason: 'missing_signature' })
})

test('C-13 never takes a blank secret for a key', () => {
  const emptyKey = 'c0f553f4904ad1608ffc1cac2f21ff80e3ab5d8232d318e135c52ad82c72b4d3'

  expect(generic(emptyKey, { secrets: ['', '   '] })).toEqual({ ok: false, reason: 'no_matching_key' })
  expect(generic(emptyKey, { secrets: [] })).toEqual({ ok: false, reason: 'no_matching_key' })
  const { scheme } = createProvider('standard-webhooks')
  expect(['whsec_', 'whsec_A', 'whsec_!', 'whpk_AAAA', 'plain', ''].filter((secret) => isUsableSecret(scheme, secret))).toEqual(
    [],
  )
  expect(isUsableSecret(scheme, STANDARD_SECRET)).toBe(true)
})

test('C-14 uses the whole whsec_ text for Stripe and its decoded bytes for Standard Webhooks', () => {
  expect(stripe(`t=1700000000,v1=${STRIPE_A}`)).toEqual({ ok: true, secretIndex: 0, signedAt: 1_700_000_000 })
  expect(standard(STANDARD_V1)).toEqual({ ok: true, secretIndex: 0, signedAt: 1_700_000_000 })
  expect(standard('v1,Z5ROASq7ybdSMtBVMXCtu+D7JYIvFeHJsheJkPaQnew=')).toEqual({ ok: false, reason: 'signature_mismatch' })
})

test('C-15 tells which of the configured secrets signed', () => {
  const secrets = ['whsec_test_A', 'whsec_test_B']

  expect(stripe(`t=1700000000,v1=${STRIPE_A}`, { secrets })).toEqual({ ok: true, secretIndex: 0, signedAt: 1_700_000_000 })
  expect(stripe(`t=1700000000,v1=${STRIPE_B}`, { secrets })).toEqual({ ok: true, secretIndex: 1, signedAt: 1_700_000_000 })
  expect(stripe(`t=1700000000,v1=${STRIPE_A}`, { secrets: ['whsec_test_B'] })).toEqual({
    ok: false,
    reason: 'signature_mismatch',
  })
})

test('C-16 refuses a signed time outside of the tolerance, both ends included', () => {
  const at = (now: number) => [stripe(`t=1700000000,v1=${STRIPE_A}`, { now }), standard(STANDARD_V1, { now })]

  expect(at(NOW + 300).map(({ ok }) => ok)).toEqual([true, true])
  expect(at(NOW - 300).map(({ ok }) => ok)).toEqual([true, true])
  expect(at(NOW + 301)).toEqual([
    { ok: false, reason: 'timestamp_too_old', signedAt: NOW },
    { ok: false, reason: 'timestamp_too_old', signedAt: NOW },
  ])
  expect(at(NOW - 301)).toEqual([
    { ok: false, reason: 'timestamp_too_new', signedAt: NOW },
    { ok: false, reason: 'timestamp_too_new', signedAt: NOW },
  ])
  expect(stripe(`t=1700000000,v1=${STRIPE_B}`, { now: NOW + 301 })).toEqual({ ok: false, reason: 'signature_mismatch' })
})

test.each(['abc', '', '1700000000abc', '1e99', '-1', '0x65', ' 1700000000', 'Infinity', '1700000000000'])(
  'C-17 refuses the timestamp "%s" although it is signed',
  (timestamp) => {
    const digest = createHmac('sha256', 'whsec_test_A').update(`${timestamp}.`).update(BODY_H).digest('hex')
    const key = Buffer.from(STANDARD_SECRET.slice(6), 'base64')
    const standardDigest = createHmac('sha256', key).update(`msg_1.${timestamp}.`).update(BODY_H).digest('base64')

    expect(stripe(`t=${timestamp},v1=${digest}`)).toEqual({ ok: false, reason: 'malformed_signature' })
    expect(standard(`v1,${standardDigest}`, { timestamp })).toEqual({ ok: false, reason: 'malformed_signature' })
  },
)

test('C-17 lets no broken tolerance or clock switch the time check off', () => {
  const header = `t=1700000000,v1=${STRIPE_A}`

  expect(stripe(header, { tolerance: Number.NaN }).ok).toBe(false)
  expect(stripe(header, { tolerance: -1 }).ok).toBe(false)
  expect(stripe(header, { now: Number.NaN }).ok).toBe(false)
})

test('refuses a header that comes twice, the signature, the time or the ID', () => {
  const header = `t=1700000000,v1=${STRIPE_A}`
  const once = { 'webhook-id': 'msg_1', 'webhook-timestamp': '1700000000', 'webhook-signature': STANDARD_V1 }
  const refused = { ok: false, reason: 'malformed_signature' }

  expect(stripe([header, header])).toEqual(refused)
  expect(github([GITHUB, GITHUB])).toEqual(refused)
  expect(check('standard-webhooks', once, { secrets: [STANDARD_SECRET] }).ok).toBe(true)
  for (const [name, value] of Object.entries(once)) {
    expect(check('standard-webhooks', { ...once, [name]: [value, value] }, { secrets: [STANDARD_SECRET] })).toEqual(refused)
    expect(check('standard-webhooks', { ...once, [name]: [] }, { secrets: [STANDARD_SECRET] }).ok).toBe(false)
  }
})

test('refuses base64 whose unused last bits were changed', () => {
  // "ZA=" and "ZB=" decode to the same bytes.
  expect(standard(STANDARD_V1.replace(/ZA=$/, 'ZB='))).toEqual({ ok: false, reason: 'signature_mismatch' })
})

test('keeps a public key out of the HMAC and a secret out of ed25519', () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const raw = Buffer.from(publicKey.export({ format: 'jwk' }).x ?? '', 'base64url')
  const whpk = `whpk_${raw.toString('base64')}`
  const head = Buffer.from('msg_1.1700000000.')
  const genuine = `v1a,${signAsymmetric(null, Buffer.concat([head, BODY_H]), privateKey).toString('base64')}`
  const forged = `v1,${createHmac('sha256', raw).update(head).update(BODY_H).digest('base64')}`

  expect(standard(genuine, { secrets: [STANDARD_SECRET, whpk] })).toEqual({ ok: true, secretIndex: 1, signedAt: NOW })
  expect(standard(genuine, { secrets: [STANDARD_SECRET] })).toEqual({ ok: false, reason: 'no_matching_key' })
  // 64 bytes leave four unused bits in base64: the last digit is one of A, Q, g, w.
  const altered = genuine.replace(/.==$/, (end) => `${String.fromCharCode(end.charCodeAt(0) + 1)}==`)
  expect(Buffer.from(altered.slice(4), 'base64')).toEqual(Buffer.from(genuine.slice(4), 'base64'))
  expect(standard(altered, { secrets: [whpk] })).toEqual({ ok: false, reason: 'signature_mismatch' })
  expect(standard(forged, { secrets: [whpk] })).toEqual({ ok: false, reason: 'no_matching_key' })
  expect(standard(forged, { secrets: [whpk, STANDARD_SECRET] })).toEqual({ ok: false, reason: 'signature_mismatch' })
  expect(standard(genuine, { secrets: [whpk], body: Buffer.from('{}') })).toEqual({ ok: false, reason: 'signature_mismatch' })
  const { scheme } = createProvider('standard-webhooks')
  expect('isUnsigned' in scheme || scheme.signatures.map((kind) => sign(kind, whpk, [head, BODY_H]))).toEqual([
    undefined,
    undefined,
  ])
})

test('Svix takes its own headers before the unbranded ones and never mixes a forged ID in', () => {
  const attempt = { secrets: [STANDARD_SECRET] }
  const unbranded = { 'webhook-id': 'msg_1', 'webhook-timestamp': '1700000000', 'webhook-signature': STANDARD_V1 }
  const branded = { 'svix-id': 'msg_1', 'svix-timestamp': '1700000000', 'svix-signature': STANDARD_V1 }

  expect(check('svix', unbranded, attempt).ok).toBe(true)
  expect(check('svix', branded, attempt).ok).toBe(true)
  expect(check('svix', { ...branded, 'webhook-id': 'forged' }, attempt).ok).toBe(true)
  expect(check('svix', { ...unbranded, 'svix-id': 'forged' }, attempt)).toEqual({ ok: false, reason: 'signature_mismatch' })
  expect(check('standard-webhooks', branded, attempt).ok).toBe(false)
})

test('a Standard Webhooks ID has no dot, space or letter beyond ASCII, even a signed one', () => {
  const key = Buffer.from(STANDARD_SECRET.slice(6), 'base64')
  const signed = (id: string) => {
    const digest = createHmac('sha256', key).update(`${id}.1700000000.`).update(BODY_H).digest('base64')
    return standard(`v1,${digest}`, { id })
  }

  expect(signed('msg_1').ok).toBe(true)
  expect(['msg.1', 'msg 1', 'msg_é', ''].map(signed)).toEqual(Array(4).fill({ ok: false, reason: 'malformed_signature' }))
})

test.each([
  ['nothing', ''],
  ['a blank', ' \n'],
  ['characters that nobody sees', '\u200b\u200d\ufeff'],
  ['one of them', 'secret\u200b_test'],
  ['a mark of direction', '\u202esecret_test'],
  ['a variable that isn’t set', 'undefined'],
  ['a null', ' null '],
  ['a public key', '-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----'],
  ['a key behind a line break', '\n-----BEGIN RSA PUBLIC KEY-----\nAAAA'],
])('%s is no secret: nothing signed with it is taken', (_name, secret) => {
  const { scheme } = createProvider('generic', GENERIC_OPTIONS)

  expect(isUsableSecret(scheme, secret)).toBe(false)
  if (secret !== '') {
    const digest = createHmac('sha256', secret).update(BODY_H).digest('hex')
    expect(generic(digest, { secrets: [secret] })).toEqual({ ok: false, reason: 'no_matching_key' })
  }
})

test.each(['secret_test', 'undefined-1', 'nullify', 'pass wörd', '🔑', 'a\nb', 'BEGIN'])('%j is a secret', (secret) => {
  expect(isUsableSecret(createProvider('generic', GENERIC_OPTIONS).scheme, secret)).toBe(true)
})

test.each([
  ['user:password', true],
  ['user:pass:word', true],
  ['user: pass', true],
  ['user:', false],
  ['user: ', false],
  [':password', false],
  [' :password', false],
  ['user', false],
  ['undefined:undefined', false],
  ['user:undefined', false],
  ['null:password', false],
  ['user:\u200b', false],
])('of HTTP Basic %j is a user and a password: %s', (secret, isUsable) => {
  expect(isUsableSecret(createProvider('chargebee').scheme, secret)).toBe(isUsable)
})

test.each([
  ['klarna', 'kid:key', true],
  ['klarna', 'kid:', false],
  ['klarna', 'kid: ', false],
  ['klarna', 'kid:undefined', false],
  ['klarna', 'undefined', false],
  ['braintree', 'public: ', false],
  ['paypal', '9XL90610J3647323C', true],
  ['paypal', 'undefined', false],
  ['paypal', ' ', false],
])('of %s %j is a key: %s', (provider, secret, isUsable) => {
  expect(isUsableSecret(createProvider(provider).scheme, secret)).toBe(isUsable)
})

test.each(['authorization', 'Cookie', 'Proxy-Authorization', 'x-signature', 'X-SIGNATURE'])(
  'a generic source stores no credential: neither ID nor type stand in %s',
  (header) => {
    for (const part of ['id', 'type'])
      expect(() => createProvider('generic', { ...GENERIC_OPTIONS, [part]: { header } })).toThrow(/must not be a header/)
    expect(createProvider('generic', { ...GENERIC_OPTIONS, id: { header: 'X-Event-Id' } }).factHeaders).toEqual(['x-event-id'])
  },
)

test('a generic source signs its time when it has one, and its options are checked', () => {
  const options = { ...GENERIC_OPTIONS, prefix: 'v0=', timestampHeader: 'X-Time', signed: 'v0:{timestamp}:{body}' }
  const digest = createHmac('sha256', 'secret_test').update('v0:1700000000:').update(BODY_H).digest('hex')
  const headers = { 'x-signature': `v0=${digest}`, 'x-time': '1700000000' }
  const attempt = { secrets: ['secret_test'], options }

  expect(check('generic', headers, attempt)).toEqual({ ok: true, secretIndex: 0, signedAt: NOW })
  expect(check('generic', headers, { ...attempt, now: NOW + 301 })).toEqual({
    ok: false,
    reason: 'timestamp_too_old',
    signedAt: NOW,
  })
  expect(check('generic', { ...headers, 'x-signature': digest }, attempt)).toEqual({ ok: false, reason: 'malformed_signature' })
  for (const wrong of [
    { signed: '{body}' },
    { signed: '{timestamp}' },
    { signed: '{timestamp}{body}{body}' },
    { signed: '{url}{body}' },
    { extra: 1 },
  ]) {
    expect(() => createProvider('generic', { ...options, ...wrong })).toThrow(/options of provider "generic"/)
  }
  expect(() => createProvider('generic', { ...GENERIC_OPTIONS, signed: '{timestamp}.{body}' })).toThrow(/timestampHeader/)
  expect(() => createProvider('stripe', { secret: 'x' })).toThrow(/options of provider "stripe"/)
  expect(() => createProvider('strip')).toThrow('unknown provider "strip"; known are ')
})

test.each([
  ['sha1', 'hex'],
  ['sha1', 'base64'],
  ['sha256', 'hex'],
  ['sha256', 'base64'],
  ['sha512', 'hex'],
  ['sha512', 'base64'],
] as const)('a generic source reads %s in %s behind a prefix of signs', (algorithm, encoding) => {
  const options = { ...GENERIC_OPTIONS, algorithm, encoding, prefix: 'a.b+(c)$-' }
  const digest = createHmac(algorithm, 'secret_test').update(BODY_H).digest(encoding)
  const attempt = { secrets: ['secret_test'], options }

  expect(check('generic', { 'x-signature': `a.b+(c)$-${digest}` }, attempt)).toEqual(PASSED)
  expect(check('generic', { 'x-signature': `aXb+(c)$-${digest}` }, attempt).ok).toBe(false)
})

test('a header of many signatures is refused before it costs many checks', () => {
  const junk = Array.from({ length: 17 }, (_, i) => `v1=${i.toString(16).padStart(64, '0')}`)

  expect(stripe(`t=1700000000,${junk}`)).toEqual({ ok: false, reason: 'malformed_signature' })
})

test('any flipped byte of body, signature, ID or time is refused', () => {
  const flip = (bytes: Buffer, at: number, bits: number) => {
    const copy = Buffer.from(bytes)
    copy[at % copy.length] = (copy[at % copy.length] ?? 0) ^ bits
    return copy
  }
  const flipText = (text: string, at: number, bits: number) => flip(Buffer.from(text, 'latin1'), at, bits).toString('latin1')
  const position = fc.record({ at: fc.nat(10_000), bits: fc.integer({ min: 1, max: 255 }) })

  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 300 }), position, (bytes, { at, bits }) => {
      const body = Buffer.from(bytes)
      const digest = createHmac('sha256', 'whsec_test_A').update('1700000000.').update(body).digest('hex')
      const key = Buffer.from(STANDARD_SECRET.slice(6), 'base64')
      const signature = createHmac('sha256', key).update('msg_1.1700000000.').update(body).digest('base64')

      expect(stripe(`t=1700000000,v1=${digest}`, { body }).ok).toBe(true)
      expect(stripe(`t=1700000000,v1=${digest}`, { body: flip(body, at, bits) }).ok).toBe(false)
      expect(stripe(`t=1700000000,v1=${flipText(digest, at, bits)}`, { body }).ok).toBe(false)
      expect(stripe(`t=${flipText('1700000000', at, bits)},v1=${digest}`, { body }).ok).toBe(false)
      expect(standard(`v1,${signature}`, { body }).ok).toBe(true)
      expect(standard(`v1,${signature}`, { body: flip(body, at, bits) }).ok).toBe(false)
      expect(standard(`v1,${flipText(signature, at, bits)}`, { body }).ok).toBe(false)
      expect(standard(`v1,${signature}`, { body, id: flipText('msg_1', at, bits) }).ok).toBe(false)
      expect(standard(`v1,${signature}`, { body, timestamp: flipText('1700000000', at, bits) }).ok).toBe(false)
    }),
  )
})

test('any configured secret is accepted in any place of the list, and no other', () => {
  const secret = fc.string({ minLength: 1, maxLength: 40 }).filter((text) => text.trim() !== '')

  fc.assert(
    fc.property(
      fc.uniqueArray(secret, { minLength: 2, maxLength: 6 }),
      fc.nat(5),
      fc.uint8Array({ maxLength: 100 }),
      (all, pick, bytes) => {
        const body = Buffer.from(bytes)
        const index = pick % all.length
        const signature = `sha256=${createHmac('sha256', all[index] ?? '')
          .update(body)
          .digest('hex')}`

        expect(github(signature, { body, secrets: all })).toEqual({ ok: true, secretIndex: index })
        expect(github(signature, { body, secrets: all.filter((_, i) => i !== index) })).toEqual({
          ok: false,
          reason: 'signature_mismatch',
        })
      },
    ),
  )
})

test('no header whatever makes it throw', () => {
  fc.assert(
    fc.property(
      fc.string({ maxLength: 200, unit: 'binary' }),
      fc.constantFrom('stripe', 'github', 'svix', 'inboxili', 'gocardless'),
      (text, name) => {
        const names = [
          'stripe-signature',
          'x-hub-signature-256',
          'svix-signature',
          'svix-id',
          'svix-timestamp',
          'x-inboxili-signature',
          'webhook-signature',
        ]

        expect(
          check(name, Object.fromEntries(names.map((each) => [each, text])), { secrets: ['secret', STANDARD_SECRET] }).ok,
        ).toBe(false)
      },
    ),
  )
})

test('agrees with the libraries of Stripe, Svix, Standard Webhooks and GitHub over random bodies', async () => {
  const client = new Stripe('sk_test_unused')
  const nowSeconds = Math.floor(Date.now() / 1000)
  const stamp = String(nowSeconds)
  const at = { now: nowSeconds }

  await fc.assert(
    fc.asyncProperty(fc.dictionary(fc.string(), fc.jsonValue()), fc.boolean(), async (value, isTampered) => {
      const text = JSON.stringify(value)
      const sent = isTampered ? `${text} ` : text
      const body = Buffer.from(sent)

      const stripeHeader = client.webhooks.generateTestHeaderString({
        payload: text,
        secret: 'whsec_test_A',
        timestamp: nowSeconds,
      })
      const stripeSays = answers(() => client.webhooks.signature?.verifyHeader(sent, stripeHeader, 'whsec_test_A', 300))
      expect(stripe(stripeHeader, { ...at, body }).ok).toBe(stripeSays)
      expect(stripeSays).toBe(!isTampered)

      const headers = { 'webhook-id': 'msg_1', 'webhook-timestamp': stamp, 'webhook-signature': '' }
      headers['webhook-signature'] = new Webhook(STANDARD_SECRET).sign('msg_1', new Date(nowSeconds * 1000), text)
      const standardSays = answers(() => new Webhook(STANDARD_SECRET).verify(sent, headers))
      expect(check('standard-webhooks', headers, { ...at, body, secrets: [STANDARD_SECRET] }).ok).toBe(standardSays)
      expect(standardSays).toBe(!isTampered)

      const svixSignature = new SvixWebhook(STANDARD_SECRET).sign('msg_1', new Date(nowSeconds * 1000), text)
      const svixHeaders = { 'svix-id': 'msg_1', 'svix-timestamp': stamp, 'svix-signature': svixSignature }
      const svixSays = answers(() => new SvixWebhook(STANDARD_SECRET).verify(sent, svixHeaders))
      expect(check('svix', svixHeaders, { ...at, body, secrets: [STANDARD_SECRET] }).ok).toBe(svixSays)

      const ours = `sha256=${sign(githubKind, 'gh_test', [text])}`
      expect(await octokitVerify('gh_test', sent, ours)).toBe(github(ours, { body }).ok)
    }),
    { numRuns: 60 },
  )
})

const githubKind = { kind: 'hmac', algorithm: 'sha256', encoding: 'hex', secret: { form: 'text' } } as const

function answers(call: () => unknown): boolean {
  try {
    return call() !== false
  } catch {
    return false
  }
}
