import { createHash, createHmac, type KeyObject, timingSafeEqual, verify as verifyAsymmetric } from 'node:crypto'
import { isOfKind, isSecretText, keyOf, type SecretForm } from './keys.ts'
import type { HeaderValues, WebhookRequest } from './provider.ts'

/** Where a value stands: in the first of these headers that is there and not blank; the first group of `match` (global) is the value. */
interface Place {
  header: string | readonly string[]
  match: RegExp
}

/** How a signature is made, and by what. A public key whose secret is `remote` is looked up by the name the request gives it. */
export type SignatureKind =
  | {
      kind: 'hmac'
      algorithm: 'sha1' | 'sha256' | 'sha512'
      encoding: 'hex' | 'base64'
      secret: SecretForm
      /** The provider's own library reads upper-case hex too. */
      anyCase?: boolean
    }
  | { kind: 'ed25519'; encoding: 'base64'; secret: SecretForm }
  | { kind: 'rsa'; algorithm: 'sha1' | 'sha256'; encoding: 'base64'; secret: SecretForm | 'remote' }
  /** P-256 with SHA-256: DER in base64, or the two numbers side by side in base64url as JWTs have them. */
  | { kind: 'ecdsa'; encoding: 'base64' | 'base64url'; secret: SecretForm | 'remote' }
  /** The secret itself, or its base64 after `Basic`: it proves who sent the request and nothing of what it says. */
  | { kind: 'credential'; encoding: 'plain' | 'basic'; secret: SecretForm }

/** A scheme whose signature stands in a header. It is data: `headerProofs` reads them all. */
export interface HeaderScheme {
  signatures: readonly (Place & SignatureKind)[]
  /** The header is a list whose unknown elements are skipped: without a known one the signature is missing, not malformed. */
  isExtensible?: boolean
  /** The header may come more than once, with a signature in each. */
  isRepeatable?: boolean
  /** The signed time. */
  timestamp?: Place & { unit?: 'seconds' | 'milliseconds' }
  /** A signed ID; its match must allow printable ASCII only, so that its bytes are its characters. */
  id?: Place
  /** The ID of the key that signed; with it only the secret of that ID counts, if the secrets have IDs. */
  keyId?: Place
  /** What is signed: `{body}` once, with `{timestamp}`, `{id}` as on the wire and `{url}` as configured; empty where nothing is. */
  signed: string
  /** The address that the provider was given, which it signs. */
  url?: string
  /** A second, static credential that has to be there as well. */
  credential?: { header: string; values: readonly string[] }
}

/** A scheme whose signature or signed text has to be looked for: in the body, the URL or a token. */
export interface FoundScheme {
  signatures: readonly SignatureKind[]
  /** Where the signature stands, in words. */
  place: string
  /** What is signed, in words. */
  signed: string
  /** Where the signed time stands, in words. */
  timestamp?: string
  credential?: HeaderScheme['credential']
  /** What has to be proven, all of it; nothing found is `missing_signature`. It never throws. */
  proofs(request: WebhookRequest, secrets: readonly string[]): readonly Proof[] | Reason
}

/** Nothing is signed and nobody is known: whatever comes has to be fetched back. */
interface UnsignedScheme {
  isUnsigned: true
  /** Tells whether a request is in the provider's form; what isn't is refused, so that little can be had stored. */
  isOfForm(request: WebhookRequest): boolean
}

export type SignatureScheme = HeaderScheme | FoundScheme | UnsignedScheme

/** One thing to be proven: any of its signatures does. */
export interface Proof {
  signatures: readonly GivenSignature[]
  /** The ways to write the signed text, any of which does, under this secret. */
  signed(secret: string): readonly SignedText[]
  /** The signed time in unix seconds. */
  signedAt?: number
  /** Lower-case hex of the SHA-256 that the signed text says the body has. */
  bodySha256?: string
}

interface GivenSignature {
  kind: SignatureKind
  given: readonly string[]
  keyId?: string | undefined
  /** The name of a remote key. */
  keyName?: string
}

/** The parts of a signed text, one after the other. */
export type SignedText = readonly (string | Buffer)[]

