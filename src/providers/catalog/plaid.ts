import { createHash, createPublicKey } from 'node:crypto'
import { isIP } from 'node:net'
import { z } from 'zod'
import { field, isRecord, parseJson } from '../json.ts'
import { isOfKind } from '../keys.ts'
import { defineProvider, type KnownKey, type ProviderFacts, type RemoteKeys } from '../provider.ts'
import type { FoundScheme, SignatureKind } from '../signature.ts'

const KIND: SignatureKind = { kind: 'ecdsa', encoding: 'base64url', secret: 'remote' }
const HEADER = 'plaid-verification'
/** Plaid's tokens have about 400 characters. */
const LONGEST_TOKEN = 4_000
const TEST_KEY = 'oncehook-test'

const optionsSchema = z.strictObject({
  /** Whose keys are asked for, with the secret. */
  environment: z.enum(['production', 'sandbox']).default('production'),
  /** Where the keys are read from instead: a list `{ keys }`, one `{ key }`, or an object by key ID. */
  jwksUrl: z.url().refine(isKeyUrl, 'must be an https URL of a host by its name').optional(),
  /** The keys themselves, in one of the same forms. */
  jwks: z.custom<object>(isKeySet, 'must hold at least one P-256 key with its kid').optional(),
})
type Options = z.infer<typeof optionsSchema>

function create({ environment, jwksUrl, jwks }: Options): ProviderFacts {
  return {
    name: 'plaid',
    documentation: 'https://plaid.com/docs/api/webhooks/webhook-verification/',
    scheme,
    ...((jwksUrl !== undefined || jwks !== undefined) && { secrets: 'optional' }),
    toleranceSeconds: 300,
    idIsSigned: true,
    contentIsSigned: true,
    idBasis: 'body_hash',
    id: () => undefined,
    hashWithoutId: true,
    type(event) {
      const [type, code] = [field(event, 'webhook_type'), field(event, 'webhook_code')]
      return typeof type === 'string' && typeof code === 'string' ? `${type}.${code}` : undefined
    },
    livemode(event) {
      const stated = field(event, 'environment')
      return stated === 'production' ? true : stated === 'sandbox' || stated === 'development' ? false : undefined
    },
    occurredAt: (event) => field(event, 'timestamp'),
    object: (event) => field(event, 'payment_id') ?? field(event, 'item_id'),
    ...(jwks === undefined ? { remoteKeys: remoteKeysOf(environment, jwksUrl) } : { knownKeys: keysOf(jwks) }),
  }
}

const scheme: FoundScheme = {
  signatures: [KIND],
  place: 'header `Plaid-Verification`, a JWT by the key that its `kid` names',
  signed: 'the JWT, whose claim `request_body_sha256` is the SHA-256 of the body',
  timestamp: 'claim `iat` of the JWT',
  proofs({ headers }) {
    const [token, ...more] = headers[HEADER] ?? []
    if (!token?.trim()) return 'missing_signature'
    const parts = more.length === 0 && token.length <= LONGEST_TOKEN ? token.split('.') : []
    const [head = '', claims = '', signature = ''] = parts
    if (parts.length !== 3) return 'malformed_signature'
    // Before all else: the sender must not choose how it is checked.
    const header = readPart(head)
    if (field(header, 'alg') !== 'ES256') return header ? 'unsupported_algorithm' : 'malformed_signature'
    const kid = field(header, 'kid')
    const body = readPart(claims)
    const [signedAt, bodySha256] = [field(body, 'iat'), field(body, 'request_body_sha256')]
    const isWhole =
      typeof kid === 'string' &&
      /^[!-~]{1,100}$/.test(kid) &&
      typeof signedAt === 'number' &&
      typeof bodySha256 === 'string' &&
      // An extension that has to be understood, and isn't.
      field(header, 'crit') === undefined
    if (!isWhole) return 'malformed_signature'
    return [
      {
        signatures: [{ kind: KIND, given: [signature], keyName: kid }],
        signed: () => [[`${head}.${claims}`]],
        signedAt,
        bodySha256,
      },
    ]
  },
}

function readPart(part: string): Record<string, unknown> | undefined {
  const parsed = /^[A-Za-z0-9_-]+$/.test(part) ? parseJson(Buffer.from(part, 'base64url')) : undefined
  return parsed?.ok && isRecord(parsed.value) ? parsed.value : undefined
}

function remoteKeysOf(environment: Options['environment'], jwksUrl: string | undefined): RemoteKeys {
  const read: RemoteKeys['read'] = (text, kid) => {
    const parsed = parseJson(text)
    return parsed.ok ? keysOf(parsed.value).get(kid) : undefined
  }
  if (jwksUrl !== undefined) return { request: () => ({ url: jwksUrl }), read }
  return {
    request(kid, [secret = '']) {
      const at = secret.indexOf(':')
      return {
        url: `https://${environment}.plaid.com/webhook_verification_key/get`,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ client_id: secret.slice(0, at), secret: secret.slice(at + 1), key_id: kid }),
      }
    },
    read,
    // Plaid answers 400 to wrong credentials too, and those say nothing of the key.
    isNone: (status, text) => status === 400 && text.includes('INVALID_WEBHOOK_VERIFICATION_KEY_ID'),
  }
}

