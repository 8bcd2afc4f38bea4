import { createHmac, type KeyObject, timingSafeEqual, verify as verifyAsymmetric } from 'node:crypto'
import { keyOf, type SecretForm } from './keys.ts'
import type { HeaderValues, WebhookRequest } from './provider.ts'

/** Where a value stands: in the first of these headers that is there; the first group of `match` (global) is the value. */
interface Place {
  header: string | readonly string[]
  match: RegExp
}

interface HmacSignature extends Place {
  kind: 'hmac'
  algorithm: 'sha1' | 'sha256' | 'sha512'
  encoding: 'hex' | 'base64'
  secret: SecretForm
  /** The provider's own library reads upper-case hex too. */
  anyCase?: boolean
}

interface Ed25519Signature extends Place {
  kind: 'ed25519'
  secret: SecretForm
}

type SignatureKind = HmacSignature | Ed25519Signature

/** A signature scheme is data; `verify` reads them all. */
export interface SignatureScheme {
  signatures: readonly SignatureKind[]
  /** The header is a list whose unknown elements are skipped: without a known one the signature is missing, not malformed. */
  isExtensible?: boolean
  /** The signed time, in unix seconds. */
  timestamp?: Place
  /** A signed ID; its match must allow printable ASCII only, so that its bytes are its characters. */
  id?: Place
  /** What is signed: `{body}` once, with `{timestamp}` and `{id}` as on the wire. */
  signed: string
}

export type Reason =
  | 'signature_mismatch'
  | 'missing_signature'
  | 'malformed_signature'
  | 'timestamp_too_old'
  | 'timestamp_too_new'
  | 'no_matching_key'

export type Verdict = { ok: true; secretIndex: number; signedAt?: number } | { ok: false; reason: Reason }

/** No sender signs with more live secrets than this; the bound keeps a long header from costing many public-key checks. */
const MAX_SIGNATURES = 16
const TIMESTAMP = /^[0-9]{1,12}$/

/** The value of the first header that is there; undefined when there is none, or when it comes twice. */
export function headerValue(headers: HeaderValues, names: string | readonly string[]): string | undefined {
  const values = headerValues(headers, names)
  return values.length === 1 ? values[0] : undefined
}

/** Tells whether any configured secret made any of the request's signatures, and whether its signed time is near enough. */
export function verify(
  scheme: SignatureScheme,
  request: WebhookRequest,
  secrets: readonly string[],
  nowSeconds: number,
  toleranceSeconds: number,
): Verdict {
  const found = findSignatures(scheme, request.headers)
  if (typeof found === 'string') return { ok: false, reason: found }
  const timestamp = scheme.timestamp && onlyMatch(request.headers, scheme.timestamp)
  const id = scheme.id && onlyMatch(request.headers, scheme.id)
  if (scheme.timestamp && !(timestamp !== undefined && TIMESTAMP.test(timestamp)))
    return { ok: false, reason: 'malformed_signature' }
  if (scheme.id && !id) return { ok: false, reason: 'malformed_signature' }

  const [head, tail] = around(scheme.signed, { timestamp, id })
  const keys = found.flatMap(({ kind, given }) =>
    secrets.flatMap((secret, secretIndex) => {
      const key = keyOf(kind, secret)
      return key ? [{ kind, given, key, secretIndex }] : []
    }),
  )
  if (keys.length === 0) return { ok: false, reason: 'no_matching_key' }
  const match = keys.find(({ kind, given, key }) => isSigned(kind, key, given, head, request.body, tail))
  if (!match) return { ok: false, reason: 'signature_mismatch' }
  if (timestamp === undefined) return { ok: true, secretIndex: match.secretIndex }

  // Only now, so that these reasons mean: right, but stale. Written so that a NaN is refused.
  const signedAt = Number(timestamp)
  if (!(nowSeconds - signedAt <= toleranceSeconds)) return { ok: false, reason: 'timestamp_too_old' }
  if (!(signedAt - nowSeconds <= toleranceSeconds)) return { ok: false, reason: 'timestamp_too_new' }
  return { ok: true, secretIndex: match.secretIndex, signedAt }
}

/** The signature text that a sender with this secret puts in the header; undefined where the scheme can't sign with it. */
export function sign(
  scheme: SignatureScheme,
  secret: string,
  values: { timestamp?: string; id?: string },
  body: Buffer,
): string | undefined {
  const [head, tail] = around(scheme.signed, values)
  const kind = scheme.signatures.find((each) => each.kind === 'hmac')
  const key = kind && keyOf(kind, secret)
  return kind && key && mac(kind, key, head, body, tail)
}

/** Tells whether a secret can verify anything under a scheme: not blank, and in the form that one of its kinds wants. */
export function isUsableSecret(scheme: SignatureScheme, secret: string): boolean {
  return scheme.signatures.some((kind) => keyOf(kind, secret) !== undefined)
}

function findSignatures(scheme: SignatureScheme, headers: HeaderValues): Reason | { kind: SignatureKind; given: string[] }[] {
  let reason: Reason = 'missing_signature'
  const found: { kind: SignatureKind; given: string[] }[] = []
  for (const kind of scheme.signatures) {
    const values = headerValues(headers, kind.header)
    if (values.length > 1) return 'malformed_signature'
    const value = values[0] ?? ''
    const given = matches(value, kind.match)
    if (given.length > MAX_SIGNATURES) return 'malformed_signature'
    if (given.length > 0) found.push({ kind, given })
    else if (value.trim() !== '' && !scheme.isExtensible) reason = 'malformed_signature'
  }
  return found.length > 0 ? found : reason
}

function headerValues(headers: HeaderValues, names: string | readonly string[]): readonly string[] {
  for (const name of typeof names === 'string' ? [names] : names) {
    const values = headers[name]
    if (values !== undefined && values.length > 0) return values
  }
  return []
}

function onlyMatch(headers: HeaderValues, place: Place): string | undefined {
  const found = matches(headerValue(headers, place.header) ?? '', place.match)
  return found.length === 1 ? found[0] : undefined
}

function matches(text: string, pattern: RegExp): string[] {
  return Array.from(text.matchAll(pattern), (match) => match[1] ?? '')
}

function around(template: string, values: { timestamp?: string | undefined; id?: string | undefined }): [string, string] {
  const [head = '', tail = ''] = template.split('{body}')
  const fill = (text: string) =>
    text.replaceAll('{timestamp}', () => values.timestamp ?? '').replaceAll('{id}', () => values.id ?? '')
  return [fill(head), fill(tail)]
}

function isSigned(kind: SignatureKind, key: KeyObject, given: string[], head: string, body: Buffer, tail: string): boolean {
  if (kind.kind === 'ed25519') {
    const signed = Buffer.concat([Buffer.from(head), body, Buffer.from(tail)])
    return given.some((text) => {
      const signature = Buffer.from(text, 'base64')
      return signature.length === 64 && signature.toString('base64') === text && verifyAsymmetric(null, signed, key, signature)
    })
  }
  // The encoded texts are compared: base64 with altered trailing bits decodes to the same bytes.
  const expected = Buffer.from(mac(kind, key, head, body, tail))
  return given.some((text) => {
    const candidate = Buffer.from(kind.anyCase ? text.toLowerCase() : text)
    return candidate.length === expected.length && timingSafeEqual(candidate, expected)
  })
}

function mac(kind: HmacSignature, key: KeyObject, head: string, body: Buffer, tail: string): string {
  const hmac = createHmac(kind.algorithm, key)
  if (head) hmac.update(head)
  hmac.update(body)
  if (tail) hmac.update(tail)
  return hmac.digest(kind.encoding)
}
