import { createHash, createHmac, createSign, generateKeyPairSync, sign } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { verifyFile } from '../src/cli/verify.ts'
import type { ExplainedSource } from '../src/providers/explain.ts'
import { createProvider } from '../src/providers/registry.ts'

const STRIPE_FILE = fileURLToPath(new URL('./vectors/stripe.json', import.meta.url))
const BODY_H = String.raw`{"id":"evt_1","type":"invoice.paid","note":"Zoë 😀 \u00e9 a\/b","amount":10.00,"big":9007199254740993}`
const CAPTURED = {
  url: 'https://hooks.example.com/webhooks/billing?x=1',
  headers: {
    'Content-Type': 'application/json',
    'Stripe-Signature': 't=1700000000,v1=4bdd2158024e751bf5cd48f924c216930ccae5dbb8e8afc58e70a62a478977e7',
  },
  body_base64: Buffer.from(BODY_H).toString('base64'),
}
const COMPLETE = { ...CAPTURED, provider: 'stripe', secrets: ['whsec_test_A'], now: 1_700_000_000 }

const configured = (name: string, secrets: string[], more: Partial<ExplainedSource> = {}): ExplainedSource => ({
  name,
  provider: createProvider('stripe'),
  options: {},
  secrets,
  mode: 'live',
  toleranceSeconds: 600,
  ...more,
})
type Sources = ReadonlyMap<string, ExplainedSource>
const sources: Sources = new Map([['billing', configured('billing', ['whsec_test_A'])]])

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'oncehook-verify-'))
})
afterAll(() => rm(folder, { recursive: true }))

let count = 0
async function write(content: unknown): Promise<string> {
  const path = join(folder, `${count++}.json`)
  await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}
async function verifyJson(content: unknown, lookup?: Sources) {
  const { exitCode, stdout } = await verifyFile(await write(content), { json: true, ...(lookup && { sources: lookup }) })
  return { exitCode, result: JSON.parse(stdout) }
}

test('judges one captured request', async () => {
  expect(await verifyJson(COMPLETE)).toEqual({
    exitCode: 0,
    result: { verified: true, reason: null, events: [{ id: 'evt_1', type: 'invoice.paid' }] },
  })
  expect(await verifyJson({ ...COMPLETE, secrets: ['whsec_test_B'] })).toEqual({
    exitCode: 1,
    result: {
      verified: false,
      reason: 'signature_mismatch',
      events: [],
      cause: 'signature_mismatch',
      explanation: expect.stringMatching(/^No configured secret made this/),
    },
  })
})

test('C-16 uses the clock and the tolerance of the file', async () => {
  expect(await verifyJson({ ...COMPLETE, now: 1_700_000_301 })).toMatchObject({
    exitCode: 1,
    result: { reason: 'timestamp_too_old' },
  })
  expect(await verifyJson({ ...COMPLETE, now: 1_700_000_301, config: { tolerance_seconds: 301 } })).toMatchObject({ exitCode: 0 })
  const { now: _now, ...withoutClock } = COMPLETE
  expect(await verifyJson(withoutClock)).toMatchObject({ exitCode: 1, result: { reason: 'timestamp_too_old' } })
})

test('takes provider, secrets and tolerance of the source in the URL when the file has none', async () => {
  const captured = { ...CAPTURED, now: 1_700_000_600 }

  expect(await verifyJson(captured, sources)).toEqual({
    exitCode: 0,
    result: { verified: true, reason: null, source: 'billing', events: [{ id: 'evt_1', type: 'invoice.paid' }] },
  })
  expect(await verifyJson({ ...captured, provider: 'stripe' }, sources)).toMatchObject({
    exitCode: 0,
    result: { source: 'billing' },
  })
  expect(await verifyJson({ ...captured, secrets: ['whsec_test_B'] }, sources)).toMatchObject({ exitCode: 1 })
})

test('a whole file of vectors is good when every verdict is the expected one', async () => {
  const { exitCode, stdout } = await verifyFile(STRIPE_FILE, { json: true })

  expect(exitCode).toBe(0)
  const results = JSON.parse(stdout) as { id: string; verified: boolean; reason: string | null }[]
  expect(results).toHaveLength(18)
  expect(results[0]).toMatchObject({ id: 'stripe-001', verified: true, reason: null })
  expect(results.find(({ id }) => id === 'stripe-015')).toMatchObject({ verified: false, reason: 'timestamp_too_old' })
})

