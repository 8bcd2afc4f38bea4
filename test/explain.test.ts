import { createHash, createHmac, createSign, generateKeyPairSync, type KeyObject, sign as signAsymmetric } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Cause, EXPLANATIONS, type ExplainedSource, type Explanation, explainRefusal } from '../src/providers/explain.ts'
import type { Provider } from '../src/providers/provider.ts'
import { createProvider, providers } from '../src/providers/registry.ts'
import { verify } from '../src/providers/signature.ts'

const NOW = 1_700_000_000
const BODY_H = String.raw`{"id":"evt_1","type":"invoice.paid","note":"Zoë 😀 \u00e9 a\/b","amount":10.00,"big":9007199254740993}`
const STRIPE_A = '4bdd2158024e751bf5cd48f924c216930ccae5dbb8e8afc58e70a62a478977e7'
const GENERIC_OPTIONS = { header: 'X-Signature', algorithm: 'sha256', encoding: 'hex', id: 'id', type: 'type' }

type Bytes = string | Buffer
type Headers = Record<string, string | string[]>

interface Case {
  provider: string
  options?: Record<string, unknown>
  secrets?: string[]
  headers?: Headers
  body?: Bytes
  query?: string
  url?: string
  name?: string
  mode?: 'live' | 'test'
  now?: number
  sources?: ExplainedSource[]
  keys?: Record<string, KeyObject | undefined>
}

function source(provider: string, secrets: string[], more: Partial<ExplainedSource> = {}): ExplainedSource {
  const { name = provider, mode = 'live', options = {} } = more
  const created = createProvider(provider, options)
  return { name, provider: created, options, secrets, mode, toleranceSeconds: created.toleranceSeconds }
}

/** What is said of a request; undefined when it isn't refused. */
function explain({ provider, secrets = [], headers = {}, body = BODY_H, query = '', now = NOW, keys = {}, ...more }: Case) {
  const { name = 'shop', options = {}, mode = 'live', sources = [], url } = more
  const own = source(provider, secrets, { name, options, mode })
  const request = {
    headers: Object.fromEntries(Object.entries(headers).map(([header, value]) => [header, [value].flat()])),
    body: Buffer.from(body as string),
    query,
  }
  const ring = () => (key: string) => (Object.hasOwn(keys, key) ? keys[key] : 'unknown')
  const verdict = verify(own.provider.scheme, request, secrets, now, own.toleranceSeconds, ring())
  if (verdict.ok) return undefined
  const { reason } = verdict
  const explanation = explainRefusal({ source: own, request, reason, nowSeconds: now, sources, ring, ...(url && { url }) })
  reached.add(explanation.cause)
  return explanation
}

const reached = new Set<Cause>()

const said = (cause: Cause, detail?: string): Explanation => ({
  cause,
  explanation: EXPLANATIONS[cause],
  ...(detail !== undefined && { detail }),
})
const hmac = (secret: Bytes, text: Bytes, encoding: 'hex' | 'base64' = 'hex', algorithm = 'sha256') =>
  createHmac(algorithm, secret).update(text).digest(encoding)
/** A request to a GitHub source whose signature was made over other bytes. */
const github = (signed: Bytes, body: Bytes): Case => ({
  provider: 'github',
  secrets: ['gh_test'],
  headers: { 'x-hub-signature-256': `sha256=${hmac('gh_test', signed)}` },
  body,
})
const generic = (signature: string, more: Partial<Case> = {}): Case => ({
  provider: 'generic',
  options: GENERIC_OPTIONS,
  secrets: ['secret_test'],
  headers: { 'x-signature': signature },
  ...more,
})
const stripe = (header: string | string[], more: Partial<Case> = {}): Case => ({
  provider: 'stripe',
  secrets: ['whsec_test_A'],
  headers: { 'stripe-signature': header },
  ...more,
})
const basic = (credential: string): Headers => ({ authorization: `Basic ${Buffer.from(credential).toString('base64')}` })

// --- The signature ---------------------------------------------------------------------------------------------------

test('nothing is said of a right request', () => {
  expect(explain(stripe(`t=1700000000,v1=${STRIPE_A}`))).toBeUndefined()
  expect(explain(github(BODY_H, BODY_H))).toBeUndefined()
})

