import { z } from 'zod'
import { field, isRecord } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const provider: ProviderFacts = {
  name: 'chargebee',
  documentation: 'https://www.chargebee.com/docs/2.0/webhook_settings.html',
  scheme: {
    signatures: [
      {
        kind: 'credential',
        header: 'authorization',
        match: /^basic +([A-Za-z0-9+/]+={0,2})$/gi,
        encoding: 'basic',
        secret: { form: 'text' },
      },
    ],
    signed: '',
  },
  toleranceSeconds: 300,
  idIsSigned: false,
  contentIsSigned: false,
  idBasis: 'provider',
  id: (event) => field(event, 'id'),
  type: (event) => field(event, 'event_type'),
  occurredAt: (event) => field(event, 'occurred_at'),
  object: (event) => {
    const content = field(event, 'content')
    const type = field(event, 'event_type')
    if (!isRecord(content) || typeof type !== 'string') return undefined
    // `subscription_cancelled` is about `content.subscription`; `payment_succeeded` and `refund_initiated` about the transaction.
    const name = Object.keys(content).find((each) => type.startsWith(`${each}_`)) ?? 'transaction'
    return field(field(content, name), 'id')
  },
  // How the deliveries of this event stand.
  volatileFields: ['webhook_status', 'webhook_failure_reason', 'webhooks'],
}

/** Chargebee (chargebee.com/docs, webhooks; chargebee 3.33 `basicAuthValidator`): HTTP Basic, and nothing signed. */
export const chargebee = defineProvider({
  name: 'chargebee',
  title: 'Chargebee',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'Under Settings, Configure Chargebee, API Keys and Webhooks, Webhooks add `https://YOUR-HOST/webhooks/chargebee`, turn on basic authentication with a user name and a long random password, and choose the events (`payment_succeeded`, `payment_failed`, `payment_refunded`, `subscription_cancelled`).',
    secret: '`USER:PASSWORD` as you set them there. The user name can hold no colon, the password can; it is read as UTF-8.',
    identity:
      '`id` (`ev_…`) and `event_type` of the body. `webhook_status`, `webhook_failure_reason` and `webhooks` tell of deliveries and make no other event.',
    unsigned:
      '**Everything.** The password proves that its holder sent the request. ID, type and amounts are what the body says: give `confirm`, and fetch the event or the object. What is made up under a real ID doesn’t hold back the real event.',
    retries: 'Any 2xx within 60 s (20 s to connect, 20 s to read) is success. 7 more, after 2 min to 2 days; same ID.',
    traps: [
      'Events come in any order, and more than once.',
      'The body doesn’t say whether it is of a test site: use a source for each, with a password of its own.',
      'Without a password on the endpoint every delivery is refused.',
    ],
  },
  sample: {
    types: {
      paid: 'payment_succeeded',
      failed: 'payment_failed',
      refunded: 'payment_refunded',
      'subscription ended': 'subscription_cancelled',
    },
    newId: (unique) => `ev_${unique}`,
    request: ({ type, id, happenedSeconds, email }, sign) => {
      const unique = id.replace(/^ev_/, '')
      const body = JSON.stringify({
        id,
        occurred_at: happenedSeconds,
        source: 'admin_console',
        object: 'event',
        api_version: 'v2',
        content: {
          ...(type.startsWith('subscription') && { subscription: { id: `sub_${unique}`, status: 'cancelled' } }),
          ...(!type.startsWith('subscription') && {
            transaction: { id: `txn_${unique}`, amount: 4200, currency_code: 'EUR' },
            invoice: { id: `inv_${unique}`, total: 4200, currency_code: 'EUR' },
          }),
          customer: { id: 'cbdemo_ada', email },
        },
        event_type: type,
        webhook_status: 'scheduled',
      })
      return { headers: { authorization: `Basic ${sign('')}` }, body }
    },
  },
})