test('one unexpected verdict makes a list bad', async () => {
  const expected = { ...COMPLETE, id: 'a', expect: { verified: true } }
  const unexpected = { ...COMPLETE, id: 'b', expect: { verified: false } }

  expect(await verifyJson([expected, unexpected])).toMatchObject({ exitCode: 1, result: [{ id: 'a' }, { id: 'b' }] })
  expect(await verifyJson([expected])).toMatchObject({ exitCode: 0, result: [{ id: 'a', verified: true }] })
  expect(await verifyJson({ ...COMPLETE, secrets: ['x'], expect: { verified: false } })).toMatchObject({ exitCode: 0 })
})

test('vectors take the provider of their file', async () => {
  const { provider, ...vector } = COMPLETE

  expect(await verifyJson({ format: 1, provider, vectors: [vector] })).toMatchObject({
    exitCode: 0,
    result: [{ verified: true }],
  })
})

test('a header that comes twice is refused, whatever its case', async () => {
  const header = CAPTURED.headers['Stripe-Signature']

  expect(await verifyJson({ ...COMPLETE, headers: { 'Stripe-Signature': [header, header] } })).toMatchObject({ exitCode: 1 })
  expect(await verifyJson({ ...COMPLETE, headers: { 'Stripe-Signature': header, 'STRIPE-SIGNATURE': header } })).toMatchObject({
    exitCode: 1,
    result: { reason: 'malformed_signature' },
  })
  expect(await verifyJson({ ...COMPLETE, headers: { 'STRIPE-SIGNATURE': header } })).toMatchObject({ exitCode: 0 })
})

test('says when a right signature covers no usable event', async () => {
  const signed = {
    ...COMPLETE,
    provider: 'inboxili',
    secrets: ['inboxili-webhook-secret-1'],
    headers: { 'X-Inboxili-Signature': 'f5f5' },
  }
  const github = {
    provider: 'github',
    secrets: ['gh_test'],
    headers: { 'X-Hub-Signature-256': 'sha256=bd3a40f8aa43dd9924e50beab7b3e7ceb5f545fd22734ff6f970826e1da31fad' },
    body_base64: Buffer.from('{"zen":"Keep it small.","hook_id":1}').toString('base64'),
  }

  expect(await verifyJson(signed)).toMatchObject({ exitCode: 1, result: { reason: 'malformed_signature' } })
  expect(await verifyJson(github)).toEqual({
    exitCode: 0,
    result: { verified: true, reason: null, events: [], explanation: expect.stringContaining('has no ID') },
  })
})

test('prints the verdict on a line, and below it the cause in plain words, without a secret', async () => {
  const good = await verifyFile(await write(COMPLETE), { json: false, unicode: true })
  const bad = await verifyFile(await write({ ...COMPLETE, secrets: ['test_A'] }), { json: false, unicode: true })
  const expected = { ...COMPLETE, id: 'a', secrets: ['test_A'] }
  const list = [
    { ...expected, expect: { verified: false } },
    { ...expected, expect: { verified: true } },
  ]
  const listed = await verifyFile(await write(list), { json: false, unicode: true })

  expect(good).toEqual({ exitCode: 0, stdout: '✓  verified  evt_1 (invoice.paid)\n' })
  expect(bad.exitCode).toBe(1)
  expect(bad.stdout).toMatch(
    /^✕ {2}refused: signature_mismatch, secret_encoding\n {3}The signature fits a configured secret .*\.\n {3}It fits secret 1 with the prefix whsec_\.\n$/,
  )
  expect(listed.exitCode).toBe(1)
  expect(listed.stdout.split('\n').map((line) => line.slice(0, 40))).toEqual([
    '✓  a  refused: signature_mismatch, secre',
    '✕  a  refused: signature_mismatch, secre',
    expect.stringMatching(/^ {3}The signature/),
    expect.stringMatching(/^ {3}It fits/),
    '',
  ])
})

