import { createHash, randomUUID } from 'node:crypto'
import { canonicalJson, isRecord, parseExactly, parseJson } from './json.ts'
import type { IdBasis, Provider, WebhookRequest } from './provider.ts'
import { readTime } from './time.ts'

/** One event as the service records it. */
export interface ReadEvent {
  id: string
  idBasis: IdBasis
  idIsSigned: boolean
  type: string | null
  livemode: boolean | null
  occurredAt: Date | null
  /** The ID of the object that it is about. */
  objectRef: string | null
  /** What its sender signs once only. */
  replayKey: string | null
  /** Why a person has to look at it first. */
  needsPerson: string | undefined
}

/** Why a body, or one element of its list, is no usable event. */
export type Unusable = 'empty_body' | 'not_json' | 'too_deep' | 'no_events' | 'not_an_object' | 'no_id' | 'bad_id' | 'id_too_long'

const LONGEST_ID = 512
// Longer ones would not fit the indexes that they stand in, and no provider has any.
const LONGEST_TYPE = 255
const LONGEST_REFERENCE = 255

/**
 * The events of a verified request, each ID once; `unusable` says why the body, or the first bad element, holds no event, and
 * `replayKey` what that element's sender signs once only.
 * `delivery` tells this delivery from all others, where each is an event of its own.
 */
export function readEvents(
  provider: Provider,
  request: WebhookRequest,
  delivery?: string,
): { events: ReadEvent[]; unusable?: Unusable; replayKey?: string } {
  const body = readBody(provider, request)
  if (typeof body === 'string') return { events: [], unusable: body }
  const events = new Map<string, ReadEvent>()
  let bad: { unusable: Unusable; replayKey?: string } | undefined
  for (const element of body.elements) {
    const event = readEvent(provider, element, body, delivery)
    if (typeof event !== 'string') {
      if (!events.has(event.id)) events.set(event.id, event)
    } else if (!bad) {
      const replayKey = readReference(isRecord(element) && provider.replayKey?.(element))
      bad = { unusable: event, ...(replayKey !== null && { replayKey }) }
    }
  }
  return { events: [...events.values()], ...bad }
}

/** The parsed payload that belongs to an event ID: the whole body, or its element of a list; undefined when it isn't there. */
export function payloadOf(provider: Provider, request: WebhookRequest, eventId: string): unknown {
  const body = readBody(provider, request)
  return typeof body === 'string' ? undefined : body.elements[indexOf(provider, body, eventId)]
}

/** Tells whether two bodies say the same of one event: what a provider changes on each delivery doesn't count, nor how JSON is written. */
export function isSameEvent(provider: Provider, a: WebhookRequest, b: WebhookRequest, eventId: string): boolean {
  if (a.body.equals(b.body)) return true
  const first = canonicalPart(provider, a, eventId)
  return first !== undefined && first === canonicalPart(provider, b, eventId)
}

// A POST of many events is compared with another once for each of them, so each of the two is read once.
const parts = new WeakMap<Buffer, Map<string, string> | undefined>()

function canonicalPart(provider: Provider, request: WebhookRequest, eventId: string): string | undefined {
  if (!parts.has(request.body)) parts.set(request.body, canonicalParts(provider, request))
  const found = parts.get(request.body)
  return found?.get(provider.events ? eventId : '')
}

/** The parts of a body by event ID; of one that isn't a list, the whole under the empty one. */
function canonicalParts(provider: Provider, request: WebhookRequest): Map<string, string> | undefined {
  const body = readBody(provider, request)
  const exact = parseExactly(textOf(provider, request))
  if (typeof body === 'string' || exact === undefined) return undefined
  const found = new Map<string, string>()
  for (const [index, part] of (provider.events ? (provider.events(exact) ?? []) : [exact]).entries()) {
    const event = provider.events ? readEvent(provider, body.elements[index], body) : undefined
    const id = event === undefined ? '' : typeof event === 'string' ? undefined : event.id
    if (id !== undefined && !found.has(id)) found.set(id, canonicalJson(part, { without: provider.volatileFields }))
  }
  return found
}

/** A body that isn't a list is the event, under whatever ID it was recorded (a further event has one of its own). */
function indexOf(provider: Provider, body: ReadBody, eventId: string): number {
  if (!provider.events) return 0
  return body.elements.findIndex((element) => {
    const event = readEvent(provider, element, body)
    return typeof event !== 'string' && event.id === eventId
  })
}

function textOf(provider: Provider, request: WebhookRequest): string | Buffer {
  return provider.jsonText?.(request) ?? request.body
}

/** A body that holds events: its payload, and what in it is an event each. */
interface ReadBody {
  request: WebhookRequest
  payload: unknown
  elements: readonly unknown[]
}

function readBody(provider: Provider, request: WebhookRequest): ReadBody | Unusable {
  const parsed = parseJson(textOf(provider, request))
  if (!parsed.ok) return parsed.reason
  const payload = parsed.value
  if (!provider.events) return { request, payload, elements: [payload] }
  const elements = provider.events(payload)
  return elements && elements.length > 0 ? { request, payload, elements } : 'no_events'
}

function readEvent(
  provider: Provider,
  element: unknown,
  { request, payload }: ReadBody,
  delivery?: string,
): ReadEvent | Unusable {
  if (!isRecord(element)) return 'not_an_object'
  const type = readType(provider, element, request)
  const given = provider.id(element, request)
  const isHashed = provider.hashWithoutId === true && given === undefined && type !== null
  const id = readId(isHashed ? `sha256:${createHash('sha256').update(request.body).digest('hex')}` : given, LONGEST_ID)
  if ('unusable' in id) return id.unusable
  const isDelivery = provider.idBasis === 'delivery' && !isHashed
  const livemode = provider.livemode?.(element, request, payload)
  return {
    id: isDelivery ? `${id.value}:${delivery ?? randomUUID()}` : id.value,
    idBasis: isHashed ? 'body_hash' : provider.idBasis,
    // Of a delivery's ID the last part is ours. Unsigned, the next delivery of the same bytes would be no event.
    idIsSigned: isHashed || isDelivery || provider.idIsSigned,
    type,
    livemode: typeof livemode === 'boolean' ? livemode : null,
    occurredAt: readTime(provider.occurredAt?.(element, request)) ?? null,
    objectRef: readReference(provider.object?.(element)),
    replayKey: readReference(provider.replayKey?.(element)),
    needsPerson: provider.needsPerson?.(element),
  }
}

function readType(provider: Provider, element: unknown, request: WebhookRequest): string | null {
  const type = provider.type(element, request)
  return typeof type === 'string' && type.trim() !== '' && type.length <= LONGEST_TYPE ? type : null
}

function readReference(value: unknown): string | null {
  const read = readId(value, LONGEST_REFERENCE)
  return 'value' in read ? read.value : null
}

function readId(value: unknown, longest: number): { value: string } | { unusable: Unusable } {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? { value: String(value) } : { unusable: 'bad_id' }
  if (typeof value !== 'string' || value.trim() === '') return { unusable: 'no_id' }
  if (value.length > longest) return { unusable: 'id_too_long' }
  // U+FFFD is what parseJson makes of NUL, lone surrogates and broken UTF-8: two IDs could have become one.
  return /[\p{Cc}\ufffd]/u.test(value) || !value.isWellFormed() ? { unusable: 'bad_id' } : { value }
}