test('C-10 says which header is missing, empty or doubled', () => {
  const header = `t=1700000000,v1=${STRIPE_A}`
  const svix = { 'svix-signature': `v1,${hmac('x', 'y', 'base64')}`, 'svix-timestamp': '1700000000' }

  expect(explain(stripe([]))).toEqual(said('missing_signature', 'The header stripe-signature is missing.'))
  expect(explain(stripe(''))).toEqual(said('missing_signature', 'The header stripe-signature is empty.'))
  expect(explain(stripe([header, header]))).toEqual(
    said('malformed_signature', 'The header stripe-signature comes more than once.'),
  )
  expect(explain(stripe('t=1700000000,v0=aa'))).toEqual(said('missing_signature'))
  expect(explain({ provider: 'svix', secrets: ['whsec_AAAA'], headers: svix })).toEqual(
    said('malformed_signature', 'The header svix-id or webhook-id is missing.'),
  )
  expect(explain({ provider: 'github', secrets: ['x'], headers: { 'x-hub-signature-256': 'abc' } })).toEqual(
    said('malformed_signature'),
  )
  expect(explain({ provider: 'mailgun', secrets: ['x'], body: '{}' })?.detail).toMatch(/^It is looked for in .*\.$/)
})

test('a request of another provider is recognised by its header or its body, and names the source it fits', () => {
  const to = (provider: string, headers: Headers, more: Partial<Case> = {}) =>
    explain({ provider, secrets: ['gh_test'], headers, ...more })
  const hub = { 'x-hub-signature-256': `sha256=${hmac('gh_test', BODY_H)}` }
  const adyen = {
    notificationItems: [{ NotificationRequestItem: { additionalData: { hmacSignature: hmac('a', 'b', 'base64') } } }],
  }
  const ours = source('github', ['gh_test'], { name: 'code' })

  expect(to('stripe', hub)).toEqual(said('other_provider_header', 'It is signed as GitHub would sign.'))
  expect(to('stripe', { 'x-hub-signature-256': 'unreadable' })).toMatchObject({ cause: 'other_provider_header' })
  expect(to('stripe', hub, { sources: [ours] })).toEqual(said('other_provider_header', 'It fits source "code".'))
  expect(to('stripe', {}, { body: JSON.stringify(adyen) })?.detail).toBe('It is signed as Adyen would sign.')
  expect(to('standard-webhooks', { 'webhook-signature': hmac('gc', BODY_H) })?.detail).toBe(
    'It is signed as GoCardless would sign.',
  )
  expect(
    to('gocardless', { 'webhook-signature': `v1,${hmac('k', 'x', 'base64')}`, 'webhook-id': 'm', 'webhook-timestamp': '1' })
      ?.detail,
  ).toBe('It is signed as Resend or Standard Webhooks or Svix would sign.')
})

test('a header of ours that holds nothing known is not another provider’s', () => {
  const headers = { 'svix-id': 'm', 'svix-timestamp': '1700000000', 'svix-signature': 'v9,AAAA' }

  expect(explain({ provider: 'svix', secrets: ['whsec_AAAA'], headers })).toEqual(said('missing_signature'))
  expect(
    explain({
      provider: 'twilio',
      options: { publicUrl: 'https://example.com' },
      secrets: ['x'],
      headers: { 'x-twilio-signature': 'abc', 'x-hub-signature-256': 'abc' },
    }),
  ).toEqual(said('malformed_signature', 'It is looked for in header x-twilio-signature.'))
})

test('a user and a password, or a header of nobody, is no other provider', () => {
  const nothing = said('missing_signature', 'The header stripe-signature is missing.')

  expect(explain({ provider: 'stripe', secrets: ['x'], headers: basic('proxy:password') })).toEqual(nothing)
  expect(explain({ provider: 'stripe', secrets: ['x'], headers: { 'x-hub-signature-256': ' ', 'x-other': 'y' } })).toEqual(
    nothing,
  )
  for (const body of ['{}', 'a=b&c=d', '[{"event":"x"}]', '<xml/>', '', '42'])
    expect(explain({ provider: 'stripe', secrets: ['x'], body }), body).toEqual(nothing)
})

describe('every good vector that is posted to a source of another provider', () => {
  const folder = new URL('./vectors/', import.meta.url)
  const files = readdirSync(folder)
    .filter((file) => file.endsWith('.json'))
    .map((file) => JSON.parse(readFileSync(new URL(file, folder), 'utf8')))
  // Of these the password is all there is, or only a source that is configured could tell.
  const untold = ['chargebee', 'postmark', 'aws-sns', 'generic']

  test.each(files.map(({ provider, vectors }) => [provider as string, vectors] as const))('%s', (name, vectors) => {
    const target = { provider: 'generic', options: { ...GENERIC_OPTIONS, header: 'x-nobody' }, secrets: ['x'] }
    const good = vectors.filter(
      ({ method, config, expect: { verified } }: Vector) =>
        method === 'POST' && verified && config.scheme !== 'platform' && config.version === undefined,
    )
    const explained = good.map(({ headers, body_base64, url }: Vector) =>
      explain({
        ...target,
        headers: Object.fromEntries(Object.entries(headers).map(([header, value]) => [header.toLowerCase(), value])),
        body: Buffer.from(body_base64, 'base64'),
        query: url.split('?')[1] ?? '',
      }),
    )

    expect(good.length).toBeGreaterThan(0)
    for (const each of explained) {
      expect(each?.cause).toBe(untold.includes(name) ? 'missing_signature' : 'other_provider_header')
      if (!untold.includes(name)) expect(each?.detail).toContain(providers.get(name)?.title)
    }
  })
})

