import { z } from 'zod'
import { field, parseUnverified } from '../json.ts'
import { defineProvider, type ProviderFacts, type SampleEvent, type WebhookRequest } from '../provider.ts'
import type { Proof, Reason, SignatureKind } from '../signature.ts'

const kind: SignatureKind = { kind: 'hmac', algorithm: 'sha256', encoding: 'base64', secret: { form: 'hex' } }

/** Adyen sends one, and of old up to six; the bound keeps many small ones from costing much. */
const MAX_ITEMS = 100

const both = {
  name: 'adyen',
  maxBodyBytes: 512 * 1024,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'derived',
} satisfies Partial<ProviderFacts>

const standard: ProviderFacts = {
  ...both,
  documentation: 'https://docs.adyen.com/development-resources/webhooks',
  scheme: {
    signatures: [kind],
    place: '`additionalData.hmacSignature` of each item in the body; all must be right',
    signed:
      '`pspReference:originalReference:merchantAccountCode:merchantReference:amount.value:amount.currency:eventCode:success` of the item',
    proofs: itemProofs,
  },
  events: itemsOf,
  id: (item) => {
    const [reference, code, success] = ['pspReference', 'eventCode', 'success'].map((name) => textOf(field(item, name)))
    if (!reference || !code || !success) return undefined
    // The fields are signed without a border between them: cut elsewhere, one signature could make other IDs.
    if (`${reference}${code}${success}`.includes(':')) return undefined
    // A report's reference is a file name, which two merchant accounts can share.
    const account = code === 'REPORT_AVAILABLE' ? `:${textOf(field(item, 'merchantAccountCode'))}` : ''
    return `${reference}:${code}:${success}${account}`
  },
  type: (item) => field(item, 'eventCode'),
  livemode: (_item, _request, payload) => isTrue(field(payload, 'live')),
  occurredAt: (item) => field(item, 'eventDate'),
  // The payment that a capture or a refund belongs to.
  object: (item) => field(item, 'originalReference') || field(item, 'pspReference'),
  // All that is not signed: a duplicate may differ in it.
  volatileFields: ['additionalData', 'eventDate', 'operations', 'paymentMethod', 'reason'],
  answer: () => '[accepted]',
}

const platform: ProviderFacts = {
  ...both,
  documentation: 'https://docs.adyen.com/development-resources/webhooks/verify-hmac-signatures',
  scheme: {
    signatures: [{ ...kind, header: 'hmacsignature', match: /^([A-Za-z0-9+/]{43}=)$/g }],
    signed: '{body}',
  },
  id: (event) => {
    const [id, number] = ['id', 'sequenceNumber'].map((name) => textOf(field(field(event, 'data'), name)))
    return id && number ? `${field(event, 'type')}:${id}:${number}` : undefined
  },
  hashWithoutId: true,
  type: (event) => field(event, 'type'),
  livemode: (event) => ({ live: true, test: false })[String(field(event, 'environment'))],
  occurredAt: (event) => field(event, 'timestamp'),
  object: (event) => field(field(event, 'data'), 'id'),
}

/** One proof per item, over the values as they were sent: what can't be stored is mended only afterwards. */
function itemProofs({ body }: WebhookRequest): readonly Proof[] | Reason {
  const items = itemsOf(parseUnverified(body)) ?? []
  if (items.length > MAX_ITEMS) return 'malformed_signature'
  const proofs: Proof[] = []
  for (const item of items) {
    const given = field(field(item, 'additionalData'), 'hmacSignature')
    if (typeof given !== 'string' || given === '') return 'missing_signature'
    const amount = field(item, 'amount')
    const values = [
      ...['pspReference', 'originalReference', 'merchantAccountCode', 'merchantReference'].map((name) => field(item, name)),
      field(amount, 'value'),
      field(amount, 'currency'),
      ...['eventCode', 'success'].map((name) => field(item, name)),
    ].map(signedText)
    if (!/^[A-Za-z0-9+/]{43}=$/.test(given) || values.includes(undefined)) return 'malformed_signature'
    // Nothing is escaped, whatever older pages say.
    proofs.push({ signatures: [{ kind, given: [given] }], signed: () => [[values.join(':')]] })
  }
  return proofs
}

function itemsOf(payload: unknown): readonly unknown[] | undefined {
  const items = field(payload, 'notificationItems')
  return Array.isArray(items) ? items.map((item) => field(item, 'NotificationRequestItem')) : undefined
}

/** A value as it is signed: an absent one is empty. Lists and objects have no such text. */
function textOf(value: unknown): string | undefined {
  if (value === undefined || value === null) return ''
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? String(value) : undefined
}

/** Of a number that is no safe integer the digits are not known: no amount is so large. */
function signedText(value: unknown): string | undefined {
  return typeof value === 'number' && !Number.isSafeInteger(value) ? undefined : textOf(value)
}

function isTrue(value: unknown): boolean | undefined {
  return value === 'true' || value === true ? true : value === 'false' || value === false ? false : undefined
}

