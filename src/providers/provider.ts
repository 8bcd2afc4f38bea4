import type { KeyObject } from 'node:crypto'
import type { z } from 'zod'
import type { SignatureScheme } from './signature.ts'

/** Header values as they came on the wire: names in lower case, a repeated header has several values. */
export type HeaderValues = Readonly<Record<string, readonly string[] | undefined>>

/** What a source posted: its headers, the bytes of its body after content decoding, and the query of its URL. */
export interface WebhookRequest {
  headers: HeaderValues
  body: Buffer
  /** Without the question mark, as on the wire; a stored request has none. */
  query?: string
}

/** A stored request as it came, from its stored headers and bytes. */
export function requestOf(headers: Readonly<Record<string, string>>, body: Buffer): WebhookRequest {
  return { headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]])), body }
}

/**
 * Where an event ID comes from; stored with the event, so that a derived one is never taken for the provider's own. `derived`:
 * put together from fields that name the event; `delivery`: each delivery counts as an event of its own.
 */
export type IdBasis = 'provider' | 'message_id+type' | 'derived' | 'body_hash' | 'delivery'

/** Tells whether a header that says what the event is comes twice: nobody could tell which of the two counts. */
export function hasDoubledFact({ factHeaders = [] }: Provider, headers: HeaderValues): boolean {
  return factHeaders.some((name) => (headers[name]?.length ?? 0) > 1)
}

/** What one provider's webhooks look like: data, and pure functions over one parsed event and the request it came in. */
export interface Provider {
  name: string
  scheme: SignatureScheme
  /** The provider's documentation page that the facts of this file come from. */
  documentation: string
  /** Set where a source needs no secrets, as the keys or the options say whom to trust; `none`: it can't use any. */
  secrets?: 'optional' | 'none'
  /** 1 MiB unless said otherwise. */
  maxBodyBytes: number
  /** Request headers that carry facts of the event and are stored with it; never one that may carry a credential. */
  factHeaders?: readonly string[]
  /** Seconds that a signed time may lie in the past or the future; Infinity unless said otherwise: the provider names no bound, or signs no time. */
  toleranceSeconds: number
  /** False when the ID stands outside of what is signed: a captured body could come back under a new one. */
  idIsSigned: boolean
  /** False when nothing of the event is signed: whoever holds the credential, or one signature, can say anything. */
  contentIsSigned: boolean
  /** The payload only names an object: the source has to fetch it back by `confirm` before anything may happen. */
  requiresConfirm?: boolean
  idBasis: IdBasis
  id(event: unknown, request: WebhookRequest): unknown
  /** The hash of the body stands in for the ID of an event that has a type but no ID; its basis is then `body_hash`. */
  hashWithoutId?: boolean
  type(event: unknown, request: WebhookRequest): unknown
  /** Whether the event is of live mode; `payload` is the whole body where the event is an element of a list. */
  livemode?(event: unknown, request: WebhookRequest, payload: unknown): unknown
  /** The provider's own time of the event: unix seconds or milliseconds, or an ISO 8601 text. */
  occurredAt?(event: unknown, request: WebhookRequest): unknown
  /** The ID of the object that the event is about: events of one object are put in the order of their times. */
  object?(event: unknown): unknown
  /** What the sender signs once only, where the event itself is not signed: seen again, it is no new event. */
  replayKey?(event: unknown): unknown
  /** The JSON text inside the body, where the body is not itself JSON; whatever is no JSON where it can't be read. */
  jsonText?(request: WebhookRequest): string | undefined
  /** The events of one POST that holds several; undefined when the body has no such list. */
  events?(payload: unknown): readonly unknown[] | undefined
  /** Why a person has to look at this event before anything happens; it is kept as quarantined until then. */
  needsPerson?(event: unknown): string | undefined
  /** Top-level fields that change on each redelivery and so never make a conflict. */
  volatileFields?: readonly string[]
  /** Another body under the same ID is a further event rather than a conflict; so it is wherever no content is signed. */
  otherBodyIsFurtherEvent: boolean
  /** The text that the provider wants as the answer to this verified request, in place of our own JSON. */
  answer?(request: WebhookRequest): string | undefined
  /** The text that answers a GET by which the provider checks the endpoint; undefined when this is no such request. */
  challenge?(query: string, secrets: readonly string[]): string | undefined
  /** How keys are fetched that stand neither in the secrets nor in the options. */
  remoteKeys?: RemoteKeys
  /** Keys that are known beforehand, by the name under which a request asks for them. */
  knownKeys?: ReadonlyMap<string, KnownKey>
  /** Set where the provider itself is asked about each request whose signature could not be checked here. */
  postback?: Postback
}