test('what a stranger wrote can not move the cursor', async () => {
  const body = String.raw`{"id":"evt_1","type":"a\u001b[2J\u202eb"}`
  const digest = createHmac('sha256', 'whsec_test_A').update(`1700000000.${body}`).digest('hex')
  const forged = {
    ...COMPLETE,
    id: '\u001b[31m',
    headers: { 'Stripe-Signature': `t=1700000000,v1=${digest}` },
    body_base64: Buffer.from(body).toString('base64'),
  }

  const { stdout } = await verifyFile(await write(forged), { json: false, unicode: true })
  const { result } = await verifyJson(forged)
  const json = (await verifyFile(await write(forged), { json: true })).stdout

  expect(stdout).toBe('✓  <U+001B>[31m  verified  evt_1 (a<U+001B>[2J<U+202E>b)\n')
  expect(result).toMatchObject({ id: '\u001b[31m', events: [{ type: 'a\u001b[2J\u202eb' }] })
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
  expect(stdout + json).not.toMatch(/[\u001b\u202e]/)
})

test('a file that can not be judged is exit code 2, with a message', async () => {
  const problem = async (content: unknown, lookup?: Sources) =>
    verifyFile(await write(content), { json: true, ...(lookup && { sources: lookup }) })

  expect(await verifyFile(join(folder, 'none.json'), { json: true })).toMatchObject({
    exitCode: 2,
    stdout: expect.stringContaining('ENOENT'),
  })
  expect(await problem('{')).toMatchObject({ exitCode: 2, stdout: expect.stringContaining('not JSON') })
  expect(await problem({ headers: {} })).toMatchObject({ exitCode: 2, stdout: expect.stringContaining('body_base64') })
  expect(await problem([])).toMatchObject({ exitCode: 2, stdout: expect.stringContaining('holds no request') })
  expect(await problem({ ...COMPLETE, provider: 'strip' })).toMatchObject({
    exitCode: 2,
    stdout: expect.stringContaining('unknown provider "strip"'),
  })
  expect(await problem(CAPTURED)).toMatchObject({
    exitCode: 2,
    stdout: expect.stringContaining('no source "billing" is configured'),
  })
  expect(await problem({ ...CAPTURED, url: '/elsewhere' }, sources)).toMatchObject({
    exitCode: 2,
    stdout: expect.stringContaining('names no source'),
  })
})

// --- What vectors say of a source ------------------------------------------------------------------------------------

const files = readdirSync(new URL('./vectors/', import.meta.url)).filter((name) => name.endsWith('.json'))

test.each(files)('every verdict of the vectors %s is the expected one', async (name) => {
  const path = fileURLToPath(new URL(`./vectors/${name}`, import.meta.url))
  const { vectors } = JSON.parse(readFileSync(path, 'utf8')) as { vectors: { id: string; expect: { response_body?: string } }[] }
  const { exitCode, stdout } = await verifyFile(path, { json: true })

  expect(exitCode).toBe(0)
  const results = JSON.parse(stdout) as { id: string; verified: boolean; response_body?: string }[]
  expect(results.map(({ id }) => id)).toEqual(vectors.map(({ id }) => id))
  const bodies = vectors.flatMap(({ id, expect: { response_body } }) =>
    response_body === undefined ? [] : [[id, response_body]],
  )
  const answered = new Map(results.map(({ id, response_body }) => [id, response_body]))
  for (const [id = '', body] of bodies) expect(answered.get(id), id).toBe(body)
})

test('options are taken from the names of the vectors and from `options`; other settings are remarks', async () => {
  const url = 'https://hooks.example.com/webhooks/square'
  const square = {
    provider: 'square',
    secrets: ['sq_sig_key'],
    headers: { 'X-Square-HmacSha256-Signature': 'bYaqef2d9vG+mEYTWzcqXw0NS31//AM2vEDpdJKJrSE=' },
    body_base64: CAPTURED.body_base64,
  }
  const given = (config: object) => verifyJson({ ...square, config })

  expect(await given({ notification_url: url, secret_is: 'a key', version: 'v3' })).toMatchObject({ exitCode: 0 })
  expect(await given({ options: { notificationUrl: url } })).toMatchObject({ exitCode: 0 })
  expect(await given({ notification_url: `${url}/`, options: { notificationUrl: url } })).toMatchObject({ exitCode: 0 })
  expect(await given({ notification_url: `${url}/` })).toMatchObject({
    exitCode: 1,
    result: { reason: 'signature_mismatch', cause: 'url_differs', detail: 'It fits the address without the slash at its end.' },
  })
  const without = await verifyFile(await write(square), { json: true })
  const unknown = await verifyFile(await write({ ...square, config: { options: { notificationUrl: url, extra: 1 } } }), {
    json: true,
  })
  expect([without.exitCode, unknown.exitCode]).toEqual([2, 2])
  expect(without.stdout).toContain('notificationUrl')
  expect(unknown.stdout).toContain('extra')
})

