import { createHash } from 'node:crypto'
import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import { headerValue } from '../signature.ts'

/** Shopify's library looks for the names of Events deliveries first, and then for those of webhooks. */
const both = (name: string) => [`shopify-${name}`, `x-shopify-${name}`]

const facts = ['topic', 'shop-domain', 'api-version', 'webhook-id', 'event-id', 'triggered-at']

const provider: ProviderFacts = {
  name: 'shopify',
  documentation: 'https://shopify.dev/docs/apps/build/webhooks/verify-deliveries',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: both('hmac-sha256'),
        match: /^([A-Za-z0-9+/]{43}=)$/g,
        algorithm: 'sha256',
        encoding: 'base64',
        secret: { form: 'text' },
      },
    ],
    signed: '{body}',
  },
  // Products and orders may be larger than 1 MiB; no limit is published for HTTPS.
  maxBodyBytes: 5 * 1024 * 1024,
  factHeaders: [...facts.flatMap(both), 'x-shopify-test', 'shopify-action', 'shopify-handle'],
  toleranceSeconds: 300,
  idIsSigned: false,
  contentIsSigned: true,
  idBasis: 'provider',
  // Not the event ID, which several topics share. Without the header a person has to look: the hash in its place would let a
  // captured body come back as a new event.
  id: (_event, { headers }) => headerValue(headers, both('webhook-id')),
  type: (_event, { headers }) => headerValue(headers, both('topic')),
  // An order says whether it is a test; nothing says that something is not.
  livemode: (event, { headers }) =>
    field(event, 'test') === true || headerValue(headers, 'x-shopify-test')?.toLowerCase() === 'true' ? false : undefined,
  // Not the header's time, which isn't signed: a later one would make events look outdated.
  occurredAt: (event) => field(event, 'updated_at') ?? field(event, 'created_at'),
  object: (event) => field(event, 'admin_graphql_api_id') ?? field(event, 'id'),
}

/** Shopify, webhooks and Events deliveries (shopify.dev/docs/apps/build/webhooks; @shopify/shopify-api 13 `webhooks.validate`). */
export const shopify = defineProvider({
  name: 'shopify',
  title: 'Shopify',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'In the app’s `shopify.app.toml`, or by the Admin API’s `webhookSubscriptionCreate`, subscribe to the topics (`orders/paid`, `refunds/create`) with `https://YOUR-HOST/webhooks/shopify` and format JSON. In the admin page they are under Settings, Notifications, Webhooks.',
    secret: 'The app’s client secret, as text; for webhooks made in the admin page the key that this page shows. The two differ.',
    identity:
      'The header `X-Shopify-Webhook-Id`, the same on each delivery, and the header `X-Shopify-Topic`. Not `X-Shopify-Event-Id`: several topics share it. `X-Shopify-Triggered-At` is the time. Events deliveries have the same headers without `X-`. An order with `test` true and a delivery with `X-Shopify-Test: true` are tests.',
    unsigned:
      'All headers, so the ID, the topic, the shop and the time. A captured body under another ID is stopped by the second key on topic and body, but not one under another **topic**: let the rule look at `financial_status` and the like. Without an ID the event is kept as quarantined. There is no signed time.',
    retries:
      'Any 2xx within 5 s is success (1 s to connect). 8 more deliveries over 4 h, to the original address with the original body; after 8 failures in a row a subscription made by the Admin API is **deleted**. No order.',
    traps: [
      'One order may come byte for byte the same under `orders/create` and `orders/paid`: these are two events. Build the key from the order and the kind of email.',
      'After a new client secret, up to an hour of deliveries is signed with the old one: list both.',
      'Test notifications from the admin page are signed with another key and are refused, unless it is listed too.',
      'The type of an Events delivery is its topic (`Order`); what was done stands in `Shopify-Action` only. It is a developer preview.',
      'A topic that one app gets from several shops comes through one source: check the shop in the rule.',
      'Bodies over 5 MiB are refused: set `maxBodyBytes`.',
    ],
  },
  sample: {
    types: { paid: 'orders/paid', refunded: 'refunds/create' },
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email, livemode }, sign) => {
      // Beyond 2^53, as real ones may be; JSON.stringify can't write it.
      const number = BigInt(`0x1${createHash('sha256').update(id).digest('hex').slice(0, 14)}`)
      const at = new Date(happenedSeconds * 1000).toISOString()
      const resource = type.startsWith('refunds/') ? 'Refund' : 'Order'
      const rest = JSON.stringify({
        admin_graphql_api_id: `gid://shopify/${resource}/${number}`,
        email,
        created_at: at,
        updated_at: at,
        currency: 'EUR',
        total_price: '42.00',
        financial_status: resource === 'Refund' ? 'refunded' : 'paid',
        test: !livemode,
        customer: { id: 7_060_123, email, first_name: 'Ada', last_name: 'Example' },
      })
      const body = `{"id":${number},${rest.slice(1)}`
      return {
        headers: {
          'x-shopify-topic': type,
          'x-shopify-shop-domain': 'example-shop.myshopify.com',
          'x-shopify-api-version': '2026-07',
          'x-shopify-webhook-id': id,
          'x-shopify-event-id': id,
          'x-shopify-triggered-at': at,
          'x-shopify-hmac-sha256': sign(body),
        },
        body,
      }
    },
  },
})
