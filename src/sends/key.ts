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
  if (built.length > 512) throw new KeyError(`cannot build key: ${built.length} characters, at most 512`)
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

/**
 * The calendar period of an instant, as the last part of a key: `2026-11`, `2026-W48` or `2026-11-29`, in UTC unless an IANA
 * zone is given. The instant comes from the payload (ISO 8601 text, Date or unix seconds), never from the clock: a retry
 * after midnight must make the same key. Throws KeyError for what is no instant.
 */
export function period(
  instant: string | number | Date,
  { unit = 'month', zone = 'UTC' }: { unit?: 'month' | 'week' | 'day'; zone?: string } = {},
): string {
  const date = typeof instant === 'number' ? new Date(instant * 1000) : new Date(instant ?? Number.NaN)
  if (Number.isNaN(date.getTime())) throw new KeyError('cannot build period: not an instant')
  const parts = new Intl.DateTimeFormat('en-CA', {
    timeZone: zone,
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
  }).formatToParts(date)
  const part = (type: string) => parts.find((it) => it.type === type)?.value ?? ''
  if (unit === 'month') return `${part('year')}-${part('month')}`
  if (unit === 'day') return `${part('year')}-${part('month')}-${part('day')}`
  return isoWeek(Number(part('year')), Number(part('month')), Number(part('day')))
}

/** The ISO 8601 week of a calendar day: the week belongs to the year of its Thursday. */
function isoWeek(year: number, month: number, day: number): string {
  const thursday = new Date(Date.UTC(year, month - 1, day))
  thursday.setUTCDate(thursday.getUTCDate() + 4 - (thursday.getUTCDay() || 7))
  const weekYear = thursday.getUTCFullYear()
  const week = Math.ceil(((thursday.getTime() - Date.UTC(weekYear, 0, 1)) / 86_400_000 + 1) / 7)
  return `${weekYear}-W${String(week).padStart(2, '0')}`
}
