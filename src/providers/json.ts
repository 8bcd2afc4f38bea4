import { isUtf8 } from 'node:buffer'

/** Levels of arrays and objects that a body may have (C-28); far below what stops JSON.parse. */
const MAX_DEPTH = 200

/** Values of a body that is read before anybody is known: each costs time, and no webhook that is read so has a tenth of them. */
const MOST_UNVERIFIED_VALUES = 10_000

export type ParsedJson = { ok: true; value: unknown } | { ok: false; reason: 'empty_body' | 'not_json' | 'too_deep' }

type Reviver = (key: string, value: unknown, context: { source?: string }) => unknown
// TypeScript's library doesn't know yet what Node 24 has: the source text given to a reviver, and raw JSON.
const parse = JSON.parse as (text: string, reviver?: Reviver) => unknown
const { rawJSON, isRawJSON } = JSON as unknown as { rawJSON(text: string): object; isRawJSON(value: unknown): boolean }

/**
 * Reads a JSON text so that its values fit PostgreSQL and lose no digit: integers beyond 2^53 become their digits,
 * NUL, lone surrogates and invalid UTF-8 become U+FFFD, a byte order mark is skipped (C-03, C-26, C-27).
 */
export function parseJson(text: string | Buffer, { isCleaned = true } = {}): ParsedJson {
  const read = decode(text)
  if (!read.ok) return read
  const value = parseOrFail(read.text, mayHoldLongInteger(read.bytes) ? keepDigits : undefined)
  if (!value.ok) return value
  if (!isCleaned) return value
  // A false hit (an escaped backslash before the u) only costs the walk: it looks at values, not at the text.
  const isToBeCleaned = read.text.includes('\\u') && /\\u(?:0000|[dD][89a-fA-F])/.test(read.text)
  return isToBeCleaned ? { ok: true, value: clean(value.value) } : value
}

/**
 * Reads the JSON of whoever posts, fast and within bounds, so that its signature can be checked; undefined where that can't be done.
 * Nothing is mended, and numbers may lose digits.
 */
export function parseUnverified(body: Buffer): unknown {
  const read = decode(body, MOST_UNVERIFIED_VALUES)
  const value = read.ok ? parseOrFail(read.text, undefined) : read
  return value.ok ? value.value : undefined
}

/** Reads a JSON text with its numbers as written, for `canonicalJson`; undefined when it can't be read without loss. */
export function parseExactly(text: string | Buffer): unknown {
  if (typeof text !== 'string' && !isUtf8(text)) return undefined
  const read = decode(text)
  if (!read.ok) return undefined
  const value = parseOrFail(read.text, (_key, value, { source }) =>
    typeof value === 'number' && source !== undefined ? rawJSON(source) : value,
  )
  return value.ok ? value.value : undefined
}

/** One text for all ways to write a value: key order, white space and escapes don't count, 10.0 and 10.00 differ. */
export function canonicalJson(value: unknown, options: { without?: readonly string[] | undefined } = {}): string {
  const without = isRecord(value) && options.without ? options.without : []
  const top =
    without.length > 0 ? Object.fromEntries(Object.entries(value as object).filter(([key]) => !without.includes(key))) : value
  return JSON.stringify(top, (_key, item: unknown) => (isRecord(item) && !isRawJSON(item) ? sorted(item) : item)) ?? ''
}

/** An object as JSON means it: neither null nor a list. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The value of an object's own field; nothing is ever read from a prototype. */
export function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined
}

type Failure = Extract<ParsedJson, { ok: false }>

function decode(
  text: string | Buffer,
  mostValues = Number.POSITIVE_INFINITY,
): { ok: true; text: string; bytes: Buffer } | Failure {
  const bytes = typeof text === 'string' ? Buffer.from(text) : text
  const start = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0
  const decoded = bytes.toString('utf8', start)
  const mayBeTooMuch = mostValues !== Number.POSITIVE_INFINITY || opensMoreThan(MAX_DEPTH, decoded)
  if (mayBeTooMuch && excessOf(bytes, mostValues)) return { ok: false, reason: 'too_deep' }
  return decoded.trim() === '' ? { ok: false, reason: 'empty_body' } : { ok: true, text: decoded, bytes }
}

function parseOrFail(text: string, reviver: Reviver | undefined): ParsedJson {
  try {
    return { ok: true, value: parse(text, reviver) }
  } catch {
    return { ok: false, reason: 'not_json' }
  }
}

/** Most bodies open so few brackets, those in strings too, that they can't be too deep: found out without looking at each byte. */
function opensMoreThan(most: number, text: string): boolean {
  let count = 0
  for (const bracket of ['{', '[']) {
    for (let at = text.indexOf(bracket); at >= 0; at = text.indexOf(bracket, at + 1)) {
      count += 1
      if (count > most) return true
    }
  }
  return false
}

/**
 * A number of 16 digits or more covers one of each 16 places, so that only these are looked at. A false hit, in a string, only
 * costs time.
 */
function mayHoldLongInteger(bytes: Buffer): boolean {
  for (let at = 15; at < bytes.length; at += 16) {
    if (!isDigit(bytes[at])) continue
    let first = at
    while (isDigit(bytes[first - 1])) first -= 1
    let last = at
    while (isDigit(bytes[last + 1])) last += 1
    if (last - first >= 15 && BEFORE_A_NUMBER.test(bytes.toString('latin1', Math.max(0, first - 2), first))) return true
    // A run is looked at once, however long it is.
    at = last
  }
  return false
}

const BEFORE_A_NUMBER = /[:[,\s]-?$/

/** Beyond the ends there is nothing. */
function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39
}

/**
 * What a JSON text has too much of, if anything: levels, or values. One pass over the bytes, so that a text of brackets alone never reaches
 * the parser's recursion, nor one of many values its heap.
 */
export function excessOf(bytes: Buffer, mostValues: number): 'levels' | 'values' | undefined {
  const { length } = bytes
  let depth = 0
  let values = 0
  for (let i = 0; i < length; i++) {
    const byte = bytes[i] as number // within its bounds
    if (byte <= 0x20) continue
    if (byte === 0x22) {
      // To the end of the string.
      for (i++; i < length && bytes[i] !== 0x22; i++) if (bytes[i] === 0x5c) i++
    } else if (byte === 0x2c) {
      if (++values > mostValues) return 'values'
    } else if (byte >= 0x5b) {
      if (byte === 0x5b || byte === 0x7b) {
        if (++depth > MAX_DEPTH) return 'levels'
        if (++values > mostValues) return 'values'
      } else if (byte === 0x5d || byte === 0x7d) depth--
    }
  }
  return undefined
}

const keepDigits: Reviver = (_key, value, { source }) =>
  typeof value === 'number' && !Number.isSafeInteger(value) && source !== undefined && /^-?\d+$/.test(source) ? source : value

function clean(value: unknown): unknown {
  if (typeof value === 'string') return cleanText(value)
  if (Array.isArray(value)) return value.map(clean)
  // fromEntries makes own fields: a key __proto__ stays a key.
  if (isRecord(value)) return Object.fromEntries(Object.entries(value).map(([key, item]) => [cleanText(key), clean(item)]))
  return value
}

function cleanText(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\ufffd')
}

function sorted(value: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
}