test('keys are those of the file: a name that it lacks is none, and without any they would have to be fetched', async () => {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const hash = createHash('sha256').update(BODY_H).digest('hex')
  const text = `${part({ alg: 'ES256', kid: 'k1' })}.${part({ iat: 1_700_000_000, request_body_sha256: hash })}`
  const signature = sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64url')
  const plaid = {
    provider: 'plaid',
    secrets: [],
    headers: { 'Plaid-Verification': `${text}.${signature}` },
    body_base64: CAPTURED.body_base64,
    now: 1_700_000_000,
  }
  const jwk = publicKey.export({ format: 'jwk' })
  const given = async (config: object) => (await verifyJson({ ...plaid, config })).result

  expect(await given({ jwks: { k1: jwk } })).toMatchObject({ verified: true, reason: null })
  expect(await given({ jwks: { k2: jwk } })).toMatchObject({ verified: false, reason: 'no_matching_key' })
  expect(await given({ jwks: { k1: { kty: 'broken' } } })).toMatchObject({ verified: false, reason: 'no_matching_key' })
  const pinned = (expired_at: number) => ({ options: { jwks: { keys: [{ ...jwk, kid: 'k1', expired_at }] } } })
  expect(await given(pinned(1_700_000_000))).toMatchObject({ verified: true })
  expect(await given(pinned(1_699_999_999))).toMatchObject({ verified: false, reason: 'no_matching_key' })
  expect(await given({ certs: {} })).toMatchObject({ verified: false, reason: 'no_matching_key' })
  expect(await given({})).toMatchObject({
    verified: false,
    reason: 'key_unavailable',
    cause: 'key_unavailable',
    explanation: expect.stringMatching(/has to be fetched/),
  })
})

test('a GET is verified when the provider’s check of the endpoint can be answered', async () => {
  const braintree = {
    provider: 'braintree',
    method: 'GET',
    url: 'https://hooks.example.com/webhooks/bt?bt_challenge=20f9f8ed05f77439fe955c977e4c8a53',
    headers: {},
    body_base64: '',
    secrets: ['integration_public_key:integration_private_key'],
  }
  const key = createHash('sha1').update('integration_private_key').digest()
  const digest = createHmac('sha1', key).update('20f9f8ed05f77439fe955c977e4c8a53').digest('hex')

  expect(await verifyJson(braintree)).toEqual({
    exitCode: 0,
    result: { verified: true, reason: null, events: [], response_body: `integration_public_key|${digest}` },
  })
  expect(await verifyJson({ ...braintree, url: '/webhooks/bt' })).toMatchObject({
    exitCode: 1,
    result: { verified: false, explanation: expect.stringMatching(/^A GET is answered only/) },
  })
  expect(await verifyJson({ ...braintree, provider: 'stripe' })).toMatchObject({ exitCode: 1, result: { verified: false } })
})

test('the other sources of the configuration explain a refusal, unless the file brings its own secrets', async () => {
  const all: Sources = new Map([
    ['billing', configured('billing', ['whsec_other'])],
    ['sandbox', configured('sandbox', ['whsec_test_A'], { mode: 'test' })],
  ])
  const captured = { ...CAPTURED, now: 1_700_000_000 }
  const mixed = { ...captured, provider: 'stripe', secrets: ['whsec_other'] }

  expect((await verifyJson(captured, all)).result).toMatchObject({
    reason: 'signature_mismatch',
    source: 'billing',
    cause: 'other_mode_secret',
    detail: 'It fits source "sandbox", which is of mode test.',
  })
  expect((await verifyJson(mixed, all)).result).toMatchObject({ cause: 'signature_mismatch' })
})

test('a provider that needs no secrets is judged without, and a header may be a list', async () => {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString()
  const wise = {
    provider: 'wise',
    secrets: [pem],
    headers: { 'X-Signature-SHA256': [createSign('RSA-SHA256').update(BODY_H).sign(privateKey, 'base64')] },
    body_base64: CAPTURED.body_base64,
  }
  const classic = {
    provider: 'mollie',
    headers: wise.headers,
    body_base64: Buffer.from('id=tr_5B8cwPMGnU6qLbRvo7qEZo').toString('base64'),
    config: { options: { classic: true } },
  }

  expect((await verifyJson(wise)).result).toMatchObject({ verified: true })
  expect((await verifyJson(classic)).result).toMatchObject({ verified: true })
})