interface Vector {
  method: string
  config: Record<string, unknown>
  url: string
  headers: Record<string, string>
  body_base64: string
  expect: { verified: boolean }
}

// --- The body --------------------------------------------------------------------------------------------------------

const PRETTY = '{\n  "id": "evt_1",\n  "amount": 10.00,\n  "tags": [\n    "a/b",\n    "Zoë <&>"\n  ],\n  "empty": {}\n}'
const COMPACT = '{"id":"evt_1","amount":10.00,"tags":["a/b","Zoë <&>"],"empty":{}}'
const PYTHON = '{"id": "evt_1", "amount": 10.00, "tags": ["a/b", "Zo\\u00eb <&>"], "empty": {}}'
const PHP = '{"id":"evt_1","amount":10.00,"tags":["a\\/b","Zo\\u00eb <&>"],"empty":{}}'
const FOUR = PRETTY.replace(/^ +/gm, (blanks) => blanks + blanks)
const GO = '{"id":"evt_1","amount":10.00,"tags":["a/b","Zoë \\u003c\\u0026\\u003e"],"empty":{}}'

test.each([
  ['printed with an indent of 2 spaces', PRETTY, COMPACT],
  ['printed without white space', COMPACT, PRETTY],
  ['printed with a space after each comma and colon and letters beyond ASCII as escapes', PYTHON, COMPACT],
  ['printed with a space after each comma and colon', PYTHON.replace('\\u00eb', 'ë'), PRETTY],
  ['printed without white space and letters beyond ASCII and slashes as escapes', PHP, PRETTY],
  ['printed with an indent of 4 spaces', FOUR, PYTHON],
  ['printed with an indent of tabs', PRETTY.replaceAll('  ', '\t'), COMPACT],
  ['printed without white space and <, > and & as escapes', GO, PRETTY],
  ['printed with an indent of 2 spaces and slashes as escapes', PRETTY.replace('a/b', 'a\\/b'), COMPACT],
  ['printed without white space, its numbers as JavaScript writes them', COMPACT.replace('10.00', '10'), PRETTY],
])('C-01 a body that was read and written anew is recognised: %s', (words, signed, received) => {
  expect(explain(github(signed, received))).toEqual(said('body_reserialized', `It fits the body ${words}.`))
})

test('C-01 C-03 C-04 the reference signatures over other forms of body H are explained', () => {
  const bom = '3aa775f8a4441715db7e92fbb661bbf292482eb5e17dca711f827f04777afafe'
  const plain = '56e8271033125c6fb0ebbac2ccede0f9d6b79c9c07def3a2935fb6d76ffd9133'

  expect(explain(generic('1bc875899053152b0cc7df0ecc168e3c8053f1cc230a02f16fa6c5497d2224c2'))).toMatchObject({
    cause: 'body_reserialized',
  })
  expect(explain(generic('d731ec26a489447ad28ab6896ee891730193602bf35752ba14becf61454f4042'))).toEqual(
    said('body_charset', 'It fits the body in Latin-1 instead of UTF-8.'),
  )
  expect(explain(generic(bom))).toEqual(said('body_charset', 'It fits the body with a byte order mark.'))
  expect(explain(generic(plain, { body: `\ufeff${BODY_H}` }))).toEqual(
    said('body_charset', 'It fits the body without the byte order mark.'),
  )
})

test.each([
  ['with a line break (LF) at its end', '{"a":1}\n', '{"a":1}'],
  ['with a line break (CR LF) at its end', '{"a":1}\r\n', '{"a":1}'],
  ['without the line break at its end', '{"a":1}', '{"a":1}\r\n'],
  ['without white space at its ends', '{"a":1}', '{"a":1} '],
  ['with LF for its line breaks', '{\n"a":1\n}', '{\r\n"a":1\r\n}'],
  ['with CR LF for its line breaks', '[\r\n{"a":1}\r\n]\r\n', '[\n{"a":1}\n]\n'],
])('a body with other line breaks is recognised: %s', (words, signed, received) => {
  expect(explain(github(signed, received))).toEqual(said('body_newline', `It fits the body ${words}.`))
})

