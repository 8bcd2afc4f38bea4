import { z } from 'zod'
import { readForm } from '../form.ts'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import { headerValue } from '../signature.ts'

const FORM_START = Buffer.from('payload=')

const provider: ProviderFacts = {
  name: 'github',
  documentation: 'https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-hub-signature-256',
        match: /^sha256=([0-9a-f]{64})$/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    signed: '{body}',
  },
  maxBodyBytes: 25 * 1024 * 1024,
  factHeaders: ['x-github-delivery', 'x-github-event'],
  idIsSigned: false,
  contentIsSigned: true,
  idBasis: 'provider',
  id: (_event, { headers }) => headerValue(headers, 'x-github-delivery'),
  type: (event, { headers }) => {
    const name = headerValue(headers, 'x-github-event')
    const action = field(event, 'action')
    return name && typeof action === 'string' && action !== '' ? `${name}.${action}` : name
  },
  // Told by the signed bytes, not by Content-Type, which nothing protects: no JSON text starts like this.
  jsonText: ({ body }) =>
    body.subarray(0, FORM_START.length).equals(FORM_START) ? (readForm(body)?.get('payload') ?? undefined) : undefined,
}

/** GitHub, JSON and form deliveries (docs.github.com, webhooks; @octokit/webhooks-methods 6). */
export const github = defineProvider({
  name: 'github',
  title: 'GitHub',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'Under Settings, Webhooks (of the repository, the organisation or the Sponsors dashboard) enter the address, choose content type `application/json` and the events, and set a secret of your own choice. Sponsors events cover money.',
    secret: 'The secret you set there, as text.',
    identity:
      'The header `X-GitHub-Delivery`; the header `X-GitHub-Event` and the `action` of the body, as in `sponsorship.created`.',
    unsigned:
      'The headers, so the ID and the first part of the type. A captured body under another ID is stopped by the second key on type and body; under another type it is a new event, so a rule has to look at what the body says.',
    retries:
      'Any 2xx within 10 s is success. **Never by itself**: deliver again by hand from the list of recent deliveries, or by its API.',
    deliversOnce: true,
    traps: [
      'The old SHA-1 header `X-Hub-Signature` is ignored.',
      'A `ping` comes when the webhook is made; it is stored as ignored.',
      'Form deliveries are read as well; JSON is the better choice.',
    ],
  },
  sample: {
    types: { paid: 'sponsorship.created', 'subscription ended': 'sponsorship.cancelled' },
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email }, sign) => {
      const [event = type, action] = type.split('.')
      const body = JSON.stringify({
        ...(action && { action }),
        sponsorship: {
          node_id: `S_${id.slice(0, 8)}`,
          created_at: new Date(happenedSeconds * 1000).toISOString(),
          sponsor: { login: 'ada', email },
          tier: { name: '$12 a month', monthly_price_in_cents: 1200 },
        },
        sender: { login: 'ada', email },
      })
      return {
        headers: { 'x-github-event': event, 'x-github-delivery': id, 'x-hub-signature-256': `sha256=${sign(body)}` },
        body,
      }
    },
  },
})