/**
 * Looks up a remote key: `unknown` when there surely is none under that name, undefined when it has to be fetched first. Where the
 * provider was asked about this very request, its word stands in for the key.
 */
export type Keyring = (name: string, nowSeconds: number) => KeyObject | ProviderWord | 'unknown' | undefined

/** A provider's own word on the signature of one request, and under which secret it is right. */
export interface ProviderWord {
  isRight: boolean
  secretIndex?: number
}

export type Reason =
  | 'signature_mismatch'
  | 'missing_signature'
  | 'malformed_signature'
  | 'timestamp_too_old'
  | 'timestamp_too_new'
  | 'no_matching_key'
  | 'bad_credentials'
  | 'body_hash_mismatch'
  | 'untrusted_cert_url'
  | 'unsupported_algorithm'
  | 'unexpected_topic'

/** `secretIndex` is missing where no secret was needed; `keyName` names the remote key that has to be fetched before it can be told. */
export type Verdict =
  | { ok: true; secretIndex?: number; signedAt?: number }
  | { ok: false; reason: Reason; signedAt?: number }
  | { ok: false; reason: 'key_unavailable'; keyName: string }

/** No sender signs with more live secrets than this; the bound keeps a long header from costing many public-key checks. */
const MAX_SIGNATURES = 16
const TIMESTAMP = { seconds: /^[0-9]{1,12}$/, milliseconds: /^[0-9]{1,15}$/ }

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
  keyring: Keyring = () => 'unknown',
): Verdict {
  if ('isUnsigned' in scheme) return scheme.isOfForm(request) ? { ok: true } : { ok: false, reason: 'malformed_signature' }
  const refusal = scheme.credential && checkCredential(request.headers, scheme.credential)
  if (refusal) return { ok: false, reason: refusal }
  const proofs = 'proofs' in scheme ? scheme.proofs(request, secrets) : headerProofs(scheme, request)
  if (typeof proofs === 'string') return { ok: false, reason: proofs }
  if (proofs.length === 0) return { ok: false, reason: 'missing_signature' }

  let verdict: Verdict = { ok: true }
  for (const proof of proofs) {
    verdict = check(proof, request, secrets, { nowSeconds, toleranceSeconds, keyring })
    if (!verdict.ok) return verdict
  }
  return verdict
}

/** The signature text that a sender with this secret puts in a request; undefined where the secret can't sign. */
export function sign(kind: SignatureKind, secret: string, text: SignedText): string | undefined {
  if (kind.kind === 'credential') return kind.encoding === 'basic' ? Buffer.from(secret).toString('base64') : secret
  const found = kind.kind === 'hmac' ? keyOf(kind, secret) : undefined
  return kind.kind === 'hmac' && found ? mac(kind, found.key, text) : undefined
}

/** Tells whether a secret can verify anything under a scheme: no text that anybody could guess, and in the form that one of its kinds wants. */
export function isUsableSecret(scheme: SignatureScheme, secret: string): boolean {
  if ('isUnsigned' in scheme) return false
  return scheme.signatures.some((kind) => {
    if (kind.secret === 'remote') return isSecretText(secret)
    return keyOf(kind, secret) !== undefined && (kind.encoding !== 'basic' || isUserAndPassword(secret))
  })
}

function isUserAndPassword(secret: string): boolean {
  const at = secret.indexOf(':')
  return at > 0 && isSecretText(secret.slice(0, at)) && isSecretText(secret.slice(at + 1))
}

/** Tells whether a scheme signs the time: its signatures grow old. */
export function isTimed(scheme: SignatureScheme): boolean {
  return !('isUnsigned' in scheme) && scheme.timestamp !== undefined
}

