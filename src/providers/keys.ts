import { createHash, createPublicKey, createSecretKey, type KeyObject } from 'node:crypto'

/**
 * Which secrets are keys of a kind of signature, and how they become bytes: the text itself, base64 after a prefix, hex, the SHA-1
 * of the text, or a public key as PEM or as base64 of its SPKI form. `keyId`: the secret is the key's ID, a colon, and the key.
 * The ID may hold colons, as Klarna's do; such a key holds none.
 */
export type SecretForm =
  | { form: 'text'; keyId?: 'required' | 'optional' }
  | { form: 'hex'; keyId?: 'required' | 'optional' }
  | { form: 'sha1'; keyId?: 'required' | 'optional' }
  | { form: 'base64'; prefix: string; isPrefixOptional?: boolean }
  | { form: 'public key' }

/** The part of a signature's description that says what its keys are. */
export interface Keyed {
  kind: 'hmac' | 'ed25519' | 'rsa' | 'ecdsa' | 'credential'
  /** `remote`: the key stands elsewhere, and the secret, if any, is part of what is signed. */
  secret: SecretForm | 'remote'
}

/** A key, and the ID that the sender knows it by, if it has one. */
export interface Key {
  key: KeyObject
  id?: string
}

/** The specification's least length; a shorter text without a prefix is a password, not a key. */
const SHORTEST_BARE_SECRET = 24
const SHORTEST_RSA_KEY = 1024

const keyCache = new WeakMap<Keyed, Map<string, Key | undefined>>()

/** The key of a secret, made once; undefined when the secret is blank or of another kind. */
export function keyOf(kind: Keyed, secret: string): Key | undefined {
  const known = keyCache.get(kind) ?? new Map<string, Key | undefined>()
  if (!known.has(secret)) keyCache.set(kind, known.set(secret, makeKey(kind, secret)))
  return known.get(secret)
}

function makeKey({ kind, secret: form }: Keyed, secret: string): Key | undefined {
  if (secret.trim() === '' || form === 'remote') return undefined
  if (form.form === 'public key') {
    const key = publicKeyOf(secret)
    return key && isOfKind(key, kind) ? { key } : undefined
  }
  const { id, text } = 'keyId' in form && form.keyId ? splitKeyId(secret) : { text: secret }
  if ('keyId' in form && form.keyId === 'required' && id === undefined) return undefined
  const bytes = secretBytes(form, text)
  if (!bytes || bytes.length === 0) return undefined
  const named = id === undefined ? {} : { id }
  if (kind !== 'ed25519') return { key: createSecretKey(bytes), ...named }
  if (bytes.length !== 32) return undefined
  return { key: createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: bytes.toString('base64url') }, format: 'jwk' }) }
}

/** A public key from PEM, or from the base64 of its SPKI form as some dashboards show it; undefined when it is none. */
function publicKeyOf(text: string): KeyObject | undefined {
  // A private key would do as well: its public part is in it.
  if (text.includes('PRIVATE KEY')) return undefined
  try {
    return text.includes('-----BEGIN')
      ? // On one line, as environment files have it.
        createPublicKey(text.replaceAll('\\n', '\n'))
      : createPublicKey({ key: Buffer.from(text, 'base64'), format: 'der', type: 'spki' })
  } catch {
    return undefined
  }
}

/** Tells whether a public key is of the kind that a signature wants, and long enough. */
export function isOfKind({ asymmetricKeyType, asymmetricKeyDetails }: KeyObject, kind: Keyed['kind']): boolean {
  if (kind === 'rsa') return asymmetricKeyType === 'rsa' && (asymmetricKeyDetails?.modulusLength ?? 0) >= SHORTEST_RSA_KEY
  if (kind === 'ecdsa') return asymmetricKeyType === 'ec' && asymmetricKeyDetails?.namedCurve === 'prime256v1'
  return kind === 'ed25519' && asymmetricKeyType === 'ed25519'
}

function splitKeyId(secret: string): { id?: string; text: string } {
  const at = secret.lastIndexOf(':')
  return at > 0 ? { id: secret.slice(0, at), text: secret.slice(at + 1) } : { text: secret }
}

function secretBytes(form: Exclude<SecretForm, { form: 'public key' }>, secret: string): Buffer | undefined {
  if (form.form === 'text') return Buffer.from(secret)
  if (form.form === 'sha1') return secret === '' ? undefined : createHash('sha1').update(secret).digest()
  if (form.form === 'hex') return /^(?:[0-9a-fA-F]{2})+$/.test(secret) ? Buffer.from(secret, 'hex') : undefined
  const hasPrefix = secret.startsWith(form.prefix)
  const text = hasPrefix ? secret.slice(form.prefix.length) : form.isPrefixOptional ? secret : ''
  // Another prefix never gets through: its underscore is no base64.
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text)) return undefined
  const bytes = Buffer.from(text, 'base64')
  return hasPrefix || bytes.length >= SHORTEST_BARE_SECRET ? bytes : undefined
}
