import { z } from 'zod'
import { field } from './json.ts'
import type { Provider, ProviderDefinition } from './provider.ts'

const gocardlessProvider: Provider = {
  name: 'gocardless',
  documentation: 'https://developer.gocardless.com/getting-started/staying-up-to-date-with-webhooks',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'webhook-signature',
        match: /^([0-9a-f]{64})$/g,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
      },
    ],
    signed: '{body}',
  },
  // Up to 250 events of less than 1 kB each.
  maxBodyBytes: 1024 * 1024,
  toleranceSeconds: 300,
  idIsSigned: true,
  idBasis: 'provider',
  events: (payload) => {
    const events = field(payload, 'events')
    return Array.isArray(events) ? events : undefined
  },
  // Not meta.webhook_id: a redelivery may group the events differently.
  id: (event) => field(event, 'id'),
  type: (event) => {
    const resource = field(event, 'resource_type')
    const action = field(event, 'action')
    return typeof resource === 'string' && typeof action === 'string' ? `${resource}.${action}` : undefined
  },
  occurredAt: (event) => field(event, 'created_at'),
}

/** GoCardless, up to 250 events in one POST (developer.gocardless.com, webhooks; gocardless-nodejs 10 `webhooks.parse`). */
export const gocardless: ProviderDefinition<Record<string, never>> = {
  name: 'gocardless',
  options: z.strictObject({}),
  create: () => gocardlessProvider,
}
