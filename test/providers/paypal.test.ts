import { createPrivateKey, sign as signWith, X509Certificate } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { beforeEach, describe, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { createRemoteKeys } from '../../src/events/remote-keys.ts'
import { readEvents } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { type Keyring, verify } from '../../src/providers/signature.ts'
import { CERTIFICATES_VALID_AT, pem, trustOnly } from '../support/certificates.ts'
import { testDatabase } from '../support/database.ts'
import { countRows, emptyTables, ingest, storedEvents } from '../support/posting.ts'
import { standInProvider } from '../support/provider-server.ts'

const CERT_URL = 'https://api.sandbox.paypal.com/v1/notifications/certs/CERT-test'
const WEBHOOK_ID = '9XL90610J3647323C'
/** The body of C-24. */
const BODY = Buffer.from(
  '{"id":"WH-1","event_type":"CHECKOUT.ORDER.APPROVED","resource":{"amount":{"value":"1.0","breakdown":{}},"n":1.0}}',
)
const key = createPrivateKey(pem('leaf-key'))

/** Headers as PayPal signs them, made here and not by the code under test. */
function signed(body: Buffer, { webhookId = WEBHOOK_ID, algorithm = 'sha256', changed = {} } = {}) {
  const [id, time] = ['c0ffee00-97d2-11f0-8b1e-5d1f3b2a9c10', '2027-01-15T07:59:58Z']
  const text = `${id}|${time}|${webhookId}|${crc32(body)}`
  return {
    'paypal-auth-algo': 'SHA256withRSA',
    'paypal-cert-url': CERT_URL,
    'paypal-transmission-id': id,
    'paypal-transmission-time': time,
    'paypal-transmission-sig': signWith(algorithm, Buffer.from(text), key).toString('base64'),
    ...changed,
  }
}

const database = await testDatabase()
const paypal = await standInProvider()
const keys = createRemoteKeys({
  log: { info: () => undefined, warn: () => undefined },
  fetch: paypal.fetch,
  now: () => CERTIFICATES_VALID_AT * 1000,
})
const source = (options: object) => ({ provider: 'paypal', secrets: [WEBHOOK_ID], mode: 'test', ...options }) as const
const configured = () =>
  readConfig({
    sources: {
      pinned: source({ certs: { [CERT_URL]: pem('leaf') } }),
      expired: source({ certs: { [CERT_URL]: pem('expired') } }),
      downloading: source({}),
      live: source({ certs: { [CERT_URL]: pem('leaf') }, mode: 'live' }),
      asking: source({
        secrets: ['1AB00000000000000', WEBHOOK_ID],
        postback: { clientId: 'app', clientSecret: 's3cret', environment: 'sandbox' },
      }),
    },
  })
const service = await ingest(database, { sources: {} }, { keys })
const { post } = service
service.clock.now = CERTIFICATES_VALID_AT * 1000
beforeEach(async () => {
  await emptyTables(database)
  paypal.reset()
  service.config.current = configured()
})

test('C-24 a delivery is verified over its bytes by a pinned certificate, without a download', async () => {
  const answer = await post('/webhooks/pinned', BODY, signed(BODY))

  expect(answer.json).toEqual({
    status: 'accepted',
    events: [{ id: 'WH-1', type: 'CHECKOUT.ORDER.APPROVED', status: 'accepted' }],
  })
  expect((await storedEvents(database))[0]?.body).toEqual(BODY)
  expect(paypal.requests).toEqual([])
})

test('a pinned certificate that has ended verifies nothing, and nothing is downloaded in its place', async () => {
  expect((await post('/webhooks/expired', BODY, signed(BODY))).status).toBe(401)
  expect(paypal.requests).toEqual([])
})

test.each([
  ['a body written anew', Buffer.from(JSON.stringify(JSON.parse(BODY.toString()))), signed(BODY)],
  ['another webhook ID', BODY, signed(BODY, { webhookId: '1AB00000000000000' })],
  ['another algorithm than it says', BODY, signed(BODY, { algorithm: 'sha1' })],
])('%s is refused', async (_what, body, headers) => {
  expect((await post('/webhooks/pinned', body, headers)).status).toBe(401)
  expect(await countRows(database)).toMatchObject({ events: 0, jobs: 0 })
})

test('C-07 PayPal’s headers match in any case', async () => {
  const lower = signed(BODY)
  const title = Object.fromEntries(
    Object.entries(lower).map(([name, value]) => [name.replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase()), value]),
  )
  const upper = Object.fromEntries(Object.entries(lower).map(([name, value]) => [name.toUpperCase(), value]))

  expect(Object.keys(title)).toContain('Paypal-Transmission-Sig')
  for (const headers of [lower, title, upper]) expect((await post('/webhooks/pinned', BODY, headers)).status).toBe(200)
})

