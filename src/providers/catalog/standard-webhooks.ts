import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type Guide, type PaymentFact, type ProviderDefinition, type ProviderFacts } from '../provider.ts'
import { headerValue } from '../signature.ts'

const traps = [
  'A message ID with a dot in it is refused, since the dot separates what is signed. Signature versions other than `v1` and `v1a` are skipped.',
  'The body says nothing of test mode: use a source for each.',
]
const secret =
  '`whsec_` + base64; the prefix may be missing if the rest is base64 of at least 24 bytes. `whpk_` + base64 of 32 bytes is an ed25519 public key and verifies `v1a` signatures only: as a shared secret it would let anybody sign. Where a sender gives out plain text, encode it in base64 first.'
const unsigned = 'Nothing of the event: ID, time and body are signed. Other headers are not used.'

/** Any sender that follows the Standard Webhooks specification (standard-webhooks/standard-webhooks, `spec/standard-webhooks.md`). */
export const standardWebhooks = define(
  'standard-webhooks',
  'Standard Webhooks',
  'https://www.standardwebhooks.com',
  ['webhook'],
  {
    setUp: 'For any sender that follows the specification: enter the address there, and copy the secret or the public key.',
    secret,
    identity: 'The header `webhook-id`, which is signed; `type` of the body, else `eventType`.',
    unsigned,
    retries: 'Any 2xx is success; same ID, new time, new signature. How often is the sender’s choice.',
    traps,
  },
  {
    paid: 'invoice.paid',
    failed: 'payment.failed',
    refunded: 'payment.refunded',
    'subscription ended': 'subscription.ended',
    payout: 'payout.paid',
  },
)

/** Svix: the same under its own header names, or the unbranded ones (docs.svix.com; svix 2 `webhook.js` takes either). */
export const svix = define(
  'svix',
  'Svix',
  'https://docs.svix.com/receiving/verifying-payloads/how-manual',
  ['svix', 'webhook'],
  {
    setUp: 'For every product that sends through Svix: add an endpoint in the sender’s portal and copy its secret.',
    secret,
    identity: 'The header `svix-id`, which is signed; `type` of the body, else `eventType`.',
    unsigned,
    retries:
      'Any 2xx within 15 s is success. Again at once, after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h; same ID, new time, new signature. A rotated secret stays alive for 24 h unless the sender says otherwise, and both sign.',
    traps,
  },
  {
    paid: 'invoice.paid',
    failed: 'payment.failed',
    refunded: 'payment.refunded',
    'subscription ended': 'subscription.ended',
    payout: 'payout.paid',
  },
)

/** Resend: Svix's scheme (resend.com/docs, webhooks; resend 6.38 verifies through it). */
export const resend = define(
  'resend',
  'Resend',
  'https://resend.com/docs/dashboard/webhooks/introduction',
  ['svix', 'webhook'],
  {
    setUp:
      'In the dashboard under Webhooks add the address, choose the event types (`email.delivered`, `email.bounced`, …) and copy the signing secret.',
    secret,
    identity:
      'The header `svix-id`, which is signed; `type` of the body. One email has several events, each with an ID of its own; `data.email_id` names the email.',
    unsigned,
    retries: 'As Svix: at once, after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h, until any 2xx; same ID.',
    traps,
  },
  {},
)

function define(
  name: string,
  title: string,
  documentation: string,
  families: readonly string[],
  guide: Guide,
  types: Partial<Record<PaymentFact, string>>,
): ProviderDefinition<Record<string, never>> {
  const header = (part: string) => families.map((family) => `${family}-${part}`)
  const idHeader = header('id')
  const provider: ProviderFacts = {
    name,
    documentation,
    scheme: {
      signatures: [
        {
          kind: 'hmac',
          header: header('signature'),
          match: /(?:^| )v1,([A-Za-z0-9+/]{43}=)(?= |$)/g,
          algorithm: 'sha256',
          encoding: 'base64',
          secret: { form: 'base64', prefix: 'whsec_', isPrefixOptional: true },
        },
        {
          kind: 'ed25519',
          header: header('signature'),
          match: /(?:^| )v1a,([A-Za-z0-9+/]{86}==)(?= |$)/g,
          encoding: 'base64',
          // A public key: as the key of an HMAC it would let anybody sign.
          secret: { form: 'base64', prefix: 'whpk_' },
        },
      ],
      isExtensible: true,
      timestamp: { header: header('timestamp'), match: /^(.*)$/g },
      // Printable ASCII without the dot that separates the signed parts.
      id: { header: idHeader, match: /^([!-\-/-~]+)$/g },
      signed: '{id}.{timestamp}.{body}',
    },
    factHeaders: idHeader,
    toleranceSeconds: 300,
    idIsSigned: true,
    contentIsSigned: true,
    idBasis: 'provider',
    id: (_event, { headers }) => headerValue(headers, idHeader),
    // Svix's own operational events say `type`; what its customers send often says `eventType`.
    type: (event) => field(event, 'type') ?? field(event, 'eventType'),
    occurredAt: (event) => field(event, 'timestamp') ?? field(event, 'created_at'),
  }
  return defineProvider({
    name,
    title,
    options: z.strictObject({}),
    create: () => provider,
    guide,
    sample: {
      types,
      newId: (unique) => `msg_${unique}`,
      request: ({ type, id, happenedSeconds, nowSeconds, email, livemode }, sign) => {
        const body = JSON.stringify({
          type,
          timestamp: new Date(happenedSeconds * 1000).toISOString(),
          data: { id: `ord_${id.slice(-8)}`, email, customer_email: email, amount: 4200, currency: 'eur', livemode },
        })
        const [family] = families
        return {
          headers: {
            [`${family}-id`]: id,
            [`${family}-timestamp`]: String(nowSeconds),
            [`${family}-signature`]: `v1,${sign(`${id}.${nowSeconds}.${body}`)}`,
          },
          body,
        }
      },
    },
  })
}
