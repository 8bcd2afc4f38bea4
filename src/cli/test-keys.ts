import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Private keys in PEM that sign samples of providers whose own key nobody else has. */
export type TestKeyPairs = Readonly<Record<'rsa' | 'ec' | 'ed25519', string>>

export const TEST_KEYS_FILE = 'test-keys.json'

/** The test keys of a folder, made on first use; only their owner may read them, as they sign for a running start. */
export function openTestKeys(directory: string): TestKeyPairs {
  const path = join(directory, TEST_KEYS_FILE)
  if (existsSync(path)) return readTestKeys(path)
  const pem = { type: 'pkcs8', format: 'pem' } as const
  const made = {
    rsa: generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export(pem).toString(),
    ec: generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export(pem).toString(),
    ed25519: generateKeyPairSync('ed25519').privateKey.export(pem).toString(),
  }
  writeFileSync(path, JSON.stringify(made, null, 2), { mode: 0o600 })
  return made
}

/** The test keys in a file that `openTestKeys` has made. */
export function readTestKeys(path: string): TestKeyPairs {
  return JSON.parse(readFileSync(path, 'utf8'))
}

/** The public key of a kind, as a dashboard shows it: in one line. */
export function publicKeyText(keys: TestKeyPairs, kind: 'rsa' | 'ecdsa' | 'ed25519'): string {
  const pem = kind === 'ecdsa' ? keys.ec : keys[kind]
  return createPublicKey(createPrivateKey(pem)).export({ type: 'spki', format: 'der' }).toString('base64')
}
