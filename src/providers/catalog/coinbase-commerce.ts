import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const event = (payload: unknown) => field(payload, 'event')

const provider: ProviderFacts = {
  name: 'coinbase-commerce',
  documentation: 'https://docs.cloud.coinbase.com/commerce/docs/webhooks',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-cc-webhook-signature',
        match: /^([0-9a-f]{64})$/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    signed: '{body}',
  },
  toleranceSeconds: 300,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  // Not the outer ID, which names the delivery.
  id: (payload) => field(event(payload), 'id'),
  type: (payload) => field(event(payload), 'type'),
  occurredAt: (payload) => field(event(payload), 'created_at'),
  object: (payload) => field(field(event(payload), 'data'), 'code') ?? field(field(event(payload), 'data'), 'id'),
  volatileFields: ['id', 'attempt_number', 'scheduled_for'],
}

/** Coinbase Commerce (docs.cloud.coinbase.com/commerce, webhooks; coinbase-commerce-node 1.0 `Webhook.verifyEventBody`). */
export const coinbaseCommerce = defineProvider({
  name: 'coinbase-commerce',
  title: 'Coinbase Commerce',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'Under Settings, Notifications (Webhook subscriptions) add the endpoint `https://YOUR-HOST/webhooks/coinbase-commerce` and choose at least `charge:confirmed` and `charge:failed`.',
    secret: 'The webhook shared secret of the same page, as text. An account has one.',
    identity:
      '`event.id` and `event.type` of the body (`charge:confirmed`). The outer `id`, `attempt_number` and `scheduled_for` belong to the delivery and make no conflict.',
    unsigned: 'Nothing of the event. There is no signed time: only the ID stops a replay.',
    retries:
      '200 is success. Delivered again for up to 3 days, with growing pauses of at most 1 h; same `event.id`, new outer `id`.',
    traps: [
      'The event lies one level down: a rule finds the charge in `event.data` of the payload.',
      'Newer Coinbase products sign by `X-Hook0-Signature`, which is another scheme: not covered.',
      'The body says nothing of test mode.',
    ],
  },
  sample: {
    types: { paid: 'charge:confirmed', failed: 'charge:failed' },
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email }, sign) => {
      const at = new Date(happenedSeconds * 1000).toISOString()
      const body = JSON.stringify({
        attempt_number: 1,
        event: {
          api_version: '2018-03-22',
          created_at: at,
          data: {
            code: id.slice(-8).toUpperCase(),
            name: 'Sample order',
            pricing: { local: { amount: '42.00', currency: 'EUR' } },
            metadata: { email },
          },
          id,
          resource: 'event',
          type,
        },
        id: `delivery-${id}`,
        scheduled_for: at,
      })
      return { headers: { 'x-cc-webhook-signature': sign(body) }, body }
    },
  },
})
