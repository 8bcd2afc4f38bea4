import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const provider: ProviderFacts = {
  name: 'recurly',
  documentation: 'https://docs.recurly.com/recurly-subscriptions/docs/signature-verification',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'recurly-signature',
        // All that follows the time: one signature per live key.
        match: /(?<=,)([0-9a-f]{64})(?=,|$)/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    timestamp: { header: 'recurly-signature', match: /^([^,]*),/g, unit: 'milliseconds' },
    signed: '{timestamp}.{body}',
  },
  toleranceSeconds: 300,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'id'),
  type: (event) => {
    const object = field(event, 'object_type')
    const happened = field(event, 'event_type')
    return typeof object === 'string' && typeof happened === 'string' ? `${object}.${happened}` : undefined
  },
  occurredAt: (event) => field(event, 'event_time'),
  object: (event) => field(event, 'uuid'),
}

/** Recurly, JSON webhooks (docs.recurly.com, signature verification; recurly 4.81 has no verifier in JavaScript). */
export const recurly = defineProvider({
  name: 'recurly',
  title: 'Recurly',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'Under Integrations, Webhooks create an endpoint `https://YOUR-HOST/webhooks/recurly` of format **JSON** and choose the events of payments, invoices and subscriptions. It reaches ports 80 and 443 only.',
    secret:
      'The secret key of the endpoint, as text. After a new one is made both stay alive for 24 h, and each delivery carries one signature per key: list both here.',
    identity:
      '`id` of the body; `object_type` + `.` + `event_type`, as in `payment.succeeded`. Recurly’s pages don’t show these names: not confirmed.',
    unsigned: 'Nothing of the event: time and body are signed.',
    retries:
      'Any 2xx within 5 s is success, a redirect is not. Up to 10 more, after about `10 + x·2^(x+5)` s, in the order of creation. That the ID stays the same is not confirmed.',
    traps: [
      'XML webhooks are not signed: they are refused.',
      'The signed time is in **milliseconds** and must be within `toleranceSeconds` (300; Recurly’s libraries have a bound of their own, which is not published).',
      'Recurly advises to take a webhook for a hint and to query its API: the body holds IDs rather than the whole object.',
    ],
  },
  sample: {
    types: {
      paid: 'payment.succeeded',
      failed: 'payment.failed',
      'subscription ended': 'subscription.canceled',
    },
    newId: (unique) => unique.slice(0, 12),
    request: ({ type, id, happenedSeconds, nowSeconds, email }, sign) => {
      const [object = type, happened = 'succeeded'] = type.split('.')
      const body = JSON.stringify({
        id,
        object_type: object,
        site_id: 'qwertyuiop12',
        event_type: happened,
        event_time: new Date(happenedSeconds * 1000).toISOString(),
        uuid: `sample-${id}`,
        account: { code: 'ada', email },
        amount: 4200,
        currency: 'EUR',
      })
      const milliseconds = nowSeconds * 1000
      return { headers: { 'recurly-signature': `${milliseconds},${sign(`${milliseconds}.${body}`)}` }, body }
    },
  },
})
