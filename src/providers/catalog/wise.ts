import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import { headerValue } from '../signature.ts'

const provider: ProviderFacts = {
  name: 'wise',
  documentation: 'https://docs.wise.com/api-docs/webhooks-notifications',
  scheme: {
    signatures: [
      {
        kind: 'rsa',
        header: 'x-signature-sha256',
        match: /^([A-Za-z0-9+/]+={0,2})$/g,
        algorithm: 'sha256',
        encoding: 'base64',
        secret: { form: 'public key' },
      },
    ],
    signed: '{body}',
  },
  factHeaders: ['x-delivery-id', 'x-test-notification'],
  idIsSigned: false,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (_event, { headers }) => headerValue(headers, 'x-delivery-id'),
  type: (event) => field(event, 'event_type'),
  livemode: (_event, { headers }) => (headerValue(headers, 'x-test-notification') === 'true' ? false : undefined),
  occurredAt: (event) => field(field(event, 'data'), 'occurred_at') ?? field(event, 'sent_at'),
  object: (event) => field(field(field(event, 'data'), 'resource'), 'id'),
}

/** Wise (docs.wise.com, webhooks and notifications; no library of theirs verifies). */
export const wise = defineProvider({
  name: 'wise',
  title: 'Wise',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'Under Settings, Developer tools, Webhooks (or by the API for an application) create a webhook with the address `https://YOUR-HOST/webhooks/wise` on port 443, and choose transfer and balance events.',
    secret:
      'Wise’s own public key, as PEM or base64: its documentation publishes one for production and one for the sandbox. It is the same for everybody, so it is no secret: that an event is about *your* account, only its content says.',
    identity:
      'The header `X-Delivery-Id`; `event_type` of the body, as in `transfers#state-change`. `data.resource` names the object.',
    unsigned:
      'The headers, so the ID, and `X-Test-Notification`, by which a test is told. A captured body under another ID is stopped by the second key on type and body. There is no signed time.',
    retries:
      '**200** is success. Again after 1 min, then at doubling pauses. Whether a redelivery keeps the `X-Delivery-Id` is not confirmed; if it doesn’t, the same body is still known by its hash.',
    traps: [
      'The signature is RSA, though some packages take it for an HMAC.',
      'Wise signs everybody’s events with one key: compare `data.resource.profile_id` in the rules.',
      'No order is promised: `data.occurred_at` tells it. The events hold no personal data: fetch what an email needs.',
      'That tests carry `X-Test-Notification: true` is not confirmed.',
    ],
  },
  sample: {
    types: {
      paid: 'balances#credit',
      failed: 'transfers#payout-failure',
      refunded: 'transfers#refund',
      payout: 'transfers#state-change',
    },
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email, livemode }, sign) => {
      const at = new Date(happenedSeconds * 1000).toISOString()
      const body = JSON.stringify({
        data: {
          // Wise sends no address; this one stands here for the rules to be tried with.
          resource: { type: 'transfer', id: `transfer-${id}`, profile_id: 2_000_042, account_id: 1_000_042, email },
          amount: 42,
          currency: 'EUR',
          current_state: 'outgoing_payment_sent',
          occurred_at: at,
        },
        subscription_id: '01234567-89ab-cdef-0123-456789abcdef',
        event_type: type,
        schema_version: '2.0.0',
        sent_at: at,
      })
      return {
        headers: {
          'x-delivery-id': id,
          'x-signature-sha256': sign(body),
          ...(!livemode && { 'x-test-notification': 'true' }),
        },
        body,
      }
    },
  },
})
