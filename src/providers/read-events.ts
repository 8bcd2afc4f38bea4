import { createHash } from 'node:crypto'
import { canonicalJson, isRecord, parseExactly, parseJson } from './json.ts'
import type { HeaderValues, IdBasis, Provider, WebhookRequest } from './provider.ts'
import { readTime } from './time.ts'

/** One event as the service records it. */
export interface ReadEvent {
  id: string
  idBasis: IdBasis
  idIsSigned: boolean
  type: string | null
  livemode: boolean | null
  occurredAt: Date | null
}

/** Why a body, or one element of its list, is no usable event. */
export type Unusable = 'empty_body' | 'not_json' | 'too_deep' | 'no_events' | 'not_an_object' | 'no_id' | 'bad_id' | 'id_too_long'

const LONGEST_ID = 512
// A longer one would not fit the index of (source, type, body hash), and no provider has one.
const LONGEST_TYPE = 255

/** The events of a verified request, each ID once; `unusable` says why the body, or the first bad element, holds no event. */
export function readEvents(provider: Provider, request: WebhookRequest): { events: ReadEvent[]; unusable?: Unusable } {
  const elements = readElements(provider, request)
  if (typeof elements === 'string') return { events: [], unusable: elements }
  const events = new Map<string, ReadEvent>()
  let unusable: Unusable | undefined
  for (const element of elements) {
    const event = readEvent(provider, element, request)
    if (typeof event === 'string') unusable ??= event
    else if (!events.has(event.id)) events.set(event.id, event)
  }
  return { events: [...events.values()], ...(unusable && { unusable }) }
}

/** The parsed payload that belongs to an event ID: the whole body, or its element of a list; undefined when it isn't there. */
export function payloadOf(provider: Provider, request: WebhookRequest, eventId: string): unknown {
  const elements = readElements(provider, request)
  return typeof elements === 'string' ? undefined : elements[indexOf(provider, request, elements, eventId)]
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
  const elements = readElements(provider, request)
  const exact = parseExactly(textOf(provider, request))
  if (typeof elements === 'string' || exact === undefined) return undefined
  const found = new Map<string, string>()
  for (const [index, part] of (provider.events ? (provider.events(exact) ?? []) : [exact]).entries()) {
    const event = provider.events ? readEvent(provider, elements[index], request) : undefined
    const id = event === undefined ? '' : typeof event === 'string' ? undefined : event.id
    if (id !== undefined && !found.has(id)) found.set(id, canonicalJson(part, { without: provider.volatileFields }))
  }
  return found
}

/** A body that isn't a list is the event, under whatever ID it was recorded (a further event has one of its own). */
function indexOf(provider: Provider, request: WebhookRequest, elements: readonly unknown[], eventId: string): number {
  if (!provider.events) return 0
  return elements.findIndex((element) => {
    const event = readEvent(provider, element, request)
    return typeof event !== 'string' && event.id === eventId
  })
}

function textOf(provider: Provider, request: WebhookRequest): string | Buffer {
  return provider.jsonText?.(request) ?? request.body
}

function readElements(provider: Provider, request: WebhookRequest): readonly unknown[] | Unusable {
  const parsed = parseJson(textOf(provider, request))
  if (!parsed.ok) return parsed.reason
  if (!provider.events) return [parsed.value]
  const elements = provider.events(parsed.value)
  return elements && elements.length > 0 ? elements : 'no_events'
}

function readEvent(provider: Provider, element: unknown, { headers, body }: WebhookRequest): ReadEvent | Unusable {
  if (!isRecord(element)) return 'not_an_object'
  const type = readType(provider, element, headers)
  const given = provider.id(element, headers)
  const isHashed = provider.hashWithoutId === true && given === undefined && type !== null
  const id = readId(isHashed ? `sha256:${createHash('sha256').update(body).digest('hex')}` : given)
  if ('unusable' in id) return id.unusable
  const livemode = provider.livemode?.(element)
  return {
    id: id.value,
    idBasis: isHashed ? 'body_hash' : provider.idBasis,
    idIsSigned: isHashed || provider.idIsSigned,
    type,
    livemode: typeof livemode === 'boolean' ? livemode : null,
    occurredAt: readTime(provider.occurredAt?.(element)) ?? null,
  }
}

function readType(provider: Provider, element: unknown, headers: HeaderValues): string | null {
  const type = provider.type(element, headers)
  return typeof type === 'string' && type.trim() !== '' && type.length <= LONGEST_TYPE ? type : null
}

function readId(value: unknown): { value: string } | { unusable: Unusable } {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? { value: String(value) } : { unusable: 'bad_id' }
  if (typeof value !== 'string' || value.trim() === '') return { unusable: 'no_id' }
  if (value.length > LONGEST_ID) return { unusable: 'id_too_long' }
  // U+FFFD is what parseJson makes of NUL, lone surrogates and broken UTF-8: two IDs could have become one.
  return /[\p{Cc}\ufffd]/u.test(value) || !value.isWellFormed() ? { unusable: 'bad_id' } : { value }
}