test('a body in another character encoding is recognised', () => {
  const latin1 = Buffer.from('{"name":"Zoë"}', 'latin1')
  const utf8 = Buffer.from('{"name":"Zoë €"}')
  // What a proxy makes of UTF-8 that it takes for Windows-1252: Ã«, and â‚¬ for the euro sign.
  const twice = '{"name":"ZoÃ« â‚¬"}'

  expect(explain(github(latin1, '{"name":"Zoë"}'))?.detail).toBe('It fits the body in Latin-1 instead of UTF-8.')
  expect(explain(github('{"name":"Zoë"}', latin1))?.detail).toBe('It fits the body read as Latin-1 and written as UTF-8.')
  expect(explain(github(utf8, twice))?.detail).toBe('It fits the body in Windows-1252 instead of UTF-8.')
  expect(explain(github(twice, utf8))?.detail).toBe('It fits the body read as Windows-1252 and written as UTF-8.')
  expect(explain(github(utf8, twice))?.cause).toBe('body_charset')
})

test('a form that was encoded anew is recognised', () => {
  expect(explain(github('a=b%20c&d=%C3%AB', 'a=b+c&d=%c3%ab'))).toEqual(
    said('body_reserialized', 'It fits the body encoded anew as a form, with %20 for blanks.'),
  )
})

test('the body of an RSA signature, and of a hash in a token, is tried in other forms too', () => {
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const url = 'https://api.paypal.com/v1/notifications/certs/CERT-1'
  const text = `t1|2023-11-14T22:13:20Z|WH-1|${crc32(Buffer.from(PRETTY))}`
  const paypal = {
    'paypal-auth-algo': 'SHA256withRSA',
    'paypal-cert-url': url,
    'paypal-transmission-id': 't1',
    'paypal-transmission-time': '2023-11-14T22:13:20Z',
    'paypal-transmission-sig': createSign('RSA-SHA256').update(text).sign(rsa.privateKey, 'base64'),
  }
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const verification = { 'plaid-verification': jwt(ec.privateKey, { iat: NOW, request_body_sha256: sha256(PRETTY) }) }

  expect(
    explain({ provider: 'paypal', secrets: ['WH-1'], headers: paypal, body: COMPACT, keys: { [url]: rsa.publicKey } }),
  ).toEqual(said('body_reserialized', 'It fits the body printed with an indent of 2 spaces.'))
  expect(
    explain({ provider: 'plaid', secrets: ['a:b'], headers: verification, body: COMPACT, keys: { k1: ec.publicKey } }),
  ).toEqual(said('body_reserialized', 'It fits the body printed with an indent of 2 spaces.'))
  expect(explain({ provider: 'plaid', secrets: ['a:b'], headers: verification, body: '{}', keys: { k1: ec.publicKey } })).toEqual(
    said('body_hash_mismatch'),
  )
})

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
function jwt(key: KeyObject, claims: object, alg = 'ES256'): string {
  const text = `${part({ alg, kid: 'k1', typ: 'JWT' })}.${part(claims)}`
  return `${text}.${signAsymmetric('sha256', Buffer.from(text), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`
}

// --- The secret ------------------------------------------------------------------------------------------------------

test('C-14 C-22 a secret that is taken as other bytes is recognised', () => {
  const standard = (signature: string, secret: string): Case => ({
    provider: 'standard-webhooks',
    secrets: ['whsec_b3RoZXI=', secret],
    headers: { 'webhook-id': 'msg_1', 'webhook-timestamp': '1700000000', 'webhook-signature': signature },
  })
  const bytes = Buffer.from([...Array(32).keys()])
  const real = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
  const item = {
    pspReference: 'PSP0000000000001',
    merchantAccountCode: 'ExampleAccount',
    merchantReference: '14-08-2020-09:53:00',
    amount: { value: 1000, currency: 'EUR' },
    eventCode: 'AUTHORISATION',
    success: 'true',
    additionalData: { hmacSignature: 'i25F7mveB4JoWfckY5rsx6kGL2MZhMT1v7TTqKeXZrQ=' },
  }
  const fits = (words: string, secret = 1) => said('secret_encoding', `It fits secret ${secret} ${words}.`)
  const signed = (key: Bytes) => github(BODY_H, BODY_H) && { 'x-hub-signature-256': `sha256=${hmac(key, BODY_H)}` }
  const hub = (key: Bytes, secret: string) => explain({ provider: 'github', secrets: [secret], headers: signed(key) })

  expect(explain(standard('v1,Z5ROASq7ybdSMtBVMXCtu+D7JYIvFeHJsheJkPaQnew=', real))).toEqual(fits('read as plain text', 2))
  expect(
    explain({
      provider: 'adyen',
      secrets: [bytes.toString('hex')],
      body: JSON.stringify({ live: 'false', notificationItems: [{ NotificationRequestItem: item }] }),
    }),
  ).toEqual(fits('read as plain text'))
  expect(explain(stripe(`t=1700000000,v1=${STRIPE_A}`, { secrets: ['test_A'] }))).toEqual(fits('with the prefix whsec_'))
  expect(explain(stripe(`t=1700000000,v1=${STRIPE_A}`, { secrets: ['"whsec_test_A"'] }))).toEqual(
    fits('without the blanks or quotes around it'),
  )
  expect(explain(stripe(`t=1700000000,v1=${STRIPE_A}`, { secrets: ['whsec_test_A\n'] }))?.cause).toBe('secret_encoding')
  expect(hub(bytes, bytes.toString('hex'))).toEqual(fits('decoded from hex'))
  expect(hub(bytes, bytes.toString('base64'))).toEqual(fits('decoded from base64'))
  expect(hub(bytes, real)).toEqual(fits('without its prefix, decoded from base64'))
  expect(hub('test_A', 'gh_test_A')).toEqual(fits('without its prefix'))
})

