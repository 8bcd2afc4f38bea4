import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const provider: ProviderFacts = {
  name: 'gocardless',
  documentation: 'https://developer.gocardless.com/getting-started/staying-up-to-date-with-webhooks',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'webhook-signature',
        match: /^([0-9a-f]{64})$/gi,
        algorithm: 'sha256',
        encoding: 'hex',
        // GoCardless's own library decodes the hex.
        anyCase: true,
        secret: { form: 'text' },
      },
    ],
    signed: '{body}',
  },
  // Up to 250 events of less than 1 kB each.
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  events: (payload) => {
    const events = field(payload, 'events')
    return Array.isArray(events) ? events : undefined
  },
  // Not meta.webhook_id: a redelivery may group the events differently.
  id: (event) => field(event, 'id'),
  type: (event) => {
    const resource = field(event, 'resource_type')
    const action = field(event, 'action')
    return typeof resource === 'string' && typeof action === 'string' ? `${resource}.${action}` : undefined
  },
  occurredAt: (event) => field(event, 'created_at'),
  object: (event) => {
    const resource = field(event, 'resource_type')
    // `payments` are linked as `payment`.
    return typeof resource === 'string' ? field(field(event, 'links'), resource.replace(/s$/, '')) : undefined
  },
}

/** GoCardless, up to 250 events in one POST (developer.gocardless.com, webhooks; gocardless-nodejs 10 `webhooks.parse`). */
export const gocardless = defineProvider({
  name: 'gocardless',
  title: 'GoCardless',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp: 'In the Dashboard under Developers, create a webhook endpoint with the address. It sends all types; the rules choose.',
    secret: 'The endpoint’s secret, as text.',
    identity:
      'Each element of `events`: its `id` (`EV…`), and `resource_type` + `.` + `action`, as in `payments.paid_out`. `links` name the objects; `meta.webhook_id` names the delivery only.',
    unsigned: 'Nothing of the event. There is no signed time: only the ID stops a replay.',
    retries:
      'Any 2xx within 10 s is success, a redirect is not. Up to 8 more at growing pauses (1, 2, 10 min, …); they may group the events differently.',
    traps: [
      'Up to 250 events come in one POST. One that can’t be read is kept as quarantined and doesn’t hold back the others.',
      'Events hold links and no address: put it into the metadata of the payment, or fetch the customer in the rule.',
    ],
  },
  sample: {
    types: {
      paid: 'payments.confirmed',
      failed: 'payments.failed',
      refunded: 'refunds.paid',
      'subscription ended': 'subscriptions.cancelled',
      payout: 'payouts.paid',
    },
    newId: (unique) => `EV${unique}`,
    request: ({ type, id, happenedSeconds, email }, sign) => {
      const [resource = type, action = 'created'] = type.split('.')
      const body = JSON.stringify({
        events: [
          {
            id,
            created_at: new Date(happenedSeconds * 1000).toISOString(),
            resource_type: resource,
            action,
            links: { [resource.replace(/s$/, '')]: `XX${id.slice(-12).toUpperCase()}` },
            details: { origin: 'gocardless', cause: 'sample', description: 'A sample event.' },
            resource_metadata: { email },
          },
        ],
        meta: { webhook_id: 'WB000SAMPLE' },
      })
      return { headers: { 'webhook-signature': sign(body) }, body }
    },
  },
})
