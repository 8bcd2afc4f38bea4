import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider } from '../provider.ts'

const FORMS = { hex: /^([0-9a-f]{64})$/g, base64: /^([A-Za-z0-9+/]{43}=)$/g }

/** Klarna's webhooks (docs.klarna.com, webhooks; there is no verifier in JavaScript of theirs). */
export const klarna = defineProvider({
  name: 'klarna',
  title: 'Klarna',
  options: z.strictObject({ encoding: z.enum(['hex', 'base64']).default('hex') }),
  create: ({ encoding }) => ({
    name: 'klarna',
    documentation: 'https://docs.klarna.com/klarna-network-distribution/acquiring-partner-setup/webhooks',
    scheme: {
      signatures: [
        {
          kind: 'hmac',
          header: 'klarna-signature',
          match: FORMS[encoding],
          algorithm: 'sha256',
          encoding,
          secret: { form: 'text', keyId: 'optional' },
        },
      ],
      keyId: { header: 'klarna-signing-key-id', match: /^(.+)$/g },
      signed: '{body}',
    },
    toleranceSeconds: 300,
    idIsSigned: true,
    contentIsSigned: true,
    idBasis: 'provider',
    id: (event) => field(field(event, 'metadata'), 'event_id'),
    type: (event) => field(field(event, 'metadata'), 'event_type'),
    livemode: (event) => field(field(event, 'metadata'), 'live'),
    occurredAt: (event) => field(field(event, 'metadata'), 'occurred_at'),
  }),
  guide: {
    setUp:
      'Create a signing key first (Webhooks app of the Partner Portal, or the notification API), then a webhook to `https://YOUR-HOST/webhooks/klarna` (port 443 or 8443) with that key and the event types, such as `payment.request.state-change.*`.',
    variants: [{ title: 'digest in base64', options: { encoding: 'base64' } }],
    secret:
      'The signing key, as text, or `KEYID:KEY` with the signing key ID before the last colon (the ID may hold colons, as in `krn:partner:global:notification:signing-key:…:KEY`). With IDs, only the key that `Klarna-Signing-Key-Id` names is tried. Klarna shows a key once only.',
    identity: '`metadata.event_id` and `metadata.event_type` of the body.',
    unsigned: 'Nothing of the event. There is no signed time: only the ID stops a replay.',
    retries:
      '200, 201, 202 or 204 is success. Again after 10 s, 2 min, 15 min, 3 h, 6 h and 12 h; that the ID stays the same is not confirmed.',
    traps: [
      "The encoding of the digest is **not confirmed** by Klarna’s pages: `hex` is likely (a shop plugin for Klarna reads it), and the default. If every delivery is refused, set `encoding: 'base64'`.",
      'Older push callbacks (Klarna Checkout, order management) are not signed and are refused: fetch the order instead.',
      'An account can have 50 signing keys. Hold old and new one here while you change them.',
    ],
  },
  sample: {
    types: {
      paid: 'payment.request.state-change.authorized',
      failed: 'payment.request.state-change.declined',
    },
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email, livemode, secret }, sign) => {
      const body = JSON.stringify({
        metadata: {
          event_type: type,
          event_id: id,
          event_version: 'v2',
          occurred_at: new Date(happenedSeconds * 1000).toISOString(),
          live: livemode,
        },
        payload: { payment_request_id: `sample-${id}`, amount: 4200, currency: 'EUR', customer: { email } },
      })
      const keyId = secret.slice(0, Math.max(0, secret.lastIndexOf(':')))
      return { headers: { 'klarna-signature': sign(body), ...(keyId && { 'klarna-signing-key-id': keyId }) }, body }
    },
  },
})