test('a secret that stands behind its key’s ID is taken as other bytes too', () => {
  const key = Buffer.from('00ff00ff00ff00ff', 'hex')
  const headers = { 'klarna-signature': hmac(key, BODY_H), 'klarna-signing-key-id': 'k1' }

  expect(explain({ provider: 'klarna', secrets: ['k2:other', `k1:${key.toString('hex')}`], headers })).toEqual(
    said('secret_encoding', 'It fits secret 2 decoded from hex.'),
  )
})

test('credentials and public keys are tried as they are often copied wrongly', () => {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString()
  const headers = { 'x-signature-sha256': createSign('RSA-SHA256').update(BODY_H).sign(privateKey, 'base64') }
  const wise = (secret: string) => explain({ provider: 'wise', secrets: [secret], headers })
  const chargebee = (secret: string) => explain({ provider: 'chargebee', secrets: [secret], headers: basic('user:pass:word') })

  expect(wise(pem)).toBeUndefined()
  expect(wise(pem.replaceAll('\n', '\\n'))).toBeUndefined()
  expect(chargebee('user:pass:word')).toBeUndefined()
  expect(chargebee("'user:pass:word'")?.detail).toBe('It fits secret 1 without the blanks or quotes around it.')
  expect(chargebee(Buffer.from('user:pass:word').toString('base64'))?.detail).toBe('It fits secret 1 decoded from base64.')
  expect(chargebee('user:other')).toEqual(said('bad_credentials'))
})

