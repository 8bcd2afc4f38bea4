import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const provider: ProviderFacts = {
  name: 'paddle',
  documentation: 'https://developer.paddle.com/webhooks/signature-verification',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'paddle-signature',
        // Each is tried: during a rotation there are several, and the last need not be ours.
        match: /(?:^|;)h1=([0-9a-f]{64})(?=;|$)/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    isExtensible: true,
    timestamp: { header: 'paddle-signature', match: /(?:^|;)ts=([^;]*)/g },
    signed: '{timestamp}:{body}',
  },
  // Paddle's own library has 5, which refuses good events where a clock or a proxy is slow.
  toleranceSeconds: 300,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'event_id'),
  type: (event) => field(event, 'event_type'),
  occurredAt: (event) => field(event, 'occurred_at'),
  object: (event) => field(field(event, 'data'), 'id'),
  // Names the delivery to one destination: a replay has a new one.
  volatileFields: ['notification_id'],
}

const OBJECT_PREFIX: Record<string, string> = {
  transaction: 'txn',
  subscription: 'sub',
  adjustment: 'adj',
  customer: 'ctm',
  payout: 'pay',
}
const STATUS: Record<string, string> = { payment_failed: 'past_due', updated: 'approved' }

/** Paddle Billing (developer.paddle.com/webhooks; @paddle/paddle-node-sdk 3 `WebhooksValidator`). */
export const paddle = defineProvider({
  name: 'paddle',
  title: 'Paddle',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      "In Paddle under Developer tools, Notifications, add a destination of type URL with `https://YOUR-HOST/webhooks/paddle`, choose the events (`transaction.completed`, `transaction.payment_failed`, `adjustment.updated`, `subscription.canceled`), and copy its secret key. Sandbox and live each have a destination of their own: make them two sources, the first with `mode: 'test'`.",
    secret: 'The secret key `pdl_ntfset_…` of the destination, whole, as text.',
    identity:
      '`event_id` (`evt_…`) and `event_type` of the body; `notification_id` names the delivery to one destination only and makes no conflict. `occurred_at` is the time.',
    unsigned: 'Nothing of the event: time and body are signed. No other header is used.',
    retries:
      'Success is 200 within 5 s. Not confirmed: about 60 deliveries in 3 days (live), 3 in 15 min (sandbox). Same event ID, new time and signature. No order.',
    traps: [
      'The signed time must be within 300 s. Paddle’s own library has 5 s, which refuses good events where clocks differ or a proxy is slow; `toleranceSeconds: 5` is as strict.',
      'A refund is an adjustment: `adjustment.updated` with `action` `refund` and `status` `approved`. Adjustments are credits and chargebacks too, so the rule has to look.',
      'A transaction names its customer by `customer_id` only. Put the address into `custom_data` at checkout, or fetch the customer in the rule.',
      'The body says nothing of test mode. Simulated events have the same form as real ones.',
      'Paddle Classic signs in another way: provider `paddle-classic`.',
    ],
  },
  sample: {
    types: {
      paid: 'transaction.completed',
      failed: 'transaction.payment_failed',
      refunded: 'adjustment.updated',
      'subscription ended': 'subscription.canceled',
      payout: 'payout.paid',
    },
    newId: (unique) => `evt_01${unique}`,
    request: ({ type, id, happenedSeconds, nowSeconds, email }, sign) => {
      const [resource = type, action = 'created'] = type.split('.')
      const suffix = id.replace(/^evt_/, '')
      const body = JSON.stringify({
        data: {
          id: `${OBJECT_PREFIX[resource] ?? resource}_${suffix}`,
          status: STATUS[action] ?? action,
          ...(resource === 'adjustment' && { action: 'refund', transaction_id: `txn_${suffix}` }),
          customer_id: 'ctm_sample',
          currency_code: 'EUR',
          details: { totals: { total: '4200', tax: '0' } },
          custom_data: { email },
        },
        event_id: id,
        event_type: type,
        occurred_at: new Date(happenedSeconds * 1000).toISOString(),
        notification_id: `ntf_${suffix}`,
      })
      return { headers: { 'paddle-signature': `ts=${nowSeconds};h1=${sign(`${nowSeconds}:${body}`)}` }, body }
    },
  },
})
