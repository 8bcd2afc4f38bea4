import { z } from 'zod'

const LONGEST_KEY = 512
const AFTER_LAST_MS = Date.UTC(9999, 11, 31)
const ISO = /^\d{4}-\d\d-\d\d(?<time>[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?<zone>Z|[+-]\d\d:?\d\d)?)?$/

/** A dedupe key or a period that can't be built: the follow-up fails at once, since a retry would build the same. */
export class KeyError extends Error {
  override name = 'KeyError'
}

/**
 * Builds a dedupe key from the parts of a business fact: `key('invoice', 'INV-1042', 'paid')` is `invoice:INV-1042:paid`.
 * Parts are strings or integers; `:` and `%` inside a part are percent-encoded, so different facts never share a key.
 * Throws KeyError for a missing, empty or non-integer part: a constant key would turn send-once into send-never.
 */
export function key(...parts: (string | number | bigint)[]): string {
  if (parts.length === 0) throw new KeyError('cannot build key: no parts')
  const built = parts.map((part, index) => encodePart(part, index + 1)).join(':')
  if (built.length > LONGEST_KEY) throw new KeyError(`cannot build key: ${built.length} characters, at most ${LONGEST_KEY}`)
  if (isStep(built)) throw new KeyError(`cannot build key: "${built}" can't be a part of a path`)
  return built
}

function encodePart(part: unknown, position: number): string {
  const fail = (what: string) => new KeyError(`cannot build key: part ${position} is ${what}`)
  if (typeof part === 'bigint') return String(part)
  if (typeof part === 'number') {
    if (!Number.isSafeInteger(part)) throw fail(Number.isNaN(part) ? 'NaN' : 'not an exact integer')
    return String(part)
  }
  if (typeof part !== 'string')
    throw fail(part === null ? 'null' : typeof part === 'undefined' ? 'missing' : `of type ${typeof part}`)
  if (part.trim() === '') throw fail('empty')
  if (/\p{Cc}/u.test(part) || !part.isWellFormed()) throw fail('a text with control characters')
  return part.replace(/[%:]/g, (character) => (character === '%' ? '%25' : '%3A'))
}

/** Every client takes these in a path for a step, even encoded, so nobody could ask for the send. */
const isStep = (key: string) => key === '.' || key === '..'

/** A key that a row can hold, however it was built. */
export const dedupeKeySchema = z
  .string()
  .max(LONGEST_KEY)
  .refine((text) => text.trim() !== '', { error: 'must not be empty', abort: true })
  .refine((text) => text.isWellFormed() && !/\p{Cc}/u.test(text), 'must be a text without control characters')
  .refine((text) => !isStep(text), 'must not be . or .., which no path can hold')
  .meta({
    description: 'Names the email, not the attempt. Not empty, no control characters, neither `.` nor `..`',
    // The same for programs.
    override: {
      minLength: 1,
      pattern: '^[^\\u0000-\\u001f\\u007f-\\u009f]*$',
      allOf: [{ pattern: '\\S' }, { not: { enum: ['.', '..'] } }],
    },
  })

/**
 * The calendar period of an instant, as the last part of a key: `2026-11`, `2026-W48` or `2026-11-29`, in UTC unless an IANA
 * zone is given. The instant comes from the payload (ISO 8601 text, in UTC where it names no zone; Date; unix seconds), never
 * from the clock: a retry after midnight must make the same key. Throws KeyError for what is no instant.
 */
export function period(
  instant: string | number | Date,
  { unit = 'month', zone = 'UTC' }: { unit?: 'month' | 'week' | 'day'; zone?: string } = {},
): string {
  const ms = millisecondsOf(instant)
  // No bill is from before 1970 or after 9999: those are milliseconds that were taken for seconds.
  if (!(ms >= 0 && ms < AFTER_LAST_MS)) throw new KeyError('cannot build period: not an instant')
  const parts = calendar(zone).formatToParts(ms)
  const part = (type: string) => parts.find((it) => it.type === type)?.value ?? ''
  if (unit === 'month') return `${part('year')}-${part('month')}`
  if (unit === 'day') return `${part('year')}-${part('month')}-${part('day')}`
  return isoWeek(Number(part('year')), Number(part('month')), Number(part('day')))
}

function millisecondsOf(instant: unknown): number {
  if (typeof instant === 'number') return instant * 1000
  if (instant instanceof Date) return instant.getTime()
  const iso = typeof instant === 'string' && ISO.exec(instant)
  if (!iso) return Number.NaN
  // JavaScript reads a time without a zone in the zone of the server.
  return Date.parse(iso.groups?.time && !iso.groups.zone ? `${iso[0]}Z` : iso[0])
}

function calendar(zone: string): Intl.DateTimeFormat {
  try {
    return new Intl.DateTimeFormat('en-CA', { timeZone: zone, year: 'numeric', month: '2-digit', day: '2-digit' })
  } catch {
    throw new KeyError(`cannot build period: there is no time zone "${zone}"`)
  }
}

/** The ISO 8601 week of a calendar day: the week belongs to the year of its Thursday. */
function isoWeek(year: number, month: number, day: number): string {
  const thursday = new Date(Date.UTC(year, month - 1, day))
  thursday.setUTCDate(thursday.getUTCDate() + 4 - (thursday.getUTCDay() || 7))
  const weekYear = thursday.getUTCFullYear()
  const week = Math.ceil(((thursday.getTime() - Date.UTC(weekYear, 0, 1)) / 86_400_000 + 1) / 7)
  return `${weekYear}-W${String(week).padStart(2, '0')}`
}
