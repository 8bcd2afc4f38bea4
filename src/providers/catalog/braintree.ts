import { createHash } from 'node:crypto'
import { z } from 'zod'
import { readForm } from '../form.ts'
import { field, isRecord } from '../json.ts'
import { keyOf } from '../keys.ts'
import { defineProvider, type ProviderFacts, type WebhookRequest } from '../provider.ts'
import { type Proof, type Reason, type SignatureKind, sign } from '../signature.ts'
import { readXml } from '../xml.ts'

const kind: SignatureKind = { kind: 'hmac', algorithm: 'sha1', encoding: 'hex', secret: { form: 'sha1', keyId: 'required' } }

/** One pair per live key, and nobody has many; the bound keeps a long list from costing much. */
const MAX_PAIRS = 16

/** What Braintree asks an endpoint to sign. */
const CHALLENGE = /^[a-f0-9]{20,32}$/

const provider: ProviderFacts = {
  name: 'braintree',
  documentation: 'https://developer.paypal.com/braintree/docs/guides/webhooks/parse',
  scheme: {
    signatures: [kind],
    place: 'form field `bt_signature` (`PUBLIC_KEY|HEX`, several joined by `&`)',
    signed: 'the text of the form field `bt_payload`, or that text and a newline',
    proofs,
  },
  maxBodyBytes: 256 * 1024,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'body_hash',
  id: (_event, request) => {
    const xml = xmlOf(request)
    return xml && `sha256:${createHash('sha256').update(xml).digest('hex')}`
  },
  type: (event) => field(event, 'kind'),
  occurredAt: (event) => field(event, 'timestamp'),
  // The subject holds one element, named after what it is.
  object: (event) => {
    const subject = field(event, 'subject')
    return isRecord(subject) ? field(Object.values(subject)[0], 'id') : undefined
  },
  jsonText: (request) => {
    const text = xmlOf(request)?.toString() ?? ''
    const document = readXml(text)
    return document?.name === 'notification' ? JSON.stringify(document.value) : text
  },
  challenge: (query, secrets) => {
    const [challenge = '', ...more] = new URLSearchParams(query).getAll('bt_challenge')
    const secret = secrets.find((each) => keyOf(kind, each) !== undefined)
    if (secret === undefined || more.length > 0 || !CHALLENGE.test(challenge)) return undefined
    return `${keyOf(kind, secret)?.id}|${sign(kind, secret, [challenge])}`
  },
}

function proofs({ body }: WebhookRequest): readonly Proof[] | Reason {
  const form = readForm(body)
  if (!form) return 'malformed_signature'
  const [signature = '', ...more] = form.getAll('bt_signature')
  if (signature.trim() === '') return 'missing_signature'
  const pairs = signature.split('&').map((pair) => pair.split('|'))
  const payload = payloadOf(form)
  if (payload === undefined || more.length > 0 || pairs.length > MAX_PAIRS) return 'malformed_signature'
  const signatures = pairs.flatMap(([keyId, given]) => (keyId && given ? [{ kind, given: [given], keyId }] : []))
  if (signatures.length === 0) return 'malformed_signature'
  // On some ways the newline at the end is lost.
  return [{ signatures, signed: () => [[payload], [payload, '\n']] }]
}

/**
 * Base64 in lines; undefined where any other character is in it, as in the library. Nor is it what a challenge could be: that is
 * signed here for whoever asks.
 */
function payloadOf(form: URLSearchParams): string | undefined {
  const [payload = '', ...more] = form.getAll('bt_payload')
  const isBase64 = more.length === 0 && /^[A-Za-z0-9+=/\n]+$/.test(payload)
  return isBase64 && !CHALLENGE.test(payload.replaceAll('\n', '')) ? payload : undefined
}

function xmlOf({ body }: WebhookRequest): Buffer | undefined {
  const form = readForm(body)
  const payload = form && payloadOf(form)
  return payload === undefined ? undefined : Buffer.from(payload, 'base64')
}

/** Braintree (developer.paypal.com/braintree, webhooks; braintree 3.40 `webhook_notification_gateway.js`). */
export const braintree = defineProvider({
  name: 'braintree',
  title: 'Braintree',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'In the Control Panel under API, Webhooks create a webhook with the address `https://YOUR-HOST/webhooks/braintree` and choose subscriptions (charged, canceled), disbursements and disputes. Braintree checks the address by a GET with `bt_challenge`, which is answered with the first secret: so set the source up first.',
    secret:
      'The public and the private API key, joined by a colon: `PUBLIC_KEY:PRIVATE_KEY`. Both stand in the Control Panel under API. A signature is held against the secret with its public key only.',
    identity:
      'Braintree gives no ID: `sha256:` and the hash of the XML that `bt_payload` holds. The type is its `kind`. Rules get what is in `notification` as JSON, names as they are: `event.subject.subscription`; `type="array"` makes a list, `integer` a number, `boolean` true or false, `nil` null.',
    unsigned:
      'Nothing of the event: the whole of `bt_payload` is signed. Its `timestamp` is not checked (the library doesn’t either), so only the ID stops a replay.',
    retries:
      'Any 2xx within 30 s is success. Again each hour for 24 h, in the sandbox for 3 h; not in order. That the bytes stay the same is not confirmed: if they don’t, a redelivery counts as a further event, and the keys of the sends still hold.',
    traps: [
      'Different kinds for one object are different events.',
      '`check` is the test of the Control Panel. The body says nothing of sandbox or production: use a source for each.',
      'XML with a DOCTYPE, with entities of its own, or deeper than 200 levels is not read: it is kept as quarantined.',
    ],
  },
  sample: {
    types: {
      paid: 'subscription_charged_successfully',
      failed: 'subscription_charged_unsuccessfully',
      'subscription ended': 'subscription_canceled',
      payout: 'disbursement',
    },
    newId: (unique) => `sub_${unique}`,
    request: ({ type, id, happenedSeconds, email, secret }, sign) => {
      const element = type === 'disbursement' ? 'disbursement' : 'subscription'
      const escaped = email.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
      const xml = `<?xml version="1.0" encoding="UTF-8"?>
<notification>
  <timestamp type="datetime">${new Date(happenedSeconds * 1000).toISOString()}</timestamp>
  <kind>${type}</kind>
  <subject>
    <${element}>
      <id>${id}</id>
      <amount>42.00</amount>
      <transactions type="array">
        <transaction>
          <id>tx_${id}</id>
          <status>submitted_for_settlement</status>
          <amount>42.00</amount>
          <currency-iso-code>EUR</currency-iso-code>
          <customer><email>${escaped}</email></customer>
        </transaction>
      </transactions>
    </${element}>
  </subject>
</notification>`
      const payload = `${Buffer.from(xml).toString('base64')}\n`
      const publicKey = secret.slice(0, secret.indexOf(':'))
      const form = new URLSearchParams({ bt_signature: `${publicKey}|${sign(payload)}`, bt_payload: payload })
      return { headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: form.toString() }
    },
  },
})