test('C-32 an event of the sandbox is stored as a test on a live source, and starts nothing', async () => {
  expect((await post('/webhooks/live', BODY, signed(BODY))).status).toBe(200)

  const [event] = await storedEvents(database)
  expect(event).toMatchObject({ livemode: false, status: 'ignored', error: 'test event on a live source' })
})

describe('by a certificate that is downloaded', () => {
  const chain = `${pem('leaf')}${pem('intermediate')}`

  test('it is fetched once from the address in the request, and the delivery is verified', async () => {
    trustOnly(pem('root'))
    paypal.answers('GET /v1/notifications/certs/CERT-test', chain)

    const answers = await Promise.all(Array.from({ length: 5 }, () => post('/webhooks/downloading', BODY, signed(BODY))))

    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
    expect(paypal.requests.map(({ host, line }) => `${line} of ${host}`)).toEqual([
      'GET /v1/notifications/certs/CERT-test of api.sandbox.paypal.com',
    ])
  })

  test.each([
    ['is in another name', `${pem('other-name')}${pem('intermediate')}`],
    ['has ended', `${pem('expired')}${pem('intermediate')}`],
    ['is issued by nobody who is trusted', `${pem('leaf')}`],
    ['is a page', '<html></html>'],
  ])('one that %s verifies nothing, and the delivery is to come again', async (_what, file) => {
    trustOnly(pem('root'))
    paypal.answers('GET /v1/notifications/certs/CERT-test', file)

    expect((await post('/webhooks/downloading', BODY, signed(BODY))).status).toBe(503)
  })

  test('one that can’t be had now is a 503, and the next delivery is verified', async () => {
    trustOnly(pem('root'))
    paypal.answers('GET /v1/notifications/certs/CERT-test', 'busy', 500)

    const first = await post('/webhooks/downloading', BODY, signed(BODY))
    paypal.answers('GET /v1/notifications/certs/CERT-test', chain)

    expect([first.status, first.headers['retry-after']]).toEqual([503, expect.stringMatching(/^\d+$/)])
    expect((await post('/webhooks/downloading', BODY, signed(BODY))).status).toBe(200)
  })

  test('nothing is ever fetched for an address that is not PayPal’s', async () => {
    for (const url of ['https://attacker.example/cert', 'http://api.paypal.com/cert', 'https://api.paypal.com@attacker.example/'])
      expect((await post('/webhooks/downloading', BODY, signed(BODY, { changed: { 'paypal-cert-url': url } }))).status).toBe(401)

    expect(paypal.requests).toEqual([])
  })
})

