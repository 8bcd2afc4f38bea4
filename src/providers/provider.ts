import type { z } from 'zod'
import type { SignatureScheme } from './signature.ts'

/** Header values as they came on the wire: names in lower case, a repeated header has several values. */
export type HeaderValues = Readonly<Record<string, readonly string[] | undefined>>

/** What a source posted: its headers and the bytes of its body, after content decoding. */
export interface WebhookRequest {
  headers: HeaderValues
  body: Buffer
}

/** A stored request as it came, from its stored headers and bytes. */
export function requestOf(headers: Readonly<Record<string, string>>, body: Buffer): WebhookRequest {
  return { headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]])), body }
}

/** Where an event ID comes from; stored with the event, so that a derived one is never taken for the provider's own. */
export type IdBasis = 'provider' | 'message_id+type' | 'body_hash'

/** What one provider's webhooks look like: data, and pure functions over one parsed event. */
export interface Provider {
  name: string
  scheme: SignatureScheme
  /** The provider's documentation page that the facts of this file come from. */
  documentation: string
  maxBodyBytes: number
  /** Request headers that carry facts of the event and are stored with it; never one that may carry a credential. */
  factHeaders?: readonly string[]
  /** Seconds that a signed time may lie in the past or the future; schemes without a time ignore it. */
  toleranceSeconds: number
  /** False when the ID stands outside of what is signed: a captured body could come back under a new one. */
  idIsSigned: boolean
  idBasis: IdBasis
  id(event: unknown, headers: HeaderValues): unknown
  /** The hash of the body stands in for the ID of an event that has a type but no ID; its basis is then `body_hash`. */
  hashWithoutId?: boolean
  type(event: unknown, headers: HeaderValues): unknown
  livemode?(event: unknown): unknown
  /** The provider's own time of the event: unix seconds, or an ISO 8601 text. */
  occurredAt?(event: unknown): unknown
  /** The JSON text inside the body, where the body is not itself JSON. */
  jsonText?(request: WebhookRequest): string | undefined
  /** The events of one POST that holds several; undefined when the body has no such list. */
  events?(payload: unknown): readonly unknown[] | undefined
  /** Top-level fields that change on each redelivery and so never make a conflict. */
  volatileFields?: readonly string[]
  /** Another body under the same derived ID is a further event rather than a conflict. */
  otherBodyIsFurtherEvent?: boolean
}

/** A provider with the options that one source gives it. Unknown options are errors. */
export interface ProviderDefinition<Options = unknown> {
  name: string
  options: z.ZodType<Options>
  create(options: Options): Provider
}
