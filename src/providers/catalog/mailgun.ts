import { z } from 'zod'
import { field, parseUnverified } from '../json.ts'
import { defineProvider, type ProviderFacts, type WebhookRequest } from '../provider.ts'
import type { Proof, Reason, SignatureKind } from '../signature.ts'

const kind: SignatureKind = { kind: 'hmac', algorithm: 'sha256', encoding: 'hex', secret: { form: 'text' } }

const provider: ProviderFacts = {
  name: 'mailgun',
  documentation: 'https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks',
  scheme: {
    signatures: [kind],
    place: '`signature.signature` in the body; `signature.parent-signature` does as well',
    signed: '`signature.timestamp` and `signature.token`, joined',
    timestamp: '`signature.timestamp` in the body',
    proofs,
  },
  maxBodyBytes: 256 * 1024,
  // Mailgun names no bound and asks for a generous one: a redelivery can be hours old.
  toleranceSeconds: 86_400,
  idIsSigned: false,
  contentIsSigned: false,
  idBasis: 'provider',
  id: (event) => field(field(event, 'event-data'), 'id'),
  type: (event) => field(field(event, 'event-data'), 'event'),
  livemode: (event) => {
    const isTest = field(field(field(event, 'event-data'), 'flags'), 'is-test-mode')
    return typeof isTest === 'boolean' ? !isTest : undefined
  },
  occurredAt: (event) => field(field(event, 'event-data'), 'timestamp'),
  object: (event) => field(field(field(field(event, 'event-data'), 'message'), 'headers'), 'message-id'),
  replayKey: (event) => field(field(event, 'signature'), 'token'),
  volatileFields: ['signature'],
}

function proofs({ body }: WebhookRequest): readonly Proof[] | Reason {
  const found = field(parseUnverified(body), 'signature')
  const given = ['signature', 'parent-signature']
    .map((name) => field(found, name))
    .filter((value): value is string => typeof value === 'string' && value !== '')
  if (given.length === 0) return 'missing_signature'
  const [timestamp, token] = [String(field(found, 'timestamp')), field(found, 'token')]
  // Ten digits, as nothing stands between the two: with one of them moved, the token would be another one.
  const isWhole = /^\d{10}$/.test(timestamp) && typeof token === 'string' && token !== ''
  if (!isWhole || !given.every((signature) => /^[0-9a-f]{64}$/.test(signature))) return 'malformed_signature'
  return [{ signatures: [{ kind, given }], signed: () => [[timestamp, token]], signedAt: Number(timestamp) }]
}

/** Mailgun, JSON webhooks (documentation.mailgun.com, securing webhooks; no library of theirs verifies). */
export const mailgun = defineProvider({
  name: 'mailgun',
  title: 'Mailgun',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'Under Send, Sending, Webhooks choose the domain and add the address `https://YOUR-HOST/webhooks/mailgun` for each event (delivered, permanent failure, temporary failure, complained, …).',
    secret:
      'The HTTP webhook signing key of the account, as text; not the API key. Events of a sub-account carry the signature of the main account as well, so either key does.',
    identity: '`event-data.id` and `event-data.event` of the body.',
    unsigned:
      '**The whole event.** Signed are only a time and a random token. Whoever has seen one request can post anything with its signature, as long as the token was not used here before: each token counts once, and what comes with it again is kept as a conflict. What is made up under a real ID with another token doesn’t hold back the real event. Give `confirm`, and fetch the event, before anything hangs on it.',
    retries:
      '200 is success. Again after 5, 10, 15 min, 1, 2 and 4 h; same ID, though that is not confirmed. Mailgun stops at once on 406; we answer 401 to a wrong signature, so it comes again.',
    traps: [
      'The signed time may be a day off (`toleranceSeconds` 86400), since delays occur.',
      'The older, form-encoded webhooks are not read: they are refused.',
      '`failed` is temporary or permanent; `event-data.severity` tells.',
      '`event-data.flags.is-test-mode`, where it is there, tells test events; like the rest it is not signed.',
    ],
  },
  sample: {
    types: {},
    newId: (unique) => unique.slice(0, 22),
    request: ({ type, id, happenedSeconds, nowSeconds, email, livemode }, sign) => {
      const timestamp = String(nowSeconds)
      // 50 characters, as Mailgun's tokens have; its own for each ID.
      const token = Buffer.from(`${id}${'0'.repeat(25)}`)
        .toString('hex')
        .slice(0, 50)
      const body = JSON.stringify({
        signature: { timestamp, token, signature: sign(`${timestamp}${token}`) },
        'event-data': {
          id,
          timestamp: happenedSeconds,
          event: type,
          recipient: email,
          flags: { 'is-test-mode': !livemode },
          message: { headers: { 'message-id': `${id}@example.com`, to: email } },
          'user-variables': {},
        },
      })
      return { headers: {}, body }
    },
  },
})
