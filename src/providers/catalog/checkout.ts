import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const text = z.string().trim().min(1)
const checkoutOptions = z.strictObject({ authorization: z.union([text, z.array(text).min(1)]).optional() })

const SANDBOX_LINK = /^https:\/\/(?:[\w-]+\.)*sandbox\.checkout\.com\//

const createCheckout = (authorization: readonly string[] | undefined): ProviderFacts => ({
  name: 'checkout',
  documentation: 'https://www.checkout.com/docs/workflows/set-up-your-webhook-receiver',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'cko-signature',
        match: /^([0-9a-f]{64})$/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    signed: '{body}',
    ...(authorization && { credential: { header: 'authorization', values: authorization } }),
  },
  toleranceSeconds: 300,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'id'),
  type: (event) => field(event, 'type'),
  // Only the sandbox is told by its address; any other says nothing.
  livemode: (event) => {
    const link = field(field(field(event, '_links'), 'self'), 'href')
    return typeof link === 'string' && SANDBOX_LINK.test(link) ? false : undefined
  },
  occurredAt: (event) => field(event, 'created_on') ?? field(event, 'timestamp'),
  object: (event) => field(field(event, 'data'), 'id'),
})

/** Checkout.com, webhooks of Workflows (checkout.com/docs/workflows; checkout-sdk-node 5 has no verifier). */
export const checkout = defineProvider({
  name: 'checkout',
  title: 'Checkout.com',
  options: checkoutOptions,
  create: ({ authorization }) => createCheckout(authorization === undefined ? undefined : [authorization].flat()),
  guide: {
    setUp:
      'In the Dashboard under Developers, Workflows (or by the Workflows API), make a workflow with a webhook action: `https://YOUR-HOST/webhooks/checkout`, a signature key of your choice, and the events (`payment_captured`, `payment_declined`, `payment_refunded`). Sandbox and live are separate: make them two sources.',
    secret: 'The signature key of the webhook action, as text.',
    identity:
      '`id` (`evt_…`) and `type` of the body, `created_on` as the time. A link to the sandbox in `_links` marks a test; otherwise the body says nothing of it.',
    unsigned: 'Nothing of the event. There is no signed time: only the ID stops a replay.',
    retries:
      'Any 2xx is success (within 10 s: not confirmed). Up to 8 more deliveries, after 5, 10, 15 and 30 min, 1, 4, 12 and 12 h. At least once, in no order; that the ID stays is not confirmed.',
    traps: [
      "The action may also send an `Authorization` header with a second key of your choice. It is checked as well if you set `authorization: env.list('CHECKOUT_AUTHORIZATION')`, and ignored if you don’t. It is never stored.",
      '`payment_approved`, `payment_captured` and `payment_refunded` are events of one payment: build the key from `data.id` and the kind of email.',
      'Capture and refund events don’t name the customer: put the address into the payment’s `metadata`, or fetch the payment in the rule.',
      '`authentication_failed` events may come as broken JSON: they are kept as quarantined, raw.',
    ],
  },
  sample: {
    types: { paid: 'payment_captured', failed: 'payment_declined', refunded: 'payment_refunded' },
    newId: (unique) => `evt_${unique}`,
    request: ({ type, id, happenedSeconds, email, livemode, options }, sign) => {
      const [authorization] = [checkoutOptions.parse(options).authorization ?? []].flat()
      const suffix = id.replace(/^evt_/, '')
      const host = livemode ? 'api.checkout.com' : 'api.sandbox.checkout.com'
      const body = JSON.stringify({
        id,
        type,
        version: '1.0.0',
        created_on: new Date(happenedSeconds * 1000).toISOString(),
        data: {
          id: `pay_${suffix}`,
          action_id: `act_${suffix}`,
          amount: 4200,
          currency: 'EUR',
          response_code: type.endsWith('_declined') ? '20005' : '10000',
          reference: `ORD-${suffix.slice(-8).toUpperCase()}`,
          metadata: { email },
        },
        _links: { self: { href: `https://${host}/workflows/events/${id}` } },
      })
      return { headers: { 'cko-signature': sign(body), ...(authorization && { authorization }) }, body }
    },
  },
})
