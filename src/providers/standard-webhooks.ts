import { z } from 'zod'
import { field } from './json.ts'
import type { Provider, ProviderDefinition } from './provider.ts'
import { headerValue } from './signature.ts'

/** Any sender that follows the Standard Webhooks specification (standard-webhooks/standard-webhooks, `spec/standard-webhooks.md`). */
export const standardWebhooks = define('standard-webhooks', 'https://www.standardwebhooks.com', ['webhook'])

/** Svix: the same under its own header names, or the unbranded ones (docs.svix.com; svix 1.99 `webhook.js` takes either). */
export const svix = define('svix', 'https://docs.svix.com/receiving/verifying-payloads/how-manual', ['svix', 'webhook'])

function define(name: string, documentation: string, families: string[]): ProviderDefinition<Record<string, never>> {
  const header = (part: string) => families.map((family) => `${family}-${part}`)
  const idHeader = header('id')
  const provider: Provider = {
    name,
    documentation,
    scheme: {
      signatures: [
        {
          kind: 'hmac',
          header: header('signature'),
          match: /(?:^| )v1,([A-Za-z0-9+/]{43}=)(?= |$)/g,
          algorithm: 'sha256',
          encoding: 'base64',
          secret: { form: 'base64', prefix: 'whsec_', isPrefixOptional: true },
        },
        {
          kind: 'ed25519',
          header: header('signature'),
          match: /(?:^| )v1a,([A-Za-z0-9+/]{86}==)(?= |$)/g,
          // A public key: as the key of an HMAC it would let anybody sign.
          secret: { form: 'base64', prefix: 'whpk_' },
        },
      ],
      isExtensible: true,
      timestamp: { header: header('timestamp'), match: /^(.*)$/g },
      // Printable ASCII without the dot that separates the signed parts.
      id: { header: idHeader, match: /^([!-\-/-~]+)$/g },
      signed: '{id}.{timestamp}.{body}',
    },
    maxBodyBytes: 1024 * 1024,
    factHeaders: idHeader,
    toleranceSeconds: 300,
    idIsSigned: true,
    idBasis: 'provider',
    id: (_event, headers) => headerValue(headers, idHeader),
    // Svix's own operational events say `type`; what its customers send often says `eventType`.
    type: (event) => field(event, 'type') ?? field(event, 'eventType'),
    occurredAt: (event) => field(event, 'timestamp'),
  }
  return { name, options: z.strictObject({}), create: () => provider }
}
