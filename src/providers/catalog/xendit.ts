import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import { headerValue } from '../signature.ts'

const provider: ProviderFacts = {
  name: 'xendit',
  documentation: 'https://docs.xendit.co/webhook',
  scheme: {
    signatures: [
      { kind: 'credential', header: 'x-callback-token', match: /^(.*\S.*)$/g, encoding: 'plain', secret: { form: 'text' } },
    ],
    signed: '',
  },
  factHeaders: ['webhook-id'],
  toleranceSeconds: 300,
  idIsSigned: false,
  contentIsSigned: false,
  idBasis: 'provider',
  id: (_event, { headers }) => headerValue(headers, 'webhook-id'),
  type: (event) => field(event, 'event'),
  occurredAt: (event) => field(event, 'created'),
  object: (event) => field(field(event, 'data'), 'id') ?? field(event, 'id'),
}

/** Xendit (docs.xendit.co/webhook): a static token, and nothing signed. */
export const xendit = defineProvider({
  name: 'xendit',
  title: 'Xendit',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'In the Dashboard under Settings, Webhooks enter `https://YOUR-HOST/webhooks/xendit` for each product used (payments, refunds, payouts, recurring), and copy the verification token.',
    secret: 'The webhook verification token of the account, as text. Test and live mode have one each.',
    identity:
      'The header `webhook-id`; `event` of the body (`payment.succeeded`). Older products send no `event`: their type is empty.',
    unsigned:
      '**Everything.** The token proves that its holder sent the request, and it comes with each one in full. ID, type and amounts are what the body and headers say: give `confirm`, and fetch the object. What is made up under a real ID doesn’t hold back the real event.',
    retries: 'Any 2xx within 30 s is success. 6 more, after 15 min, 1 h, 3 h and growing; same `webhook-id`.',
    traps: [
      'An event without `webhook-id` is kept as quarantined.',
      'One body under another `webhook-id` counts as the same event (the second key on type and body).',
    ],
  },
  sample: {
    types: {
      paid: 'payment.succeeded',
      failed: 'payment.failed',
      refunded: 'refund.succeeded',
      'subscription ended': 'recurring.plan.inactivated',
      payout: 'payout.succeeded',
    },
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email }, sign) => {
      const body = JSON.stringify({
        event: type,
        business_id: '5f27a14a9bf05c73dd040bc8',
        created: new Date(happenedSeconds * 1000).toISOString(),
        data: { id: `py-${id}`, amount: 42000, currency: 'IDR', status: 'SUCCEEDED', metadata: { email } },
      })
      return { headers: { 'x-callback-token': sign(''), 'webhook-id': id }, body }
    },
  },
})
