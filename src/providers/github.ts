import { z } from 'zod'
import { field } from './json.ts'
import type { Provider, ProviderDefinition } from './provider.ts'
import { headerValue } from './signature.ts'

const FORM_START = Buffer.from('payload=')

const githubProvider: Provider = {
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
  toleranceSeconds: 300,
  factHeaders: ['x-github-delivery', 'x-github-event'],
  idIsSigned: false,
  idBasis: 'provider',
  id: (_event, headers) => headerValue(headers, 'x-github-delivery'),
  type: (event, headers) => {
    const name = headerValue(headers, 'x-github-event')
    const action = field(event, 'action')
    return name && typeof action === 'string' && action !== '' ? `${name}.${action}` : name
  },
  // Told by the signed bytes, not by Content-Type, which nothing protects: no JSON text starts like this.
  jsonText: ({ body }) =>
    body.subarray(0, FORM_START.length).equals(FORM_START)
      ? (new URLSearchParams(body.toString()).get('payload') ?? undefined)
      : undefined,
}

/** GitHub, JSON and form deliveries (docs.github.com, webhooks; @octokit/webhooks-methods 6). */
export const github: ProviderDefinition<Record<string, never>> = {
  name: 'github',
  options: z.strictObject({}),
  create: () => githubProvider,
}
