import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import { headerValue } from '../signature.ts'

const ENVIRONMENT = 'square-environment'
const IS_LIVE: Record<string, boolean> = { production: true, sandbox: false }

// Signed byte for byte, so it is never normalised.
const squareOptions = z.strictObject({ notificationUrl: z.url({ protocol: /^https?$/ }) })

const createSquare = (url: string): ProviderFacts => ({
  name: 'square',
  documentation: 'https://developer.squareup.com/docs/webhooks/step3validate',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-square-hmacsha256-signature',
        match: /^([A-Za-z0-9+/]{43}=)$/g,
        algorithm: 'sha256',
        encoding: 'base64',
        secret: { form: 'text' },
      },
    ],
    signed: '{url}{body}',
    url,
  },
  factHeaders: [ENVIRONMENT],
  toleranceSeconds: 300,
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (event) => field(event, 'event_id'),
  type: (event) => field(event, 'type'),
  livemode: (_event, { headers }) => IS_LIVE[headerValue(headers, ENVIRONMENT)?.toLowerCase() ?? ''],
  occurredAt: (event) => field(event, 'created_at'),
  object: (event) => field(field(event, 'data'), 'id'),
})

const STATUS: Record<string, string> = { invoice: 'UNPAID', subscription: 'CANCELED', payout: 'PAID' }

/** Square (developer.squareup.com/docs/webhooks; square 46 `WebhooksHelper`). */
export const square = defineProvider({
  name: 'square',
  title: 'Square',
  options: squareOptions,
  urlOption: 'notificationUrl',
  create: ({ notificationUrl }) => createSquare(notificationUrl),
  guide: {
    setUp:
      'In the Developer Console open the application, Webhooks, Subscriptions, and add one with `https://YOUR-HOST/webhooks/square` and the events (`payment.updated`, `refund.updated`, `invoice.scheduled_charge_failed`, `subscription.updated`, `payout.paid`). Set `notificationUrl` to the same address. Sandbox and production have subscriptions of their own: make them two sources.',
    options: `notificationUrl: 'https://YOUR-HOST/webhooks/square'`,
    secret: 'The signature key of the subscription (Endpoint details, Show), as text. It is no access token.',
    identity:
      '`event_id` and `type` of the body, `created_at` as the time. The header `Square-Environment` (`Production` or `Sandbox`) says whether it is a test.',
    unsigned:
      'Nothing of the event: the address and the body are signed. `Square-Environment` is unsigned, so keep sandbox and production apart by their keys. There is no signed time: only the ID stops a replay.',
    retries:
      'Any 2xx is success, soon (10 s on an older page). Delivered again for up to 24 h (72 h on an older page), with the same ID and signature. No order: compare `version` in the object.',
    traps: [
      '`notificationUrl` must be the registered address **byte for byte**: scheme, slash at the end, query. What a proxy makes of it doesn’t matter.',
      'Two subscriptions on one address have two keys: list both, or refusals will look like forgeries.',
      '`payment.updated` comes for every change of a payment: look at `data.object.payment.status` (`COMPLETED`). An ended subscription is a `subscription.updated` whose status is `CANCELED` or `DEACTIVATED`.',
      'The old SHA-1 header `X-Square-Signature` is ignored.',
    ],
  },
  sample: {
    types: {
      paid: 'payment.updated',
      failed: 'invoice.scheduled_charge_failed',
      refunded: 'refund.updated',
      'subscription ended': 'subscription.updated',
      payout: 'payout.paid',
    },
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email, livemode, options }, sign) => {
      const { notificationUrl } = squareOptions.parse(options)
      const [resource = type] = type.split('.')
      const objectId = `SAMPLE${id.replaceAll('-', '')}`
      const body = JSON.stringify({
        merchant_id: 'MLSAMPLE00001',
        type,
        event_id: id,
        created_at: new Date(happenedSeconds * 1000).toISOString(),
        data: {
          type: resource,
          id: objectId,
          object: {
            [resource]: {
              id: objectId,
              amount_money: { amount: 4200, currency: 'EUR' },
              buyer_email_address: email,
              status: STATUS[resource] ?? 'COMPLETED',
              version: 3,
            },
          },
        },
      })
      return {
        headers: {
          'x-square-hmacsha256-signature': sign(notificationUrl + body),
          [ENVIRONMENT]: livemode ? 'Production' : 'Sandbox',
          'square-initial-delivery-timestamp': new Date(happenedSeconds * 1000).toISOString(),
        },
        body,
      }
    },
  },
})
