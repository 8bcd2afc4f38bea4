import { createPublicKey, createSecretKey, type KeyObject } from 'node:crypto'

/** Which secrets are keys of a kind of signature, and how they become bytes: the text itself, or base64 after a prefix. */
export type SecretForm = { form: 'text' } | { form: 'base64'; prefix: string; isPrefixOptional?: boolean }

/** The part of a signature's description that says what its keys are. */
interface Keyed {
  kind: 'hmac' | 'ed25519'
  secret: SecretForm
}

/** The specification's least length; a shorter text without a prefix is a password, not a key. */
const SHORTEST_BARE_SECRET = 24

const keyCache = new WeakMap<Keyed, Map<string, KeyObject | undefined>>()

/** The key of a secret, made once; undefined when the secret is blank or of another kind. */
export function keyOf(kind: Keyed, secret: string): KeyObject | undefined {
  const known = keyCache.get(kind) ?? new Map<string, KeyObject | undefined>()
  if (!known.has(secret)) keyCache.set(kind, known.set(secret, makeKey(kind, secret)))
  return known.get(secret)
}

function makeKey(kind: Keyed, secret: string): KeyObject | undefined {
  const bytes = secretBytes(kind.secret, secret)
  if (!bytes || bytes.length === 0) return undefined
  if (kind.kind === 'hmac') return createSecretKey(bytes)
  if (bytes.length !== 32) return undefined
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: bytes.toString('base64url') }, format: 'jwk' })
}

function secretBytes(form: SecretForm, secret: string): Buffer | undefined {
  if (secret.trim() === '') return undefined
  if (form.form === 'text') return Buffer.from(secret)
  const hasPrefix = secret.startsWith(form.prefix)
  const text = hasPrefix ? secret.slice(form.prefix.length) : form.isPrefixOptional ? secret : ''
  // Another prefix never gets through: its underscore is no base64.
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text)) return undefined
  const bytes = Buffer.from(text, 'base64')
  return hasPrefix || bytes.length >= SHORTEST_BARE_SECRET ? bytes : undefined
}
