import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { SecretShape } from '../settings.ts'
import { publicKeyText, type TestKeyPairs } from './test-keys.ts'

/** Secrets for development, made on first use and kept beside the data, so that a restart keeps on verifying. */
export function openSecrets(directory: string, testKeys: TestKeyPairs) {
  const path = join(directory, 'secrets.json')
  const stored: Record<string, string> = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : {}
  const used: Record<string, string> = {}

  function make(shape: SecretShape | 'token'): string {
    const bytes = randomBytes(32)
    if (shape === 'hex') return bytes.toString('hex')
    if (shape === 'token') return `och_${bytes.toString('base64url')}`
    const text = `whsec_${bytes.toString('base64')}`
    return shape === 'name:text' ? `development:${text}` : text
  }

  return {
    get(name: string, shape: SecretShape | 'token' = 'text'): string {
      const isPublicKey = shape === 'rsa' || shape === 'ecdsa' || shape === 'ed25519'
      const secret = isPublicKey ? publicKeyText(testKeys, shape) : (stored[name] ?? make(shape))
      if (!isPublicKey && stored[name] === undefined) {
        stored[name] = secret
        writeFileSync(path, JSON.stringify(stored, null, 2), { mode: 0o600 })
      }
      if (shape !== 'token') used[name] = secret
      return secret
    },
    used: () => used,
  }
}
