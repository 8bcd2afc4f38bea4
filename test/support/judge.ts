import type { WebhookRequest } from '../../src/providers/provider.ts'
import { readEvents } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { verify } from '../../src/providers/signature.ts'

/** One request to a source, and what the source is set up with. */
export interface Attempt {
  headers?: Record<string, string | string[]>
  body?: string | Buffer
  query?: string
  secrets?: readonly string[]
  options?: unknown
  now?: number
  tolerance?: number
}

/** The verdict on a request, and the events that are read from it if it is right. */
export function judge(provider: string, { headers = {}, body = '', query, secrets = [], options, now = 0, tolerance }: Attempt) {
  const created = createProvider(provider, options)
  const request: WebhookRequest = {
    headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), [value].flat()])),
    body: Buffer.from(body as string),
    ...(query !== undefined && { query }),
  }
  const verdict = verify(created.scheme, request, secrets, now, tolerance ?? created.toleranceSeconds)
  return { verdict, request, provider: created, ...readEvents(created, request) }
}

/** The 105 bytes that the reference signatures are made of. */
export const BODY_H = String.raw`{"id":"evt_1","type":"invoice.paid","note":"Zoë 😀 \u00e9 a\/b","amount":10.00,"big":9007199254740993}`
