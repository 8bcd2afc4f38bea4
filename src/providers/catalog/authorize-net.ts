import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider } from '../provider.ts'

/** Authorize.Net (developer.authorize.net, webhooks; there is no verifier in JavaScript of theirs). */
export const authorizeNet = defineProvider({
  name: 'authorize-net',
  title: 'Authorize.Net',
  options: z.strictObject({
    // The documentation leaves this open; trying both would make a wrong choice invisible.
    keyEncoding: z.enum(['utf8', 'hex']).default('utf8'),
  }),
  create: ({ keyEncoding }) => ({
    name: 'authorize-net',
    documentation: 'https://developer.authorize.net/api/reference/features/webhooks.html',
    scheme: {
      signatures: [
        {
          kind: 'hmac',
          header: 'x-anet-signature',
          match: /^sha512=([0-9a-fA-F]{128})$/g,
          algorithm: 'sha512',
          encoding: 'hex',
          secret: { form: keyEncoding === 'hex' ? 'hex' : 'text' },
          anyCase: true,
        },
      ],
      signed: '{body}',
    },
    toleranceSeconds: 300,
    idIsSigned: true,
    contentIsSigned: true,
    idBasis: 'provider',
    id: (event) => field(event, 'notificationId'),
    type: (event) => field(event, 'eventType'),
    occurredAt: (event) => field(event, 'eventDate'),
    object: (event) => field(field(event, 'payload'), 'id'),
  }),
  guide: {
    setUp:
      'In the Merchant Interface under Account, Settings, Webhooks add the endpoint `https://YOUR-HOST/webhooks/authorize-net`, choose the payment events (`net.authorize.payment.authcapture.created`, `…refund.created`, `…void.created`, and those of subscriptions) and set it to active.',
    variants: [{ title: 'key as hex', options: { keyEncoding: 'hex' } }],
    secret:
      'The Signature Key (128 hex digits; Account, Settings, API Credentials & Keys), used as text. Whether it is text or hex is not documented: `keyEncoding` is `utf8`, as a published example has it; set `hex` if every delivery is refused. Only the one set is tried.',
    identity: '`notificationId` and `eventType` of the body.',
    unsigned: 'Nothing of the event. There is no signed time: only the ID stops a replay.',
    retries:
      '200 is success. Not confirmed: delivered again over several days with the same `notificationId`, then the webhook goes inactive.',
    traps: [
      'The payload is thin and has no email address: fetch the transaction by `payload.id` in the rule, or give `confirm`.',
      'The digest usually comes in upper-case hex; lower case is taken too. The prefix `sha512=` has to be there.',
      'Sandbox and production have Signature Keys of their own, and the body doesn’t say which it is: use a source for each.',
    ],
  },
  sample: {
    types: {
      paid: 'net.authorize.payment.authcapture.created',
      refunded: 'net.authorize.payment.refund.created',
      'subscription ended': 'net.authorize.customer.subscription.cancelled',
    },
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email }, sign) => {
      const body = JSON.stringify({
        notificationId: id,
        eventType: type,
        eventDate: new Date(happenedSeconds * 1000).toISOString(),
        webhookId: '872ac738-06c4-4d7c-8c2a-44f6e0f2b1c9',
        payload: {
          responseCode: 1,
          authCode: 'LZ6I19',
          avsResponse: 'Y',
          authAmount: 42,
          merchantReferenceId: email,
          entityName: type.includes('subscription') ? 'subscription' : 'transaction',
          id: `sample-${id}`,
        },
      })
      return { headers: { 'x-anet-signature': `sha512=${sign(body).toUpperCase()}` }, body }
    },
  },
})
