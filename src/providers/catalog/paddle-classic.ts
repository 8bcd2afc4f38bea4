import { z } from 'zod'
import { hasTooManyFields } from '../form.ts'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts, type WebhookRequest } from '../provider.ts'
import type { Proof, Reason, SignatureKind } from '../signature.ts'

const kind: SignatureKind = { kind: 'rsa', algorithm: 'sha1', encoding: 'base64', secret: { form: 'public key' } }

const provider: ProviderFacts = {
  name: 'paddle-classic',
  documentation: 'https://developer.paddle.com/webhook-reference/verifying-webhooks',
  scheme: {
    signatures: [kind],
    place: 'form field `p_signature`',
    signed: 'all other fields of the form, sorted by name, as PHP’s `serialize` writes them',
    proofs,
  },
  maxBodyBytes: 64 * 1024,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'alert_id'),
  type: (event) => field(event, 'alert_name'),
  occurredAt: (event) => field(event, 'event_time'),
  object: (event) => field(event, 'subscription_id') || field(event, 'order_id'),
  jsonText: ({ body }) =>
    hasTooManyFields(body)
      ? undefined
      : JSON.stringify(
          Object.fromEntries(signedFields(fieldsOf(body)).map((pair) => pair.map((text) => bytesOf(text).toString()))),
        ),
}

function proofs({ body }: WebhookRequest): readonly Proof[] | Reason {
  if (hasTooManyFields(body)) return 'malformed_signature'
  const fields = fieldsOf(body)
  const signature = fields.get('p_signature') ?? ''
  if (signature.trim() === '') return 'missing_signature'
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(signature)) return 'malformed_signature'
  const text = bytesOf(serialized(signedFields(fields)))
  return [{ signatures: [{ kind, given: [signature] }], signed: () => [[text]] }]
}

/**
 * The fields of a form as PHP decodes them: `+` is a space, and of a repeated name the last one counts. One character stands for
 * one byte, since PHP counts bytes and knows no encoding.
 */
function fieldsOf(body: Buffer): ReadonlyMap<string, string> {
  const decoded = (text: string) =>
    text.replaceAll('+', ' ').replace(/%([\da-f]{2})/gi, (_whole, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
  return new Map(
    body
      .toString('latin1')
      .split('&')
      .filter((pair) => pair !== '')
      .map((pair) => {
        const at = pair.includes('=') ? pair.indexOf('=') : pair.length
        return [decoded(pair.slice(0, at)), decoded(pair.slice(at + 1))]
      }),
  )
}

function signedFields(fields: ReadonlyMap<string, string>): [name: string, value: string][] {
  return [...fields].filter(([name]) => name !== 'p_signature').sort(([a], [b]) => (a < b ? -1 : 1))
}

/** PHP's `serialize` of a map of strings. */
function serialized(fields: readonly [name: string, value: string][]): string {
  const string = (text: string) => `s:${text.length}:"${text}";`
  return `a:${fields.length}:{${fields.map(([name, value]) => string(name) + string(value)).join('')}}`
}

function bytesOf(text: string): Buffer {
  return Buffer.from(text, 'latin1')
}

/** Paddle Classic, alerts (checked with PHP 8.2 `ksort`, `serialize`, `openssl_verify`). */
export const paddleClassic = defineProvider({
  name: 'paddle-classic',
  title: 'Paddle Classic',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'A product that Paddle no longer offers to new accounts; for Paddle Billing use the provider `paddle`. In the dashboard under Developer Tools, Alerts / Webhooks enter the address `https://YOUR-HOST/webhooks/paddle-classic` and choose payment succeeded and refunded, subscription payment succeeded and failed, subscription cancelled.',
    secret:
      'The public key of the account, as PEM, from Developer Tools, Public Key. It verifies and can’t sign, so it is no secret. The sandbox has another one.',
    identity: '`alert_id` and `alert_name` of the form. Rules get all fields but `p_signature`, each of them as text.',
    unsigned: 'Nothing of the event: every field is signed. There is no signed time: only the ID stops a replay.',
    retries:
      'A quick 200 is success. Again for 3 days, with the same ID; how long Paddle waits and how often it comes is not confirmed.',
    traps: [
      'Amounts are text, with a decimal point.',
      '`event_time` has no zone; it is UTC.',
      'The body says nothing of the sandbox: use a source for each.',
    ],
  },
  sample: {
    types: {
      paid: 'payment_succeeded',
      failed: 'subscription_payment_failed',
      refunded: 'payment_refunded',
      'subscription ended': 'subscription_cancelled',
      payout: 'transfer_paid',
    },
    newId: (unique) => String(1_000_000_000 + (Number.parseInt(unique.slice(0, 12), 16) % 9_000_000_000)),
    request: ({ type, id, happenedSeconds, email }, sign) => {
      const sample = new URLSearchParams({
        alert_id: id,
        alert_name: type,
        currency: 'EUR',
        customer_name: 'Ada Example',
        email,
        event_time: new Date(happenedSeconds * 1000).toISOString().slice(0, 19).replace('T', ' '),
        order_id: `order-${id}`,
        sale_gross: '42.00',
      })
      const signed = signedFields(fieldsOf(Buffer.from(sample.toString())))
      sample.set('p_signature', sign(bytesOf(serialized(signed))))
      return { headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: sample.toString() }
    },
  },
})
