import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const provider: ProviderFacts = {
  name: 'sendgrid',
  documentation:
    'https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features',
  scheme: {
    signatures: [
      {
        kind: 'ecdsa',
        header: 'x-twilio-email-event-webhook-signature',
        match: /^([A-Za-z0-9+/]+={0,2})$/g,
        encoding: 'base64',
        secret: { form: 'public key' },
      },
    ],
    // Ten digits, as nothing stands between the time and the body: one of them moved would make it another body.
    timestamp: { header: 'x-twilio-email-event-webhook-timestamp', match: /^([0-9]{10})$/g },
    signed: '{timestamp}{body}',
  },
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'provider',
  events: (payload) => (Array.isArray(payload) ? payload : undefined),
  id: (event) => field(event, 'sg_event_id'),
  type: (event) => field(event, 'event'),
  occurredAt: (event) => field(event, 'timestamp'),
  object: (event) => field(event, 'sg_message_id'),
}

/** SendGrid, Event Webhook (docs.sendgrid.com; @sendgrid/eventwebhook 8.0). */
export const sendgrid = defineProvider({
  name: 'sendgrid',
  title: 'SendGrid',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'Under Settings, Mail Settings, Event Webhooks create a webhook with the address `https://YOUR-HOST/webhooks/sendgrid`, choose the events, and switch on **Signed Event Webhook**.',
    secret:
      'The verification key that the same page shows: a public key in base64, as it stands, or as PEM. It verifies and can’t sign, so it is no secret. Each webhook has one of its own.',
    identity: 'Each element of the list: its `sg_event_id`, and `event`, as in `delivered`. `sg_message_id` names the email.',
    unsigned: 'Nothing of the event: time and body are signed.',
    retries:
      'Any 2xx is success, and SendGrid is said to wait for 10 s. Again for up to 24 h. Duplicates occur; they have the same `sg_event_id`.',
    traps: [
      'Many events come in one POST. One that can’t be read is kept as quarantined and doesn’t hold back the others.',
      'The line break at the end of the body is signed too: a proxy that trims it breaks every signature.',
      'The signed time has no bound unless the source sets `toleranceSeconds`; SendGrid names none.',
      'Nothing tells a test event of the settings page from a real one.',
    ],
  },
  sample: {
    types: {},
    newId: (unique) => Buffer.from(unique, 'hex').toString('base64url'),
    request: ({ type, id, happenedSeconds, nowSeconds, email }, sign) => {
      const event = {
        email,
        timestamp: happenedSeconds,
        'smtp-id': `<${id}@example.com>`,
        event: type,
        category: ['receipt'],
        sg_event_id: id,
        sg_message_id: `${id}.recvd-0`,
      }
      const body = `${JSON.stringify([event])}\r\n`
      return {
        headers: {
          'x-twilio-email-event-webhook-timestamp': String(nowSeconds),
          'x-twilio-email-event-webhook-signature': sign(`${nowSeconds}${body}`),
        },
        body,
      }
    },
  },
})
