import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import { headerValue } from '../signature.ts'

const ID_HEADER = 'x-razorpay-event-id'

const provider: ProviderFacts = {
  name: 'razorpay',
  documentation: 'https://razorpay.com/docs/webhooks/validate-test/',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-razorpay-signature',
        match: /^([0-9a-f]{64})$/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    signed: '{body}',
  },
  factHeaders: [ID_HEADER],
  toleranceSeconds: 300,
  idIsSigned: false,
  contentIsSigned: true,
  idBasis: 'provider',
  // Without the header a person has to look: the hash in its place would let a captured body come back as a new event.
  id: (_event, { headers }) => headerValue(headers, ID_HEADER),
  type: (event) => field(event, 'event'),
  occurredAt: (event) => field(event, 'created_at'),
  object: (event) => {
    const type = field(event, 'event')
    const contains = field(event, 'contains')
    const names = [typeof type === 'string' ? type.split('.')[0] : undefined, Array.isArray(contains) ? contains[0] : undefined]
    return names
      .map((name) => (typeof name === 'string' ? field(field(field(field(event, 'payload'), name), 'entity'), 'id') : undefined))
      .find((id) => id !== undefined)
  },
}

const ID_PREFIX: Record<string, string> = { payment: 'pay', refund: 'rfnd', subscription: 'sub', settlement: 'setl' }

/** Razorpay (razorpay.com/docs/webhooks; razorpay 2.9 `validateWebhookSignature`). */
export const razorpay = defineProvider({
  name: 'razorpay',
  title: 'Razorpay',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      "In the Dashboard under Account & Settings, Webhooks, add `https://YOUR-HOST/webhooks/razorpay`, make up a secret, and choose the events (`payment.captured`, `payment.failed`, `refund.processed`, `subscription.cancelled`, `settlement.processed`). Test mode has webhooks of its own: make them a second source with `mode: 'test'`.",
    secret: 'The webhook secret that you made up, as text. It is not the API key’s secret.',
    identity:
      'The ID stands in the header `X-Razorpay-Event-Id` only. The type is `event` of the body, the time `created_at`. The body says nothing of test mode.',
    unsigned:
      'The header with the ID: a captured body could come back under another one, which the second key on type and body stops. Without the header the event is kept as quarantined. There is no signed time.',
    retries:
      'Any 2xx within 5 s is success. Delivered again for 24 h at growing pauses, with the same ID; then the webhook is **disabled**. Duplicates and disorder are normal.',
    traps: [
      'After a change of the secret, deliveries of older events are still signed with the old one: list both for a day. A replay from the Dashboard uses the new one.',
      '`payment.captured` and `order.paid` come for one and the same payment: build the key from the payment or the order, not from the event.',
    ],
  },
  sample: {
    types: {
      paid: 'payment.captured',
      failed: 'payment.failed',
      refunded: 'refund.processed',
      'subscription ended': 'subscription.cancelled',
      payout: 'settlement.processed',
    },
    newId: (unique) => `S${unique.slice(0, 13)}`,
    request: ({ type, id, happenedSeconds, email }, sign) => {
      const [resource = type, status = 'created'] = type.split('.')
      const entity = (name: string, more: Record<string, unknown> = {}) => ({
        entity: { id: `${ID_PREFIX[name] ?? name}_${id}`, entity: name, amount: 4200, currency: 'INR', ...more, notes: {} },
      })
      const body = JSON.stringify({
        entity: 'event',
        account_id: 'acc_Sample00000000',
        event: type,
        contains: resource === 'payment' ? ['payment'] : [resource, 'payment'],
        payload: {
          ...(resource !== 'payment' && { [resource]: entity(resource, { status }) }),
          payment: entity('payment', {
            status: resource === 'payment' ? status : 'captured',
            order_id: `order_${id}`,
            email,
            contact: '+910000000000',
          }),
        },
        created_at: happenedSeconds,
      })
      return { headers: { [ID_HEADER]: id, 'x-razorpay-signature': sign(body) }, body }
    },
  },
})