/** The P-256 keys of a set, by their IDs, each until it expires. */
function keysOf(set: unknown): Map<string, KnownKey> {
  const list = field(set, 'keys')
  const single = field(set, 'key')
  const named = isRecord(set) ? Object.entries(set).map(([kid, jwk]) => (isRecord(jwk) ? { kid, ...jwk } : undefined)) : []
  return new Map((Array.isArray(list) ? list : single === undefined ? named : [single]).flatMap(readKey))
}

function readKey(jwk: unknown): [string, KnownKey][] {
  const kid = field(jwk, 'kid')
  const algorithm = field(jwk, 'alg') ?? 'ES256'
  if (!isRecord(jwk) || typeof kid !== 'string' || algorithm !== 'ES256') return []
  const expiredAt = field(jwk, 'expired_at')
  try {
    const key = createPublicKey({ key: jwk, format: 'jwk' })
    const validUntil = typeof expiredAt === 'number' ? expiredAt : Number.POSITIVE_INFINITY
    return isOfKind(key, 'ecdsa') ? [[kid, { key, validUntil }]] : []
  } catch {
    return []
  }
}

/** Neither what anybody on the way could change nor an address inside of the network, but for this machine's own. */
function isKeyUrl(text: string): boolean {
  const url = URL.parse(text)
  if (!url) return false
  if (['localhost', '127.0.0.1', '[::1]'].includes(url.hostname)) return /^https?:$/.test(url.protocol)
  return url.protocol === 'https:' && isIP(url.hostname.replace(/^\[|\]$/g, '')) === 0
}

function isKeySet(value: unknown): boolean {
  return keysOf(value).size > 0
}

/** Plaid (plaid.com/docs/api/webhooks/webhook-verification). */
export const plaid = defineProvider({
  name: 'plaid',
  title: 'Plaid',
  options: optionsSchema,
  create,
  guide: {
    setUp:
      'Give the address `https://YOUR-HOST/webhooks/plaid` as `webhook` when you create a Link token, a transfer or a payment, or for existing Items by `/item/webhook/update`. Which events come follows from the products in use: Payment Initiation sends `PAYMENT_INITIATION.PAYMENT_STATUS_UPDATE`.',
    secret:
      "`CLIENT_ID:SECRET` from the Dashboard, Developers, Keys. It is only used to ask Plaid for the public key that signed, at `/webhook_verification_key/get`; for the sandbox add `environment: 'sandbox'`. With `jwksUrl` or `jwks` the keys come from there, and no secret is needed.",
    identity:
      'Plaid gives no ID: the SHA-256 of the body stands in. The type is `webhook_type` and `webhook_code` with a dot between them.',
    unsigned: 'Nothing of the event: the signed token holds the hash of the body. Other headers are not used.',
    retries:
      '200 within 10 s is success. Again for 24 h, first after 30 s, each pause four times the one before; stopped early if over 90 % of a day’s webhooks were refused.',
    traps: [
      '**Equal bodies count as one event**, and two real events can have equal bodies (`SYNC_UPDATES_AVAILABLE` of one Item says the same each time). Use these events for what is told once, such as a payment’s status, and fetch data by state (a cursor) elsewhere.',
      'The body has an indent of two spaces: written anew it no longer verifies.',
      'Without access to Plaid when a new key is used, or with wrong credentials, the answer is 503, and Plaid delivers again. A key is kept for at most a day, and never longer than its `expired_at`.',
    ],
  },
  sample: {
    types: { paid: 'PAYMENT_INITIATION.PAYMENT_STATUS_UPDATE' },
    newId: (unique) => `payment-id-sandbox-${unique}`,
    keyNames: () => [TEST_KEY],
    request: ({ type, id, happenedSeconds, nowSeconds, email, livemode }, sign) => {
      const [webhookType = type, ...code] = type.split('.')
      const event = {
        environment: livemode ? 'production' : 'sandbox',
        webhook_type: webhookType,
        webhook_code: code.join('.'),
        item_id: `item-${id}`,
        payment_id: id,
        new_payment_status: 'PAYMENT_STATUS_EXECUTED',
        old_payment_status: 'PAYMENT_STATUS_INITIATED',
        original_reference: 'Account holder',
        timestamp: new Date(happenedSeconds * 1000).toISOString(),
        user: { email_address: email },
      }
      const body = JSON.stringify(event, undefined, 2)
      const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
      const head = part({ alg: 'ES256', kid: TEST_KEY, typ: 'JWT' })
      const claims = part({ iat: nowSeconds, request_body_sha256: createHash('sha256').update(body).digest('hex') })
      return { headers: { [HEADER]: `${head}.${claims}.${sign(`${head}.${claims}`)}` }, body }
    },
  },
})
