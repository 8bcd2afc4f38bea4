import { z } from 'zod'
import { derivedId } from '../derived-id.ts'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const MODES: Record<string, boolean> = { live: true, test: false }
const data = (event: unknown, name: string) => field(field(event, 'data'), name)

const provider: ProviderFacts = {
  name: 'paystack',
  documentation: 'https://paystack.com/docs/payments/webhooks/',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-paystack-signature',
        match: /^([0-9a-f]{128})$/g,
        algorithm: 'sha512',
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
  id: (event) => derivedId(field(event, 'event'), data(event, 'id')),
  type: (event) => field(event, 'event'),
  livemode: (event) => {
    const domain = data(event, 'domain')
    return typeof domain === 'string' ? MODES[domain] : undefined
  },
  occurredAt: (event) => data(event, 'paid_at'),
  // The numbers of charges, transfers and refunds are counted each for itself.
  object: (event) => {
    const type = field(event, 'event')
    return typeof type === 'string' ? derivedId(type.replace(/\.[^.]*$/, ''), data(event, 'id')) : undefined
  },
}

/** Paystack (paystack.com/docs/payments/webhooks). */
export const paystack = defineProvider({
  name: 'paystack',
  title: 'Paystack',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      "In the Dashboard under Settings, API Keys & Webhooks, enter `https://YOUR-HOST/webhooks/paystack` as the webhook URL. All events come (`charge.success`, `invoice.payment_failed`, `refund.processed`, `subscription.disable`, `transfer.success`); the rules choose. Test and live have a URL and a key of their own: make them two sources, the first with `mode: 'test'`.",
    secret: 'The account’s secret API key (`sk_live_…` or `sk_test_…`), as text: there is no webhook secret.',
    identity:
      'Paystack gives no event ID. It is put together: `event:data.id`; where an event has no `data.id`, the hash of the body. The type is `event`; `data.domain` says `live` or `test`.',
    unsigned: 'Nothing of the event. There is no signed time: only the ID stops a replay.',
    retries: 'Success is 200. Not confirmed: again every 3 min 4 times, then hourly for 72 h; in test mode hourly for 10 h.',
    traps: [
      'A new API key changes the signatures of webhooks too: list the new one beside the old one at once.',
      'The secret can move money. Keep it out of the configuration file and give it to this service only.',
      'An event that comes again about the same object with other content has the same derived ID: it is kept as a conflict, and nothing is sent for it.',
      'For charges `data.reference` is your own ID. Paystack advises to confirm a charge by its verify call before giving value: use `confirm`.',
    ],
  },
  sample: {
    types: {
      paid: 'charge.success',
      failed: 'invoice.payment_failed',
      refunded: 'refund.processed',
      'subscription ended': 'subscription.disable',
      payout: 'transfer.success',
    },
    newId: (unique) => String(Number.parseInt(unique.slice(0, 12), 16)),
    request: ({ type, id, happenedSeconds, email, livemode }, sign) => {
      const body = JSON.stringify({
        event: type,
        data: {
          id: /^\d{1,15}$/.test(id) ? Number(id) : id,
          domain: livemode ? 'live' : 'test',
          status: type.endsWith('failed') ? 'failed' : 'success',
          reference: `SAMPLE${id}`,
          amount: 420_000,
          currency: 'NGN',
          channel: 'card',
          paid_at: new Date(happenedSeconds * 1000).toISOString(),
          customer: { id: 181_873_746, email },
          metadata: {},
        },
      })
      return { headers: { 'x-paystack-signature': sign(body) }, body }
    },
  },
})