describe('by postback', () => {
  const TOKEN = 'POST /v1/oauth2/token'
  const VERIFY = 'POST /v1/notifications/verify-webhook-signature'
  const isRight = (right: boolean) => JSON.stringify({ verification_status: right ? 'SUCCESS' : 'FAILURE' })
  const questions = () => paypal.requests.filter(({ line }) => line === VERIFY)
  /** PayPal knows the second of the two webhook IDs. */
  const willing = () => {
    paypal.answers(TOKEN, '{"access_token":"A21","token_type":"Bearer","expires_in":32400}')
    paypal.answers(VERIFY, ({ body }) => isRight(JSON.parse(body.toString()).webhook_id === WEBHOOK_ID))
  }

  test('C-24 the event goes out with the bytes that came, and PayPal’s word decides', async () => {
    willing()

    expect((await post('/webhooks/asking', BODY, signed(BODY))).status).toBe(200)

    const facts = (webhookId: string) =>
      `{"auth_algo":"SHA256withRSA","cert_url":"${CERT_URL}","transmission_id":"c0ffee00-97d2-11f0-8b1e-5d1f3b2a9c10",` +
      `"transmission_sig":"${signed(BODY)['paypal-transmission-sig']}","transmission_time":"2027-01-15T07:59:58Z",` +
      `"webhook_id":"${webhookId}","webhook_event":${BODY}}`
    expect(questions().map(({ body }) => body.toString())).toEqual([facts('1AB00000000000000'), facts(WEBHOOK_ID)])
    expect(paypal.requests.map(({ host, authorization }) => [host, authorization])).toEqual([
      ['api-m.sandbox.paypal.com', 'Basic YXBwOnMzY3JldA=='],
      ['api-m.sandbox.paypal.com', 'Bearer A21'],
      ['api-m.sandbox.paypal.com', 'Bearer A21'],
    ])
  })

  test('each delivery is asked about anew, a redelivery too; the token is asked for once', async () => {
    willing()
    for (let delivery = 0; delivery < 3; delivery++) await post('/webhooks/asking', BODY, signed(BODY))

    expect(questions()).toHaveLength(6)
    expect(paypal.requests.filter(({ line }) => line === TOKEN)).toHaveLength(1)
    expect(await countRows(database)).toMatchObject({ events: 1 })
  })

  test('what PayPal denies is refused, with nothing stored', async () => {
    willing()
    paypal.answers(VERIFY, isRight(false))

    expect((await post('/webhooks/asking', BODY, signed(BODY))).status).toBe(401)
    expect(await countRows(database)).toMatchObject({ events: 0, jobs: 0 })
  })

  test.each([
    ['gives no token', () => paypal.answers(TOKEN, '{"error":"invalid_client"}', 401)],
    ['has an error', () => paypal.answers(VERIFY, '{"name":"INTERNAL_SERVER_ERROR"}', 500)],
    ['says neither yes nor no', () => paypal.answers(VERIFY, '{"verification_status":"success"}')],
    ['answers no JSON', () => paypal.answers(VERIFY, 'SUCCESS')],
    ['redirects', () => paypal.answers(VERIFY, isRight(true), 302)],
  ])('when PayPal %s the answer is 503 and nothing is stored', async (_what, setUp) => {
    willing()
    setUp()

    expect((await post('/webhooks/asking', BODY, signed(BODY))).status).toBe(503)
    expect(await countRows(database)).toMatchObject({ events: 0, jobs: 0 })
  })

  test('a token that PayPal has withdrawn is replaced at the next delivery', async () => {
    willing()
    paypal.answers(VERIFY, '{}', 401)
    const first = await post('/webhooks/asking', BODY, signed(BODY))
    willing()

    expect([first.status, (await post('/webhooks/asking', BODY, signed(BODY))).status]).toEqual([503, 200])
    expect(paypal.requests.filter(({ line }) => line === TOKEN)).toHaveLength(2)
  })

  test.each([
    ['two values', '{"id":"WH-1"},"webhook_id":"1AB99999999999999","x":{}'],
    ['a value and more', '{"id":"WH-1"}}'],
    ['nothing', ''],
    ['no JSON', 'hello'],
  ])('a body of %s never goes out, as it could say more than the event', async (_what, text) => {
    willing()

    expect((await post('/webhooks/asking', Buffer.from(text), signed(Buffer.from(text)))).status).toBe(401)
    expect(questions()).toEqual([])
  })

  test('what has not the form of a signed request is refused without asking', async () => {
    willing()
    const headers = signed(BODY, { changed: { 'paypal-auth-algo': 'SHA1withRSA' } })

    expect((await post('/webhooks/asking', BODY, headers)).status).toBe(401)
    expect((await post('/webhooks/asking', BODY)).status).toBe(401)
    expect(paypal.requests).toEqual([])
  })
})

