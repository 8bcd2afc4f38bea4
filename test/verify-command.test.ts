import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type SourceLookup, verifyFile } from '../src/cli/verify.ts'
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

const sources: SourceLookup = (name) =>
  name === 'billing' ? { provider: createProvider('stripe'), secrets: ['whsec_test_A'], toleranceSeconds: 600 } : undefined

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
async function verifyJson(content: unknown, lookup?: SourceLookup) {
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

test('prints one line a request, with a reason in plain words and without a secret', async () => {
  const good = await verifyFile(await write(COMPLETE), { json: false })
  const bad = await verifyFile(await write({ ...COMPLETE, secrets: ['whsec_test_B'] }), { json: false })

  expect(good).toEqual({ exitCode: 0, stdout: '✓  verified  evt_1 (invoice.paid)\n' })
  expect(bad.exitCode).toBe(1)
  expect(bad.stdout).toMatch(/^✕ {2}refused: signature_mismatch {2}No configured secret made this signature .*\.\n$/)
  expect(bad.stdout).not.toContain('whsec_')
})

test('a file that can not be judged is exit code 2, with a message', async () => {
  const problem = async (content: unknown, lookup?: SourceLookup) =>
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