/** A provider as its file describes it: what is left out is as in most. */
export type ProviderFacts = Omit<Provider, 'maxBodyBytes' | 'toleranceSeconds' | 'otherBodyIsFurtherEvent'> &
  Partial<Pick<Provider, 'maxBodyBytes' | 'toleranceSeconds' | 'otherBodyIsFurtherEvent'>>

/** A public key, and until when it may be used (unix seconds). */
export interface KnownKey {
  key: KeyObject
  validUntil: number
}

/** One HTTP request to a provider; a POST where it has a body. */
export interface ProviderCall {
  url: string
  headers?: Readonly<Record<string, string>>
  body?: string | Buffer
}

/** How the keys of a scheme are fetched. The name has passed the scheme's own checks (host, algorithm) by then. */
export interface RemoteKeys {
  request(name: string, secrets: readonly string[]): ProviderCall
  /** The key in an answer of status 200; undefined when it is no trusted key. */
  read(text: string, name: string, nowSeconds: number): KnownKey | undefined
  /** Tells whether another answer says that there is no such key, rather than that it can't be had now; 400, 404 and 410 do by default. */
  isNone?(status: number, text: string): boolean
}

/** How a provider is asked whether a request is its own. */
export interface Postback {
  token(): ProviderCall
  /** The access token in an answer, and how long it lives; undefined when there is none. */
  readToken(text: string): { token: string; seconds: number } | undefined
  /** What to ask under one secret; undefined where the request can't be its own. */
  question(request: WebhookRequest, secret: string, token: string): ProviderCall | undefined
  /** The provider's word; undefined when it gave none. */
  read(text: string): boolean | undefined
}

/** What a provider's page needs to say beside the facts; shown in the docs and on the set-up page. Markdown. */
export interface Guide {
  /** Where to click at the provider, and which events to choose. */
  setUp: string
  /** The options after `provider` and `secrets` in the sample line of the configuration, as code; empty for most. */
  options?: string
  /** The provider's other schemes, and the options that choose each; as code, as above. */
  variants?: readonly { title: string; options: Readonly<Record<string, unknown>> }[]
  /** What the secret is, and where the provider shows it. */
  secret: string
  /** Which values make the ID and the type. */
  identity: string
  /** What somebody could change without breaking the signature. */
  unsigned: string
  /** When and how often the provider delivers again, and what it takes for success. */
  retries: string
  /** The provider never delivers again by itself: what was missed while we were away, a person has to ask for. */
  deliversOnce?: boolean
  traps: readonly string[]
}

/** One sample to make. */
export interface SampleEvent {
  type: string
  id: string
  /** The event that was first to tell of the same object; itself unless another is given. Only some samples can be told so. */
  about: string
  /** When it is signed. */
  nowSeconds: number
  /** When it happened, as its content says: the same again whenever the same event is delivered. */
  happenedSeconds: number
  email: string
  livemode: boolean
  /** The secret in use: for schemes that sign it, or send it. */
  secret: string
  options: Record<string, unknown>
}

/** The common payment events. */
export type PaymentFact = 'paid' | 'failed' | 'refunded' | 'subscription ended' | 'payout'

/** How a provider's samples are made. */
interface Sample {
  /** The event types that say these facts at this provider; those that it doesn't have are left out. */
  types: Partial<Record<PaymentFact, string>>
  /** An ID in the provider's form, made of 24 random hex digits, or of a UUID. */
  newId(hex: string, uuid: string): string
  /** The names under which samples ask for their key, where keys are fetched; reserved for the key of a development start. */
  keyNames?(options: Readonly<Record<string, unknown>>): readonly string[]
  /** Whether a sample can be another event of an object that an earlier one told of. */
  tellsAbout?: true
  /** The request as the provider would send it; `sign` gives the signature text of these bytes. */
  request(event: SampleEvent, sign: (signed: string | Buffer) => string): SampleRequest
}

/** What a provider would post: headers, the bytes of the body, and what it adds to the URL. */
export interface SampleRequest {
  headers: Record<string, string>
  body: string | Buffer
  query?: string
}

/** A provider with the options that one source gives it. Unknown options are errors. */
export interface ProviderDefinition<Options = unknown> {
  name: string
  /** Its name as people write it. */
  title: string
  options: z.ZodType<Options>
  /** The option that holds the address which the provider was given and signs. */
  urlOption?: string
  create(options: Options): ProviderFacts
  guide: Guide
  sample: Sample
}

/** Types a definition by its options. */
export function defineProvider<Options>(definition: ProviderDefinition<Options>): ProviderDefinition<Options> {
  return definition
}