describe('the scheme', () => {
  const provider = createProvider('paypal')
  const leaf = new X509Certificate(pem('leaf')).publicKey
  const everywhere: Keyring = () => leaf
  type Headers = Record<string, string | string[]>
  const judge = (headers: Headers, body = BODY, of = provider, tolerance = of.toleranceSeconds) => {
    const values = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value].flat()]))
    const verdict = verify(of.scheme, { headers: values, body }, [WEBHOOK_ID], CERTIFICATES_VALID_AT, tolerance, everywhere)
    return verdict.ok ? 'verified' : verdict.reason
  }
  const changed = (changes: Headers) => ({ ...signed(BODY), ...changes })
  const { 'paypal-transmission-sig': signature } = signed(BODY)

  test.each<[string, Headers, string]>([
    ['as sent', {}, 'verified'],
    ['a doubled signature', { 'paypal-transmission-sig': [signature, signature] }, 'malformed_signature'],
    ['a doubled ID', { 'paypal-transmission-id': ['a', 'a'] }, 'malformed_signature'],
    ['a doubled time', { 'paypal-transmission-time': ['2027-01-15T07:59:58Z', '2027-01-15T07:59:58Z'] }, 'malformed_signature'],
    ['a doubled certificate', { 'paypal-cert-url': [CERT_URL, CERT_URL] }, 'malformed_signature'],
    ['no time', { 'paypal-transmission-time': [] }, 'malformed_signature'],
    ['a time that is none', { 'paypal-transmission-time': 'yesterday' }, 'malformed_signature'],
    ['an empty signature', { 'paypal-transmission-sig': '' }, 'missing_signature'],
    ['a blank signature', { 'paypal-transmission-sig': ' ' }, 'missing_signature'],
    ['a signature in hex', { 'paypal-transmission-sig': Buffer.from(signature, 'base64').toString('hex') }, 'signature_mismatch'],
    [
      'a signature in base64url',
      { 'paypal-transmission-sig': Buffer.from(signature, 'base64').toString('base64url') },
      'malformed_signature',
    ],
    ['half a signature', { 'paypal-transmission-sig': signature.slice(0, 172) }, 'signature_mismatch'],
    ['two signatures in one', { 'paypal-transmission-sig': `${signature}, ${signature}` }, 'malformed_signature'],
    ['SHA-1', { 'paypal-auth-algo': 'SHA1withRSA' }, 'unsupported_algorithm'],
    ['an algorithm in another case', { 'paypal-auth-algo': 'sha256withrsa' }, 'unsupported_algorithm'],
    ['http', { 'paypal-cert-url': CERT_URL.replace('https', 'http') }, 'untrusted_cert_url'],
    ['another host', { 'paypal-cert-url': 'https://api.paypal.com.attacker.example/cert' }, 'untrusted_cert_url'],
    ['a host below', { 'paypal-cert-url': 'https://x.api.paypal.com/cert' }, 'untrusted_cert_url'],
    ['the website', { 'paypal-cert-url': 'https://www.paypal.com/cert' }, 'untrusted_cert_url'],
    ['user information', { 'paypal-cert-url': 'https://api.paypal.com@attacker.example/cert' }, 'untrusted_cert_url'],
    ['a user at PayPal', { 'paypal-cert-url': 'https://a:b@api.paypal.com/cert' }, 'untrusted_cert_url'],
    ['another port', { 'paypal-cert-url': 'https://api.paypal.com:8443/cert' }, 'untrusted_cert_url'],
    ['no address', { 'paypal-cert-url': 'CERT-test' }, 'untrusted_cert_url'],
    ['the standard port', { 'paypal-cert-url': 'https://api-m.paypal.com:443/cert' }, 'verified'],
  ])('%s: %s → %s', (_what, changes, expected) => {
    expect(judge(changed(changes))).toBe(expected)
  })

  test('a tolerance bounds the signed time, where the operator sets one', () => {
    // Signed two seconds before.
    expect(judge(signed(BODY), BODY, provider, 2)).toBe('verified')
    expect(judge(signed(BODY), BODY, provider, 1)).toBe('timestamp_too_old')
    expect(judge(signed(BODY))).toBe('verified')
  })

  test('other hosts are trusted where the options name them, and PayPal’s own no longer', () => {
    const other = createProvider('paypal', { certHosts: ['certs.example.com'] })

    expect(judge(changed({ 'paypal-cert-url': 'https://certs.example.com/a' }), BODY, other)).toBe('verified')
    expect(judge(signed(BODY), BODY, other)).toBe('untrusted_cert_url')
  })

  test.each([
    { certs: { [CERT_URL]: 'no certificate' } },
    { certHosts: [] },
    { certHosts: ['https://api.paypal.com'] },
    { postback: { clientId: 'app' } },
    { postback: { clientId: 'app', clientSecret: undefined } },
    { style: 'postback' },
  ])('the options %j are refused', (options) => {
    expect(() => createProvider('paypal', options)).toThrow('options of provider "paypal"')
  })

  test('an event has PayPal’s ID, type, time, object and mode', () => {
    const body = Buffer.from(
      '{"id":"WH-2","event_type":"PAYMENT.CAPTURE.COMPLETED","create_time":"2026-09-21T14:13:04.000Z","resource":{"id":"42311647XV020574X"}}',
    )
    const of = (url: string) => readEvents(provider, { headers: { 'paypal-cert-url': [url] }, body }).events[0]

    expect(of('https://api.paypal.com/v1/a')).toMatchObject({
      id: 'WH-2',
      idBasis: 'provider',
      type: 'PAYMENT.CAPTURE.COMPLETED',
      livemode: true,
      occurredAt: new Date('2026-09-21T14:13:04Z'),
      objectRef: '42311647XV020574X',
    })
    expect(of('https://api-m.sandbox.paypal.com/v1/a')?.livemode).toBe(false)
    expect(of('https://certs.example.com/a')?.livemode).toBeNull()
    expect(readEvents(provider, { headers: {}, body }).events[0]?.livemode).toBeNull()
  })
})