test('a public key is never said to fit as a shared secret, as anybody could have signed with it', () => {
  const { publicKey } = generateKeyPairSync('ed25519')
  const raw = Buffer.from(publicKey.export({ format: 'jwk' }).x ?? '', 'base64url')
  const whpk = `whpk_${raw.toString('base64')}`
  const forged = (key: Bytes) =>
    explain({
      provider: 'standard-webhooks',
      secrets: [whpk, 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='],
      headers: {
        'webhook-id': 'msg_1',
        'webhook-timestamp': '1700000000',
        'webhook-signature': `v1,${hmac(key, `msg_1.1700000000.${BODY_H}`, 'base64')}`,
      },
    })

  expect(forged(raw)).toEqual(said('signature_mismatch'))
  expect(forged(whpk)).toEqual(said('signature_mismatch'))
})

test('the secret of another source, or of the other mode, is recognised', () => {
  const sources = [
    // As the configuration has it by now: what refused is not what fits.
    source('stripe', ['whsec_test_A'], { name: 'shop' }),
    source('stripe', ['whsec_none'], { name: 'eu' }),
    source('mollie', [], { name: 'classic', options: { classic: true } }),
    source('stripe', ['whsec_x', 'whsec_test_A'], { name: 'us' }),
  ]
  const header = `t=1700000000,v1=${STRIPE_A}`
  const more = { secrets: ['whsec_other'], sources }
  const chargebees = [source('chargebee', ['user:word'], { name: 'second' })]

  expect(explain(stripe(header, more))).toEqual(said('other_source_secret', 'It fits source "us".'))
  expect(explain(stripe(header, { ...more, mode: 'test' }))).toEqual(
    said('other_mode_secret', 'It fits source "us", which is of mode live.'),
  )
  expect(explain({ provider: 'chargebee', secrets: ['user:other'], headers: basic('user:word'), sources: chargebees })).toEqual(
    said('other_source_secret', 'It fits source "second".'),
  )
  // However long ago it was captured.
  expect(explain(stripe(header, { ...more, now: NOW + 86_400 }))?.cause).toBe('other_source_secret')
  expect(explain(stripe(header, { secrets: ['whsec_other'] }))).toEqual(said('signature_mismatch'))
})

test('a source of another provider with the same headers is a mix-up of sources', () => {
  const key = Buffer.from('AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=', 'base64')
  const headers = {
    'svix-id': 'msg_1',
    'svix-timestamp': '1700000000',
    'svix-signature': `v1,${hmac(key, `msg_1.1700000000.${BODY_H}`, 'base64')}`,
  }
  const sources = [source('resend', [`whsec_${key.toString('base64')}`], { name: 'mails' })]

  expect(explain({ provider: 'svix', secrets: ['whsec_b3RoZXI='], headers, sources })).toEqual(
    said('other_source_secret', 'It fits source "mails".'),
  )
})

test('another scheme of the same provider is recognised', () => {
  const digest = hmac('hash', BODY_H, 'base64')
  const to = (headers: Headers, options: Record<string, unknown>) =>
    explain({ provider: 'flutterwave', secrets: ['hash'], options, headers })

  expect(to({ 'flutterwave-signature': digest }, { version: 'v3' })).toEqual(
    said('other_provider_header', 'It is signed as Flutterwave, with other options, would sign.'),
  )
  expect(to({}, { version: 'v3' })?.cause).toBe('missing_signature')
})

test('a second credential that is missing is named', () => {
  const headers = { 'cko-signature': hmac('key', BODY_H) }

  expect(explain({ provider: 'checkout', secrets: ['key'], options: { authorization: 'token' }, headers })).toEqual(
    said('missing_signature', 'The header authorization is missing.'),
  )
})

test('a provider that wants options is recognised once it is configured', () => {
  const { vectors } = JSON.parse(readFileSync(new URL('./vectors/aws-sns.json', import.meta.url), 'utf8'))
  const sources = [source('aws-sns', [], { options: { topicArns: ['arn:aws:sns:eu-west-1:123456789012:mine'] } })]
  const body = Buffer.from(vectors[0].body_base64, 'base64')

  expect(explain({ provider: 'stripe', secrets: ['x'], body })?.cause).toBe('missing_signature')
  expect(explain({ provider: 'stripe', secrets: ['x'], body, sources })?.detail).toContain('SNS')
})

test('another source of the provider that looks for the signature elsewhere is named', () => {
  const token = source('flutterwave', ['hash'], { name: 'old', options: { version: 'v3' } })

  expect(explain({ provider: 'flutterwave', secrets: ['x'], headers: { 'verif-hash': 'hash' }, sources: [token] })).toEqual(
    said('other_source_secret', 'It fits source "old".'),
  )
})

// --- The address -----------------------------------------------------------------------------------------------------

test('C-21 says in which form Square’s address fits', () => {
  const square = (signature: string, more: Partial<Case> = {}) =>
    explain({
      provider: 'square',
      options: { notificationUrl: 'https://hooks.example.com/webhooks/square' },
      secrets: ['sq_sig_key'],
      headers: { 'x-square-hmacsha256-signature': signature, host: '10.0.0.5:3000' },
      name: 'square',
      ...more,
    })
  const signed = (url: string) => hmac('sq_sig_key', url + BODY_H, 'base64')
  const fits = (words: string) => said('url_differs', `It fits the address ${words}.`)

  expect(square('bYaqef2d9vG+mEYTWzcqXw0NS31//AM2vEDpdJKJrSE=')).toBeUndefined()
  expect(square('SL403qzhWk+mm40BfpSTr7KVNfBVSDqA3cm3T+61Cwo=')).toEqual(fits('with http instead of https'))
  expect(square('UeBpwVp0GsI8Xx73c1OAjcCw3WyjlLnI7Y5p0UR21Qg=')).toEqual(fits('with a slash at its end'))
  expect(square(signed('https://hooks.example.com:443/webhooks/square'))).toEqual(fits('with the port 443'))
  expect(square(signed('http://10.0.0.5:3000/webhooks/square'))).toEqual(
    fits('with http instead of https, with the host that the request names'),
  )
  expect(square(signed('https://hooks.example.com/webhooks/square?shop=1'), { query: 'shop=1' })).toEqual(
    fits('with the query that the request has'),
  )
  expect(square(signed('https://hooks.example.com/in/square/'), { url: 'http://x/in/square' })).toEqual(
    fits('with the path that the request has, with a slash at its end'),
  )
  const busy = {
    options: { notificationUrl: 'https://hooks.example.com:8443/webhooks/square?x=1' },
    query: 'a=1',
    url: 'http://x/in',
    headers: {
      host: 'b.example.com:2',
      'x-forwarded-host': 'a.example.com:1',
      'x-square-hmacsha256-signature': signed('http://hooks.example.com:8443/webhooks/square?x=1'),
    },
  }
  expect(square('', busy)).toEqual(fits('with http instead of https'))
  const old = { options: { notificationUrl: 'https://hooks.example.com/old' } }
  expect(square(signed('https://hooks.example.com/webhooks/square'), old)).toEqual(fits('with the path that the request has'))
  expect(square(signed('https://elsewhere.example.com/'))).toEqual(said('signature_mismatch'))
})

test('the host behind a proxy is tried, and what Twilio signs with it', () => {
  const fields = 'CallSid=CA1&CallStatus=completed'
  const signature = hmac('token', 'https://hooks.example.com/webhooks/twilioCallSidCA1CallStatuscompleted', 'base64', 'sha1')

  expect(
    explain({
      provider: 'twilio',
      name: 'twilio',
      options: { publicUrl: 'https://old.example.com/webhooks/twilio' },
      secrets: ['token'],
      headers: { 'x-twilio-signature': signature, host: '10.0.0.5', 'x-forwarded-host': 'hooks.example.com, 10.0.0.1' },
      body: fields,
    }),
  ).toEqual(said('url_differs', 'It fits the address with the host that the request names.'))
})

// --- The other reasons -----------------------------------------------------------------------------------------------

test('C-16 says by how much the time is off', () => {
  const header = `t=1700000000,v1=${STRIPE_A}`

  expect(explain(stripe(header, { now: NOW + 301 }))).toEqual(
    said('timestamp_too_old', 'It was signed 301 s ago; 300 s are allowed.'),
  )
  expect(explain(stripe(header, { now: NOW - 3_600 }))).toEqual(
    said('timestamp_too_new', 'It is signed for a time 3600 s ahead; 300 s are allowed.'),
  )
})

test('keys, certificates, topics and algorithms are explained by the verifier’s own reason', () => {
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const claims = { iat: NOW, request_body_sha256: sha256(BODY_H) }
  const plaid = (token: string, keys: Case['keys'] = {}) =>
    explain({ provider: 'plaid', secrets: ['a:b'], headers: { 'plaid-verification': token }, keys })
  const paypal = explain({
    provider: 'paypal',
    secrets: ['WH-1'],
    headers: {
      'paypal-auth-algo': 'SHA256withRSA',
      'paypal-cert-url': 'https://api.paypal.com.example.net/cert',
      'paypal-transmission-id': 't1',
      'paypal-transmission-time': '2023-11-14T22:13:20Z',
      'paypal-transmission-sig': 'AAAA',
    },
  })
  const { vectors } = JSON.parse(readFileSync(new URL('./vectors/aws-sns.json', import.meta.url), 'utf8'))
  const foreign = vectors.find((vector: { expect: { reason?: string } }) => vector.expect.reason === 'unexpected_topic')
  const sns = explain({
    provider: 'aws-sns',
    options: { topicArns: foreign.config.topic_arns },
    body: Buffer.from(foreign.body_base64, 'base64'),
  })

  expect(plaid(jwt(ec.privateKey, claims))).toEqual(said('no_matching_key'))
  expect(plaid(jwt(ec.privateKey, claims), { k1: undefined })).toEqual(said('key_unavailable'))
  expect(plaid(jwt(ec.privateKey, claims, 'none'))).toEqual(said('unsupported_algorithm'))
  expect(paypal).toEqual(said('untrusted_cert_url'))
  expect(sns).toEqual(said('unexpected_topic'))
})

// --- What holds for all ----------------------------------------------------------------------------------------------

test('each cause has an example above', () => {
  expect([...reached].sort()).toEqual(Object.keys(EXPLANATIONS).sort())
})

test('docs/operations.md says of each cause what to do', () => {
  const section = readFileSync('docs/operations.md', 'utf8').split('\n## Why is a request refused?')[1] ?? ''
  const [table = ''] = section.split('\n| Cause |')[1]?.split('\n\n') ?? []
  const documented = [...table.matchAll(/^\| `(\w+)` \| [^|]+ \| [^|]+ \|$/gm)].map(([, cause]) => cause)

  expect(documented.sort()).toEqual(Object.keys(EXPLANATIONS).sort())
})

test('I17 no secret, header or body is in what is said', () => {
  const canary = 'canary0000canary0000canary0000ca'
  const secret = `whsec_${canary}`
  const body = JSON.stringify({ id: canary, url: `https://x/${canary}` })
  const hosts = { host: `${canary}.example.com`, 'x-forwarded-host': canary }
  const all = [...providers.values()].flatMap(({ name, urlOption }) => {
    const options = urlOption
      ? { [urlOption]: `https://${canary}.example.com/${canary}` }
      : name === 'generic'
        ? GENERIC_OPTIONS
        : {}
    if (name === 'aws-sns') return []
    return [secret, `"${secret}"`].flatMap((configured) =>
      [body, `${body}\n`].flatMap((signed) => [
        explain({
          provider: name,
          options,
          secrets: [configured],
          query: canary,
          url: `https://${canary}/webhooks/${canary}`,
          body,
          headers: {
            ...hosts,
            ...basic(`user:${canary}`),
            'stripe-signature': `t=1700000000,v1=${hmac(secret, `1700000000.${signed}`)}`,
            'x-hub-signature-256': `sha256=${hmac(secret, signed)}`,
            'x-signature': canary,
            'verif-hash': canary,
            'x-callback-token': canary,
            'x-square-hmacsha256-signature': hmac(secret, `http://${canary}.example.com/${canary}${body}`, 'base64'),
          },
        }),
      ]),
    )
  })

  expect(new Set(all.map((each) => each?.cause))).toEqual(
    new Set([
      undefined,
      'body_newline',
      'secret_encoding',
      'url_differs',
      'bad_credentials',
      'other_provider_header',
      'signature_mismatch',
    ]),
  )
  expect(JSON.stringify(all)).not.toMatch(/canary|authorization/)
})

test('what it may cost is bounded, whatever comes', () => {
  let calls = 0
  const counting: Provider = {
    ...createProvider('github'),
    name: 'counting',
    scheme: {
      signatures: [{ kind: 'hmac', algorithm: 'sha256', encoding: 'hex', secret: { form: 'text' } }],
      place: 'nowhere',
      signed: 'the body',
      proofs(request) {
        calls += 1
        const [kind] = counting.scheme && 'signatures' in counting.scheme ? counting.scheme.signatures : []
        return kind ? [{ signatures: [{ kind, given: ['0'.repeat(64)] }], signed: () => [[request.body]] }] : []
      },
    },
  }
  const own: ExplainedSource = { ...source('github', ['a', 'b']), name: 'own', provider: counting }
  const others = Array.from({ length: 500 }, (_, index) => ({ ...own, name: `other${index}` }))
  const run = (body: Buffer, more: { sources?: ExplainedSource[]; isOver?: () => boolean } = {}) => {
    calls = 0
    const cause = explainRefusal({
      source: own,
      request: { headers: {}, body },
      reason: 'signature_mismatch',
      nowSeconds: NOW,
      ...more,
    }).cause
    expect(cause).toBe('signature_mismatch')
    return calls
  }
  const json = (length: number) => Buffer.from(JSON.stringify({ a: 'é/<\n'.repeat(length / 16), b: 1.5 }))

  expect(run(json(4_000))).toBeGreaterThan(40)
  expect(run(json(4_000), { sources: others })).toBe(200)
  expect(run(json(1_000_000))).toBeLessThan(25)
  // A pattern that looks back over blanks would take minutes.
  expect(run(Buffer.from(`${' '.repeat(250_000)}x${'\n'.repeat(10)}`))).toBeLessThan(40)
  let asked = 0
  expect(run(json(4_000), { isOver: () => ++asked > 3 })).toBe(3)
})

test('no request whatever makes it throw', () => {
  const names = [
    'stripe-signature',
    'x-hub-signature-256',
    'x-signature',
    'svix-id',
    'host',
    'x-forwarded-host',
    'authorization',
    'plaid-verification',
    'x-twilio-signature',
  ]
  const options: Record<string, Record<string, unknown>> = {
    generic: GENERIC_OPTIONS,
    square: { notificationUrl: 'https://hooks.example.com/webhooks/shop' },
    twilio: { publicUrl: 'https://hooks.example.com/webhooks/shop?a=1' },
    'aws-sns': { topicArns: ['arn:aws:sns:eu-west-1:123456789012:events'] },
  }
  const text = fc.string({ maxLength: 60, unit: 'binary' })
  const body = fc.oneof(
    fc.uint8Array({ maxLength: 80 }).map((bytes) => Buffer.from(bytes)),
    fc.json().map((json) => Buffer.from(json)),
    fc.constantFrom('{'.repeat(5_000), '[1e999,-0]', '"\\ud800"', 'a=%zz&=', '').map((each) => Buffer.from(each)),
  )

  fc.assert(
    fc.property(
      fc.constantFrom(...providers.keys()),
      fc.constantFrom<Exclude<ReturnType<typeof reasonsOf>[number], never>>(...reasonsOf()),
      fc.array(text, { maxLength: 3 }),
      fc.dictionary(fc.constantFrom(...names), fc.array(text, { minLength: 1, maxLength: 2 })),
      body,
      text,
      (name, reason, secrets, headers, bytes, query) => {
        const own = source(name, secrets, { name: 'shop', options: options[name] ?? {} })
        const request = { headers, body: bytes, query }
        const said = explainRefusal({
          source: own,
          request,
          reason,
          nowSeconds: NOW,
          url: query,
          sources: [own],
          ring: () => () => undefined,
        })

        expect(EXPLANATIONS[said.cause]).toBe(said.explanation)
      },
    ),
    { numRuns: 500 },
  )
})

function reasonsOf() {
  return [
    'signature_mismatch',
    'missing_signature',
    'malformed_signature',
    'timestamp_too_old',
    'timestamp_too_new',
    'no_matching_key',
    'bad_credentials',
    'body_hash_mismatch',
    'untrusted_cert_url',
    'unsupported_algorithm',
    'unexpected_topic',
    'key_unavailable',
  ] as const
}
