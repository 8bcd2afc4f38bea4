import { z } from 'zod'
import { field } from './json.ts'
import type { Provider, ProviderDefinition } from './provider.ts'

const stripeProvider: Provider = {
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
  maxBodyBytes: 1024 * 1024,
  toleranceSeconds: 300,
  idIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'id'),
  type: (event) => field(event, 'type'),
  livemode: (event) => field(event, 'livemode'),
  // Unix seconds in a snapshot event, ISO 8601 in a thin one.
  occurredAt: (event) => field(event, 'created'),
  volatileFields: ['pending_webhooks'],
}

/** Stripe, snapshot and thin events (docs.stripe.com/webhooks; stripe-node 23 `Webhooks.js`). */
export const stripe: ProviderDefinition<Record<string, never>> = {
  name: 'stripe',
  options: z.strictObject({}),
  create: () => stripeProvider,
}
