import { createHash, createPrivateKey, generateKeyPairSync, type KeyObject, sign as signWith } from 'node:crypto'
import { beforeEach, describe, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { readEvents } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { type Keyring, verify } from '../../src/providers/signature.ts'
import { pem } from '../support/certificates.ts'
import { testDatabase } from '../support/database.ts'
import { countRows, emptyTables, ingest, storedEvents } from '../support/posting.ts'
import { standInProvider } from '../support/provider-server.ts'

const NOW = 1_800_000_000
const KID = '6c5516e1-92dc-479e-a8ff-5a51992e0001'
const BODY = '{\n  "webhook_type": "PAYMENT_INITIATION",\n  "webhook_code": "PAYMENT_STATUS_UPDATE",\n  "payment_id": "p-1"\n}'
const BODY_SHA256 = createHash('sha256').update(BODY).digest('hex')
const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const nameless = { ...publicKey.export({ format: 'jwk' }), alg: 'ES256', use: 'sig', created_at: 1, expired_at: null }
const jwk = { ...nameless, kid: KID }

/** A token as Plaid makes it, made here and not by the code under test. */
function token(
  header: object = {},
  claims: object = {},
  key: KeyObject = privateKey,
  dsaEncoding: 'ieee-p1363' | 'der' = 'ieee-p1363',
) {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const text = `${part({ alg: 'ES256', kid: KID, typ: 'JWT', ...header })}.${part({ iat: NOW - 2, request_body_sha256: BODY_SHA256, ...claims })}`
  return `${text}.${signWith('sha256', Buffer.from(text), { key, dsaEncoding }).toString('base64url')}`
}

const database = await testDatabase()
const plaid = await standInProvider()
const keys = plaid.keysAt(NOW)
const service = await ingest(database, { sources: {} }, { keys })
service.clock.now = NOW * 1000
const post = (source: string, verification = token(), body = BODY) =>
  service.post(`/webhooks/${source}`, body, { 'plaid-verification': verification })
const KEY_OF_PLAID = 'POST /webhook_verification_key/get'
beforeEach(async () => {
  await emptyTables(database)
  plaid.reset()
  plaid.answers(KEY_OF_PLAID, JSON.stringify({ key: jwk, request_id: 'r' }))
  plaid.answers('GET /keys?of=bank', JSON.stringify({ keys: [{ kty: 'RSA' }, null, jwk] }))
  service.config.current = readConfig({
    sources: {
      bank: { provider: 'plaid', secrets: ['client:se:cret'] },
      sandbox: { provider: 'plaid', secrets: ['client:secret'], environment: 'sandbox' },
      set: { provider: 'plaid', jwksUrl: 'https://keys.example.com/keys?of=bank' },
      inline: { provider: 'plaid', jwks: { [KID]: nameless } },
    },
  })
})

test('an event is verified by the key that Plaid gives under its ID, and its ID is the hash of the body', async () => {
  const [first, second] = [await post('bank'), await post('bank')]

  expect(first.json).toEqual({
    status: 'accepted',
    events: [{ id: `sha256:${BODY_SHA256}`, type: 'PAYMENT_INITIATION.PAYMENT_STATUS_UPDATE', status: 'accepted' }],
  })
  expect(second.json.status).toBe('duplicate')
  expect((await storedEvents(database))[0]?.id_basis).toBe('body_hash')
  expect(plaid.requests.map(({ host, line, body }) => [host, line, body.toString()])).toEqual([
    ['production.plaid.com', KEY_OF_PLAID, `{"client_id":"client","secret":"se:cret","key_id":"${KID}"}`],
  ])
})

test.each([
  ['sandbox', 'sandbox.plaid.com'],
  ['set', 'keys.example.com'],
  ['inline', undefined],
])('source %s has its keys from %s', async (source, host) => {
  expect((await post(source)).status).toBe(200)
  expect(plaid.requests.map((request) => request.host)).toEqual(host === undefined ? [] : [host])
})

test('a key that Plaid doesn’t know is a 401, one that can’t be had a 503, and wrong credentials too', async () => {
  plaid.answers(KEY_OF_PLAID, '{"error_code":"INVALID_API_KEYS"}', 400)
  expect((await post('bank')).status).toBe(503)
  plaid.answers(KEY_OF_PLAID, '', 500)
  expect((await post('bank')).status).toBe(503)
  plaid.answers(KEY_OF_PLAID, '{"error_code":"INVALID_WEBHOOK_VERIFICATION_KEY_ID"}', 400)
  expect((await post('bank')).status).toBe(401)
  expect(await countRows(database)).toMatchObject({ events: 0 })
})

test('a key that has expired verifies nothing', async () => {
  plaid.answers(KEY_OF_PLAID, JSON.stringify({ key: { ...jwk, expired_at: NOW - 1 } }))

  expect((await post('bank')).status).not.toBe(200)
  expect(await countRows(database)).toMatchObject({ events: 0 })
})

test('nothing is asked of Plaid for a token that could not be right', async () => {
  for (const wrong of [token({ alg: 'none' }), token({ alg: 'HS256' }), token({}, { iat: '1800000000' }), 'a.b', ''])
    expect((await post('bank', wrong)).status).toBe(401)

  expect(plaid.requests).toEqual([])
})

describe('the scheme', () => {
  const provider = createProvider('plaid')
  const ring: Keyring = (name) => (name === KID ? publicKey : 'unknown')
  const judge = (verification: string | string[] | undefined, body = BODY) => {
    const headers = verification === undefined ? {} : { 'plaid-verification': [verification].flat() }
    const request = { headers, body: Buffer.from(body) }
    const verdict = verify(provider.scheme, request, ['client:secret'], NOW, provider.toleranceSeconds, ring)
    return verdict.ok ? 'verified' : verdict.reason
  }
  const [head, claims, signature] = token().split('.')
  const rsa = createPrivateKey(pem('leaf-key'))
  const longer = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey

  test.each<[string, string | string[] | undefined, string]>([
    ['as sent', token(), 'verified'],
    ['no header', undefined, 'missing_signature'],
    ['an empty header', '', 'missing_signature'],
    ['two headers', [token(), token()], 'malformed_signature'],
    ['two parts', `${head}.${claims}`, 'malformed_signature'],
    ['four parts', `${token()}.`, 'malformed_signature'],
    ['no signature', `${head}.${claims}.`, 'signature_mismatch'],
    ['half a signature', `${head}.${claims}.${signature?.slice(0, 43)}`, 'signature_mismatch'],
    ['a padded signature', `${token()}==`, 'signature_mismatch'],
    ['a signature in DER', token({}, {}, privateKey, 'der'), 'signature_mismatch'],
    ['claims of another token', `${head}.${token({}, { iat: NOW - 1 }).split('.')[1]}.${signature}`, 'signature_mismatch'],
    ['another key', token({}, {}, generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey), 'signature_mismatch'],
    ['an unknown key', token({ kid: 'other' }), 'no_matching_key'],
    ['alg none', token({ alg: 'none' }), 'unsupported_algorithm'],
    ['alg none, unsigned', `${token({ alg: 'none' }).split('.').slice(0, 2).join('.')}.`, 'unsupported_algorithm'],
    ['alg HS256', token({ alg: 'HS256' }), 'unsupported_algorithm'],
    ['alg RS256', token({ alg: 'RS256' }, {}, rsa, 'der'), 'unsupported_algorithm'],
    ['alg ES384', token({ alg: 'ES384' }, {}, longer), 'unsupported_algorithm'],
    ['alg in lower case', token({ alg: 'es256' }), 'unsupported_algorithm'],
    ['a list of algs', token({ alg: ['ES256'] }), 'unsupported_algorithm'],
    ['no alg', token({ alg: undefined }), 'unsupported_algorithm'],
    ['an extension to be understood', token({ crit: ['b64'], b64: false }), 'malformed_signature'],
    ['no key ID', token({ kid: undefined }), 'malformed_signature'],
    ['a key ID that is a list', token({ kid: [KID] }), 'malformed_signature'],
    ['a long key ID', token({ kid: 'x'.repeat(101) }), 'malformed_signature'],
    ['no time', token({}, { iat: undefined }), 'malformed_signature'],
    ['a time as text', token({}, { iat: String(NOW) }), 'malformed_signature'],
    ['300 s old', token({}, { iat: NOW - 300 }), 'verified'],
    ['301 s old', token({}, { iat: NOW - 301 }), 'timestamp_too_old'],
    ['301 s ahead', token({}, { iat: NOW + 301 }), 'timestamp_too_new'],
    ['no hash of the body', token({}, { request_body_sha256: undefined }), 'malformed_signature'],
    ['a null hash', token({}, { request_body_sha256: null }), 'malformed_signature'],
    ['an empty hash', token({}, { request_body_sha256: '' }), 'body_hash_mismatch'],
    ['the hash of another body', token({}, { request_body_sha256: createHash('sha256').digest('hex') }), 'body_hash_mismatch'],
    ['a header that is no JSON', `bm8.${claims}.${signature}`, 'malformed_signature'],
    ['a header that is a list', `W10.${claims}.${signature}`, 'malformed_signature'],
    ['claims that are no JSON', `${head}.bm8.${signature}`, 'malformed_signature'],
    ['a header without end', `${'W1tb'.repeat(200)}.${claims}.${signature}`, 'malformed_signature'],
    ['a token without end', `${head}.${'a'.repeat(1_000_000)}.${signature}`, 'malformed_signature'],
    ['bytes beyond ASCII', 'é.é.é', 'malformed_signature'],
  ])('of a token, %s', (_what, verification, expected) => {
    expect(judge(verification)).toBe(expected)
  })

  test('a body written anew is another', () => {
    expect(judge(token(), JSON.stringify(JSON.parse(BODY)))).toBe('body_hash_mismatch')
  })

  test.each([
    { jwks: {} },
    { jwks: { keys: [{ kty: 'RSA', kid: 'a' }] } },
    { jwks: { keys: [nameless] } },
    { jwksUrl: 'file:///etc/passwd' },
    { jwksUrl: 'http://keys.example.com/' },
    { jwksUrl: 'https://169.254.169.254/latest' },
    { jwksUrl: 'https://2852039166/' },
    { jwksUrl: 'https://[fd00::1]/' },
    { jwksUrl: 'https://[::ffff:127.0.0.1]/' },
    { jwksUrl: 'ftp://localhost/' },
    { environment: 'development' },
  ])('the options %j are refused', (options) => {
    expect(() => createProvider('plaid', options)).toThrow('options of provider "plaid"')
  })

  test.each(['https://keys.example.com/keys', 'http://127.0.0.1:8080/keys', 'http://localhost/keys', 'https://[::1]/keys'])(
    'keys may be read from %s',
    (jwksUrl) => {
      expect(createProvider('plaid', { jwksUrl }).remoteKeys?.request('kid', [])).toEqual({ url: jwksUrl })
    },
  )

  test('a source without a secret, a key set or its address can’t verify anything', () => {
    expect(() => readConfig({ sources: { bank: { provider: 'plaid' } } })).toThrow('secrets is empty')
  })

  test.each<[object, object]>([
    [{ environment: 'production' }, { livemode: true }],
    [{ environment: 'sandbox' }, { livemode: false }],
    [{ environment: 'development' }, { livemode: false }],
    [{}, { livemode: null, occurredAt: null, objectRef: null }],
    [
      { timestamp: '2027-01-15T07:59:58Z', payment_id: 'p-1' },
      { occurredAt: new Date('2027-01-15T07:59:58Z'), objectRef: 'p-1' },
    ],
    [{ item_id: 'item-1' }, { objectRef: 'item-1' }],
  ])('of %j it reads %j', (fields, expected) => {
    const body = Buffer.from(JSON.stringify({ webhook_type: 'ITEM', webhook_code: 'ERROR', ...fields }))

    expect(readEvents(provider, { headers: {}, body }).events[0]).toMatchObject({ type: 'ITEM.ERROR', ...expected })
  })

  test('an event without a type or code is kept for people', () => {
    expect(readEvents(provider, { headers: {}, body: Buffer.from('{"webhook_type":"ITEM"}') })).toEqual({
      events: [],
      unusable: 'no_id',
    })
  })
})
