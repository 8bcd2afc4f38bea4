import { z } from 'zod'
import { readForm } from '../form.ts'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts, type WebhookRequest } from '../provider.ts'

const common = {
  name: 'mollie',
  toleranceSeconds: 300,
} as const

const signed: ProviderFacts = {
  ...common,
  documentation: 'https://docs.mollie.com/reference/webhooks-best-practices',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-mollie-signature',
        // A proxy may have joined two headers to a list.
        match: /(?:^|,) *(?:sha256=)?([0-9a-f]{64}) *(?=,|$)/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    isRepeatable: true,
    signed: '{body}',
  },
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'id'),
  type: (event) => field(event, 'type'),
  livemode: (event) => {
    const mode = field(field(field(event, '_embedded'), 'entity'), 'mode')
    return mode === 'live' ? true : mode === 'test' ? false : undefined
  },
  occurredAt: (event) => field(event, 'createdAt'),
  object: (event) => field(event, 'entityId'),
}

const classic: ProviderFacts = {
  ...common,
  documentation: 'https://docs.mollie.com/reference/webhooks',
  scheme: { isUnsigned: true, isOfForm: (request) => classicId(request) !== undefined },
  secrets: 'none',
  // Anybody can have it stored.
  maxBodyBytes: 1024,
  idIsSigned: false,
  contentIsSigned: false,
  requiresConfirm: true,
  // The ID names the payment, which is told of at each change of its state.
  idBasis: 'delivery',
  id: (event) => field(event, 'id'),
  type: () => 'classic',
  object: (event) => field(event, 'id'),
  jsonText: (request) => JSON.stringify({ id: classicId(request) }),
}

/** The ID in a classic request; undefined where it is none that Mollie gives, or not the only one. */
function classicId({ body }: WebhookRequest): string | undefined {
  const [id = '', ...more] = readForm(body)?.getAll('id') ?? []
  return more.length === 0 && /^[a-z]+_[A-Za-z0-9]{1,64}$/.test(id) ? id : undefined
}

/** Mollie, next-generation and classic webhooks (docs.mollie.com, webhooks; mollie-api-php `SignatureValidator`). */
export const mollie = defineProvider({
  name: 'mollie',
  title: 'Mollie',
  options: z.strictObject({ classic: z.boolean().default(false) }),
  create: ({ classic: isClassic }) => (isClassic ? classic : signed),
  guide: {
    setUp:
      'In the Dashboard under Developers, Webhooks create a webhook to `https://YOUR-HOST/webhooks/mollie` with the event types (`payment-link.paid`, `sales-invoice.paid`) and copy its signing secret. For classic webhooks make a source of its own with `classic: true`, no secrets and `confirm`, and give its address as `webhookUrl` of each payment.',
    variants: [{ title: 'classic', options: { classic: true } }],
    secret: 'The signing secret of the webhook, as text. With `classic: true` there is none.',
    identity:
      '`id` and `type` of the body. Classic: none; `id` names the payment, so each delivery is an event of its own (`tr_…:` + a random part) of type `classic`.',
    unsigned:
      'Nothing of the event. There is no signed time: only the ID stops a replay. Classic: **everything**. Anybody can post any `id`, so nothing happens but by what `confirm` fetches from Mollie; what is not `id` and an ID in Mollie’s form (`tr_` and letters and digits) is refused.',
    retries:
      'Any 2xx is success. That a redelivery keeps its ID is not confirmed. Classic: not confirmed: about 10 more in 26 h, within 15 s each.',
    traps: [
      'A request without `X-Mollie-Signature` is a classic one and is refused, unless the source says `classic: true`.',
      'While a secret is rotated the header may come twice, with a signature each; any that is right counts.',
      'The prefix of the event ID differs between Mollie’s pages (`event_`, `whe_`) and is not checked.',
      'Classic: build the key from the payment’s ID and the status that was fetched, not from the event ID.',
      '`_embedded.entity.mode` says whether it is a test; a simple payload, with `entityId` alone, doesn’t say it.',
    ],
  },
  sample: {
    types: { paid: 'payment-link.paid' },
    newId: (unique) => `event_${unique}`,
    request: ({ type, id, happenedSeconds, email, livemode, options }, sign) => {
      if (options.classic === true)
        return {
          headers: { 'content-type': 'application/x-www-form-urlencoded' },
          body: `id=${encodeURIComponent(id.replace(/^event_/, 'tr_'))}`,
        }
      const entityId = `pl_${id.replace(/^event_/, '')}`
      const body = JSON.stringify({
        resource: 'event',
        id,
        type,
        entityId,
        createdAt: new Date(happenedSeconds * 1000).toISOString(),
        _embedded: {
          entity: {
            resource: 'payment-link',
            id: entityId,
            mode: livemode ? 'live' : 'test',
            description: `Sample for ${email}`,
            amount: { currency: 'EUR', value: '42.00' },
            customer: { email },
          },
        },
      })
      return { headers: { 'x-mollie-signature': `sha256=${sign(body)}` }, body }
    },
  },
})
