import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import { stripeObject } from '../stripe-objects.ts'

const provider: ProviderFacts = {
  name: 'stripe',
  documentation: 'https://docs.stripe.com/webhooks',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'stripe-signature',
        // Only v1 counts: v0 and whatever comes later would be a downgrade.
        match: /(?:^|,) *v1=([0-9a-f]{64}) *(?=,|$)/g,
        algorithm: 'sha256',
        encoding: 'hex',
        // The whole whsec_… is the key, unlike Standard Webhooks.
        secret: { form: 'text' },
      },
    ],
    isExtensible: true,
    timestamp: { header: 'stripe-signature', match: /(?:^|,) *t=([^,]*)/g },
    signed: '{timestamp}.{body}',
  },
  toleranceSeconds: 300,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'id'),
  type: (event) => field(event, 'type'),
  livemode: (event) => field(event, 'livemode'),
  // Unix seconds in a snapshot event, ISO 8601 in a thin one.
  occurredAt: (event) => field(event, 'created'),
  object: (event) => field(field(field(event, 'data'), 'object'), 'id') ?? field(field(event, 'related_object'), 'id'),
  volatileFields: ['pending_webhooks'],
}

/** Stripe, snapshot and thin events (docs.stripe.com/webhooks; stripe-node 23 `Webhooks.js`). */
export const stripe = defineProvider({
  name: 'stripe',
  title: 'Stripe',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'In the Dashboard add a webhook endpoint (event destination) with the address, choose the event types, and copy its signing secret.',
    secret: 'The signing secret `whsec_…`, whole. Each endpoint, test mode, live mode and the Stripe CLI have one of their own.',
    identity:
      "`id` and `type` of the body. Thin events (`v2.core.event`) work too; fetch their object in the rule. `livemode` says whether it is a test: test events on a source of mode `live` are stored as `ignored` and cause no email. For a test endpoint write `mode: 'test'`.",
    unsigned: 'Nothing of the event. Only the other headers of the request are unsigned, and none of them is used.',
    retries:
      'Any 2xx is success. Live mode delivers for up to 3 days, with growing pauses, a sandbox 3 times in some hours; same ID, new time, new signature. `pending_webhooks` changes between deliveries and makes no conflict.',
    traps: [
      'Only `v1` signatures count. While an old secret is still alive at Stripe, each delivery carries one `v1` per secret: list both here.',
      'One change can cause two events with different IDs (`invoice.paid` and `invoice.payment_succeeded` come together): build the key from the invoice, not from the event.',
    ],
  },
  sample: {
    types: {
      paid: 'invoice.paid',
      failed: 'invoice.payment_failed',
      refunded: 'charge.refunded',
      'subscription ended': 'customer.subscription.deleted',
      payout: 'payout.paid',
    },
    newId: (unique) => `evt_${unique}`,
    tellsAbout: true,
    request: ({ type, id, about, happenedSeconds, nowSeconds, email, livemode }, sign) => {
      const event = {
        id,
        object: 'event',
        api_version: '2026-08-27.basil',
        created: happenedSeconds,
        data: { object: stripeObject({ type, eventId: about, created: happenedSeconds, email, livemode }) },
        livemode,
        pending_webhooks: 1,
        request: { id: null, idempotency_key: null },
        type,
      }
      const body = JSON.stringify(event, undefined, 2)
      return { headers: { 'stripe-signature': `t=${nowSeconds},v1=${sign(`${nowSeconds}.${body}`)}` }, body }
    },
  },
})
