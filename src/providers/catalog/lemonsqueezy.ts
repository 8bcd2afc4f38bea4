import { z } from 'zod'
import { derivedId } from '../derived-id.ts'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const data = (event: unknown, name: string) => field(field(event, 'data'), name)
const updatedAt = (event: unknown) => field(data(event, 'attributes'), 'updated_at')
const eventName = (event: unknown) => field(field(event, 'meta'), 'event_name')

const provider: ProviderFacts = {
  name: 'lemonsqueezy',
  documentation: 'https://docs.lemonsqueezy.com/help/webhooks',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-signature',
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
  idBasis: 'derived',
  hashWithoutId: true,
  id: (event) => derivedId(eventName(event), data(event, 'type'), data(event, 'id'), updatedAt(event)),
  // Of the signed body: the header x-event-name only repeats it.
  type: eventName,
  livemode: (event) => {
    const isTest = field(field(event, 'meta'), 'test_mode')
    return typeof isTest === 'boolean' ? !isTest : undefined
  },
  occurredAt: updatedAt,
  // An order and a subscription may have the same number.
  object: (event) => derivedId(data(event, 'type'), data(event, 'id')),
}

/** Lemon Squeezy (docs.lemonsqueezy.com/help/webhooks). */
export const lemonsqueezy = defineProvider({
  name: 'lemonsqueezy',
  title: 'Lemon Squeezy',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      "Under Settings, Webhooks, add `https://YOUR-HOST/webhooks/lemonsqueezy`, make up a signing secret, and choose the events (`order_created`, `order_refunded`, `subscription_payment_failed`, `subscription_expired`). Test mode has webhooks of its own: make them a second source with `mode: 'test'`.",
    secret: 'The signing secret that you made up, 6 to 40 characters, as text.',
    identity:
      'Lemon Squeezy gives no event ID. It is put together: `meta.event_name:data.type:data.id:data.attributes.updated_at`; where a part is missing, the hash of the body. The type is `meta.event_name`. `meta.test_mode` says whether it is a test.',
    unsigned:
      'Nothing of the event; `X-Event-Name` is unsigned and not used. There is no signed time: only the ID stops a replay.',
    retries:
      'Success is exactly 200. Up to 3 more deliveries, after about 5, 25 and 125 s, then the event is **lost**: compare with the API now and then.',
    traps: [
      'The ID tells two changes of one object apart by `updated_at` alone. `meta.webhook_id`, where it is there, is not taken for an event ID.',
      'A new secret replaces the old one at once, and nothing is signed twice: list both here while deliveries are under way.',
      '`subscription_created` always comes with an `order_created`: build the key from the order.',
      'A cancelled subscription runs on until `subscription_expired`.',
    ],
  },
  sample: {
    types: {
      paid: 'order_created',
      failed: 'subscription_payment_failed',
      refunded: 'order_refunded',
      'subscription ended': 'subscription_expired',
    },
    newId: (unique) => String(Number.parseInt(unique.slice(0, 12), 16)),
    request: ({ type, id, happenedSeconds, email, livemode }, sign) => {
      const at = new Date(happenedSeconds * 1000).toISOString()
      const body = JSON.stringify({
        meta: { test_mode: !livemode, event_name: type, custom_data: {} },
        data: {
          type: resourceOf(type),
          id,
          attributes: {
            store_id: 1,
            user_name: 'Ada Example',
            user_email: email,
            currency: 'EUR',
            total: 4200,
            status: type === 'subscription_expired' ? 'expired' : type.endsWith('_failed') ? 'pending' : 'paid',
            refunded: type.endsWith('_refunded'),
            created_at: at,
            updated_at: at,
          },
        },
      })
      return { headers: { 'x-event-name': type, 'x-signature': sign(body) }, body }
    },
  },
})

function resourceOf(type: string): string {
  if (type.startsWith('subscription_payment_')) return 'subscription-invoices'
  if (type.startsWith('subscription_')) return 'subscriptions'
  return type.startsWith('license_key_') ? 'license-keys' : 'orders'
}