function check(
  proof: Proof,
  { body }: WebhookRequest,
  secrets: readonly string[],
  { nowSeconds, toleranceSeconds, keyring }: { nowSeconds: number; toleranceSeconds: number; keyring: Keyring },
): Verdict {
  let reason: Reason = 'no_matching_key'
  let match: { secretIndex?: number } | undefined
  for (const signature of proof.signatures) {
    const { kind, given, keyName } = signature
    if (given.length > MAX_SIGNATURES) return { ok: false, reason: 'malformed_signature' }
    const remote = kind.secret === 'remote' ? keyring(keyName ?? '', nowSeconds) : undefined
    if (kind.secret === 'remote' && remote === undefined) return { ok: false, reason: 'key_unavailable', keyName: keyName ?? '' }
    if (typeof remote === 'object' && 'isRight' in remote) {
      reason = 'signature_mismatch'
      if (remote.isRight) match = remote.secretIndex === undefined ? {} : { secretIndex: remote.secretIndex }
      break
    }
    // A remote key is tried with each secret too, as the secret may be part of what is signed.
    for (const [index, secret] of (remote && secrets.length === 0 ? [''] : secrets).entries()) {
      const key = remote ?? usableKey(signature, secret)
      if (key === undefined || key === 'unknown' || (remote && !isOfKind(key, kind.kind))) continue
      reason = kind.kind === 'credential' ? 'bad_credentials' : 'signature_mismatch'
      if (proof.signed(secret).some((text) => isSigned(kind, key, given, text)))
        match ??= secrets.length ? { secretIndex: index } : {}
      if (match) break
    }
    if (match) break
  }
  if (!match) return { ok: false, reason }

  // Only now, so that these reasons mean: right, but stale, or of another body.
  const { signedAt } = proof
  const at = signedAt === undefined ? {} : { signedAt }
  if (proof.bodySha256 !== undefined && !isEqual(proof.bodySha256, createHash('sha256').update(body).digest('hex')))
    return { ok: false, reason: 'body_hash_mismatch', ...at }
  if (signedAt === undefined) return { ok: true, ...match }
  // Written so that a NaN is refused.
  if (!(nowSeconds - signedAt <= toleranceSeconds)) return { ok: false, reason: 'timestamp_too_old', signedAt }
  if (!(signedAt - nowSeconds <= toleranceSeconds)) return { ok: false, reason: 'timestamp_too_new', signedAt }
  return { ok: true, ...match, signedAt }
}

function usableKey({ kind, keyId }: GivenSignature, secret: string): KeyObject | undefined {
  const found = keyOf(kind, secret)
  const isOther = keyId !== undefined && found?.id !== undefined && found.id !== keyId
  return isOther ? undefined : found?.key
}

function headerProofs(scheme: HeaderScheme, request: WebhookRequest): readonly Proof[] | Reason {
  const found = findSignatures(scheme, request.headers)
  if (typeof found === 'string') return found
  const timestamp = scheme.timestamp && onlyMatch(request.headers, scheme.timestamp)
  const id = scheme.id && onlyMatch(request.headers, scheme.id)
  const { unit = 'seconds' } = scheme.timestamp ?? {}
  if (scheme.timestamp && !(timestamp !== undefined && TIMESTAMP[unit].test(timestamp))) return 'malformed_signature'
  if (scheme.id && !id) return 'malformed_signature'
  const keyId = scheme.keyId && onlyMatch(request.headers, scheme.keyId)

  const known = { timestamp, id, url: scheme.url }
  const text = textParts(scheme.signed).map((part) =>
    part === 'body' ? request.body : 'text' in part ? part.text : (known[part.name] ?? ''),
  )
  const seconds = Number(timestamp) / (unit === 'seconds' ? 1 : 1_000)
  return [
    {
      signatures: found.map((signature) => ({ ...signature, keyId })),
      signed: () => [text],
      ...(timestamp !== undefined && { signedAt: seconds }),
    },
  ]
}

type TextPart = 'body' | { text: string } | { name: 'timestamp' | 'id' | 'url' }

const partsOfTexts = new Map<string, readonly TextPart[]>()

/** The parts of a scheme's signed text, taken apart once: there are as many as the configuration has schemes. */
function textParts(signed: string): readonly TextPart[] {
  const known = partsOfTexts.get(signed)
  if (known) return known
  const parts = signed
    .split(/(\{(?:body|timestamp|id|url)\})/)
    .filter((part) => part !== '')
    .map((part): TextPart => {
      if (part === '{body}') return 'body'
      const name = (['timestamp', 'id', 'url'] as const).find((each) => part === `{${each}}`)
      return name ? { name } : { text: part }
    })
  partsOfTexts.set(signed, parts)
  return parts
}

