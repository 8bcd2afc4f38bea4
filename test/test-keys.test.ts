import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { openSecrets } from '../src/cli/development-secrets.ts'
import { openTestKeys, TEST_KEYS_FILE } from '../src/cli/test-keys.ts'
import { env, productionProblems, readConfig, type SourceConfig } from '../src/config.ts'
import { createRemoteKeys } from '../src/events/remote-keys.ts'
import { readTestKeys } from '../src/events/test-keys.ts'
import { isUsableSecret, verify } from '../src/providers/signature.ts'
import { sampleRequest } from '../src/sandbox/samples.ts'
import { ConfigError, readSettings, type UnsetSecret } from '../src/settings.ts'
import { requestOf } from './support/provider-setups.ts'

const log = { info: () => undefined, warn: () => undefined }
const fetch = () => Promise.reject(new Error('no network in the tests'))

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'oncehook-test-keys-'))
  onTestFinished(() => rmSync(path, { recursive: true }))
  return path
}

function sourceOf(options: SourceConfig) {
  const source = readConfig({ sources: { it: options } }).sources.get('it')
  if (!source) throw new Error('no source')
  return source
}

const remote: SourceConfig[] = [
  { provider: 'paypal', secrets: ['9XL90610J3647323C'] },
  { provider: 'paypal', secrets: ['9XL90610J3647323C'], mode: 'test' },
  { provider: 'paypal', secrets: ['9XL90610J3647323C'], certHosts: ['certs.example.com'] },
  { provider: 'paypal', secrets: ['9XL90610J3647323C'], postback: { clientId: 'a', clientSecret: 'b' } },
  { provider: 'aws-sns', topicArns: ['arn:aws:sns:eu-west-1:123456789012:a'] },
  { provider: 'plaid', secrets: ['client:secret'] },
  { provider: 'plaid', jwksUrl: 'https://keys.example.com/' },
]

test('the keys are made once, and only their owner may read them', () => {
  const directory = folder()

  const [first, second] = [openTestKeys(directory), openTestKeys(directory)]

  expect(second).toEqual(first)
  expect(statSync(join(directory, TEST_KEYS_FILE)).mode & 0o777).toBe(0o600)
  expect(Object.keys(JSON.parse(readFileSync(join(directory, TEST_KEYS_FILE), 'utf8')))).toEqual(['rsa', 'ec', 'ed25519'])
})

test.each(remote)('samples for %j are accepted by a service that has the test keys, and by no other', (options) => {
  const directory = folder()
  const source = sourceOf(options)
  const { provider } = source
  const privateKeys = openTestKeys(directory)
  const sample = sampleRequest({
    provider: provider.name,
    options: source.options,
    secret: source.secrets[0] ?? '',
    type: 'A.TYPE',
    nowSeconds: 1_800_000_000,
    livemode: source.mode === 'live',
    privateKeys,
  })
  const judge = (testKeys?: ReturnType<typeof readTestKeys>) => {
    const ring = createRemoteKeys({ log, fetch, testKeys }).ring(source)
    return verify(provider.scheme, requestOf(sample), source.secrets, 1_800_000_000, 300, ring)
  }

  expect(judge(readTestKeys(join(directory, TEST_KEYS_FILE)))).toMatchObject({ ok: true })
  expect(judge()).toMatchObject({ ok: false, reason: 'key_unavailable' })
  const others = folder()
  openTestKeys(others)
  expect(judge(readTestKeys(join(others, TEST_KEYS_FILE)))).toMatchObject({ ok: false, reason: 'signature_mismatch' })
})

test('the test keys stand for their own names alone', () => {
  const directory = folder()
  openTestKeys(directory)
  const store = createRemoteKeys({ log, fetch, testKeys: readTestKeys(join(directory, TEST_KEYS_FILE)) })

  expect(store.ring(sourceOf({ provider: 'plaid', secrets: ['client:secret'] }))('another-key', 0)).toBeUndefined()
  expect(store.ring(sourceOf({ provider: 'stripe', secrets: ['whsec_test_A'] }))('oncehook-test', 0)).toBe('unknown')
})

test('I22 production refuses test keys', () => {
  const settings = readSettings({
    DATABASE_URL: 'postgres://db/oncehook',
    INBOXILI_API_KEY: 'ik_live_test123',
    ONCEHOOK_TEST_KEYS: '/data/test-keys.json',
  })

  expect(productionProblems(settings, readConfig({ sources: {} }))).toEqual([
    'ONCEHOOK_TEST_KEYS is set: in production the signatures of samples are refused',
  ])
})

test.each([
  ['stripe', 'text'],
  ['standard-webhooks', 'text'],
  ['paypal', 'text'],
  ['plaid', 'text'],
  ['adyen', 'hex'],
  ['braintree', 'name:text'],
  ['chargebee', 'name:text'],
  ['wise', 'rsa'],
  ['paddle-classic', 'rsa'],
  ['sendgrid', 'ecdsa'],
])('a development secret for %s is of the shape %s, is usable, and stays', (provider, shape) => {
  const directory = folder()
  const testKeys = openTestKeys(directory)

  const [unset] = unsetOf({ sources: { it: { provider, secrets: env.list('NOWHERE_SECRETS') } } })
  const secret = openSecrets(directory, testKeys).get('NOWHERE_SECRETS', unset?.shape)

  expect(unset).toEqual({ name: 'NOWHERE_SECRETS', shape })
  const source = sourceOf({ provider, secrets: [secret] })
  expect(isUsableSecret(source.provider.scheme, secret)).toBe(true)
  // It goes through the environment, as one of a comma list.
  expect(secret).not.toMatch(/[,\s]/)
  const again = openSecrets(directory, testKeys)
  expect(again.get('NOWHERE_SECRETS', unset?.shape)).toBe(secret)
  expect(again.used()).toEqual({ NOWHERE_SECRETS: secret })
})

function unsetOf(config: Parameters<typeof readConfig>[0]): readonly UnsetSecret[] {
  try {
    readConfig(config)
    return []
  } catch (error) {
    if (error instanceof ConfigError) return error.unset
    throw error
  }
}