/** Adyen, standard and platform webhooks (docs.adyen.com; @adyen/api-library 32.1 `hmacValidator`). */
export const adyen = defineProvider({
  name: 'adyen',
  title: 'Adyen',
  options: z.strictObject({
    scheme: z.enum(['standard', 'platform']).default('standard'),
    /** `user:password`, when the webhook is set up with basic authentication. */
    basicAuth: z.string().includes(':').optional(),
  }),
  create: ({ scheme, basicAuth }) => {
    const provider = scheme === 'platform' ? platform : standard
    if (basicAuth === undefined) return provider
    const values = [`Basic ${Buffer.from(basicAuth).toString('base64')}`]
    return { ...provider, scheme: { ...provider.scheme, credential: { header: 'authorization', values } } }
  },
  guide: {
    setUp:
      "In the Customer Area under Developers, Webhooks add a **Standard webhook** with the address `https://YOUR-HOST/webhooks/adyen` and method JSON (not form, not SOAP), choose `AUTHORISATION`, `CAPTURE`, `CAPTURE_FAILED`, `REFUND` and what else the rules need, and generate an HMAC key. Platform, transfer and management webhooks need a source of their own, with `scheme: 'platform'`.",
    variants: [{ title: 'platform, transfers, management', options: { scheme: 'platform' } }],
    secret:
      "The HMAC key, in hex. Each webhook has one of its own. A new one takes a while to spread: list both here until then. If the webhook has basic authentication too, give `basicAuth: 'user:password'`, best from the environment.",
    identity:
      'Adyen gives no ID: `pspReference:eventCode:success`, as a failed authorisation can turn into a successful one under the same reference; for `REPORT_AVAILABLE` also `:merchantAccountCode`. The type is `eventCode`. Platform: `type:data.id:data.sequenceNumber`, or the hash of the body where there is no sequence number; the type is `type`. That Adyen keeps platform events apart so is not confirmed.',
    unsigned:
      'Of a standard item everything but the eight fields: `additionalData`, `reason`, `paymentMethod`, `eventDate`, `operations`, and `live`, by which test events are told from live ones. The eight are joined by `:` without escaping, so where a reference holds a colon, its border to its neighbours isn’t signed either. Of a platform event nothing. Neither has a signed time: only the ID stops a replay.',
    retries:
      'Any 2xx is success; we answer `[accepted]`, which older set-ups look for. 3 more at once, then after 2, 5, 10, 15, 30 min, 1, 2, 4, 8 h and each 8 h, for 30 days. The oldest one blocks those behind it. Adyen is said to wait for 10 s: not confirmed.',
    traps: [
      '`AUTHORISATION` comes for refused payments too, and so do `CAPTURE` and `REFUND`: a rule must look at `success`, which is the text `true` or `false`.',
      'Several items come in one POST. It is refused unless each of them is signed rightly, since an item that isn’t could be anything.',
      'A duplicate may differ in fields that are not signed; it makes no conflict.',
      'Amounts are in minor units.',
    ],
  },
  sample: {
    types: { paid: 'AUTHORISATION', failed: 'CAPTURE_FAILED', refunded: 'REFUND', payout: 'PAYOUT_THIRDPARTY' },
    newId: (unique) => unique.slice(0, 16).toUpperCase(),
    request: (event, sign) => {
      const { scheme, basicAuth } = event.options
      const made = scheme === 'platform' ? platformSample(event, sign) : standardSample(event, sign)
      const authorization = `Basic ${Buffer.from(String(basicAuth)).toString('base64')}`
      return { ...made, headers: { ...made.headers, ...(basicAuth !== undefined && { authorization }) } }
    },
  },
})

function standardSample({ type, id, happenedSeconds, email, livemode }: SampleEvent, sign: (text: string) => string) {
  const text = `${id}::ExampleECOM:ORDER-${id}:4200:EUR:${type}:true`
  const item = {
    additionalData: { hmacSignature: sign(text), shopperEmail: email },
    amount: { currency: 'EUR', value: 4200 },
    eventCode: type,
    eventDate: new Date(happenedSeconds * 1000).toISOString(),
    merchantAccountCode: 'ExampleECOM',
    merchantReference: `ORDER-${id}`,
    paymentMethod: 'visa',
    pspReference: id,
    reason: '',
    success: 'true',
  }
  const body = JSON.stringify({ live: String(livemode), notificationItems: [{ NotificationRequestItem: item }] })
  return { headers: {}, body }
}

function platformSample({ type, id, happenedSeconds, email, livemode }: SampleEvent, sign: (text: string) => string) {
  const body = JSON.stringify({
    data: {
      balancePlatform: 'ExamplePlatform',
      accountHolder: { description: email },
      amount: { currency: 'EUR', value: 4200 },
      id,
      sequenceNumber: 1,
      status: 'captured',
    },
    environment: livemode ? 'live' : 'test',
    timestamp: new Date(happenedSeconds * 1000).toISOString(),
    type,
  })
  return { headers: { hmacsignature: sign(body), protocol: 'HmacSHA256' }, body }
}