function findSignatures(scheme: HeaderScheme, headers: HeaderValues): Reason | GivenSignature[] {
  let reason: Reason = 'missing_signature'
  const found: GivenSignature[] = []
  for (const kind of scheme.signatures) {
    const values = headerValues(headers, kind.header)
    if (values.length > 1 && !scheme.isRepeatable) return 'malformed_signature'
    const given = values.flatMap((value) => matches(value, kind.match))
    if (given.length > 0) found.push({ kind, given })
    else if (values.some((value) => value.trim() !== '') && !scheme.isExtensible) reason = 'malformed_signature'
  }
  return found.length > 0 ? found : reason
}

function headerValues(headers: HeaderValues, names: string | readonly string[]): readonly string[] {
  let blank: readonly string[] = []
  for (const name of typeof names === 'string' ? [names] : names) {
    const values = headers[name] ?? []
    if (values.some((value) => value.trim() !== '')) return values
    if (values.length > 0) blank = values
  }
  return blank
}

function onlyMatch(headers: HeaderValues, place: Place): string | undefined {
  const found = matches(headerValue(headers, place.header) ?? '', place.match)
  return found.length === 1 ? found[0] : undefined
}

function matches(text: string, pattern: RegExp): string[] {
  const found: string[] = []
  // Not matchAll: it makes a copy of the pattern for each text.
  pattern.lastIndex = 0
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    found.push(match[1] ?? '')
    if (match[0] === '') pattern.lastIndex += 1
  }
  return found
}

function checkCredential(headers: HeaderValues, { header, values }: NonNullable<HeaderScheme['credential']>): Reason | undefined {
  const [given, ...more] = headerValues(headers, header)
  if (given === undefined || given === '') return 'missing_signature'
  return more.length === 0 && values.some((value) => isText(given, Buffer.from(value))) ? undefined : 'bad_credentials'
}

function isSigned(kind: SignatureKind, key: KeyObject, given: readonly string[], text: SignedText): boolean {
  if (kind.kind === 'hmac') {
    // The encoded texts are compared: base64 with altered trailing bits decodes to the same bytes.
    const expected = mac(kind, key, text)
    return given.some((signature) => isEqual(kind.anyCase ? signature.toLowerCase() : signature, expected))
  }
  if (kind.kind === 'credential') {
    const secret = key.export()
    return given.some((value) =>
      kind.encoding === 'basic' ? isEqual(Buffer.from(value, 'base64'), secret) : isText(value, secret),
    )
  }
  const signed = Buffer.concat(text.map((part) => Buffer.from(part as string)))
  const algorithm = kind.kind === 'ed25519' ? null : kind.kind === 'rsa' ? kind.algorithm : 'sha256'
  const dsaEncoding = kind.encoding === 'base64url' ? 'ieee-p1363' : 'der'
  return given.some((encoded) => {
    const signature = Buffer.from(encoded, kind.encoding)
    // Other ways to write the same bytes are no signature that the sender has made.
    return signature.toString(kind.encoding) === encoded && verifyAsymmetric(algorithm, signed, { key, dsaEncoding }, signature)
  })
}

/** Compares in a time that tells nothing of the content, whatever the lengths are. */
function isEqual(given: string | Buffer, expected: string | Buffer): boolean {
  const [a, b] = [Buffer.from(given as string), Buffer.from(expected as string)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Compares a header with a text; Node reads the bytes of a header as Latin-1, a captured one may be the text itself. */
function isText(given: string, expected: Buffer): boolean {
  return isEqual(given, expected) || isEqual(Buffer.from(given, 'latin1'), expected)
}

function mac({ algorithm, encoding }: SignatureKind & { kind: 'hmac' }, key: KeyObject, text: SignedText): string {
  const hmac = createHmac(algorithm, key)
  for (const part of text) if (part.length > 0) hmac.update(part)
  return hmac.digest(encoding)
}
