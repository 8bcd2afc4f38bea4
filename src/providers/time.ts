const LAST_MS = Date.UTC(9999, 11, 31, 23, 59, 59, 999)
const ISO = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?<zone>Z|[+-]\d\d:?\d\d)?)?$/i

/** A provider's time as a date: unix seconds or milliseconds (as digits too), or ISO 8601, in UTC where it names no zone. */
export function readTime(value: unknown): Date | undefined {
  if (typeof value === 'number') return fromUnix(value)
  if (typeof value !== 'string' || value.length > 40) return undefined
  if (/^\d{1,13}$/.test(value)) return fromUnix(Number(value))
  const iso = ISO.exec(value)
  if (!iso) return undefined
  return fromMs(Date.parse(iso.groups?.zone || value.length === 10 ? value : `${value}Z`))
}

function fromUnix(value: number): Date | undefined {
  // Seconds reach this number in the year 5138, milliseconds passed it in 1973.
  return fromMs(value < 100_000_000_000 ? value * 1000 : value)
}

function fromMs(ms: number): Date | undefined {
  return ms >= 0 && ms <= LAST_MS ? new Date(ms) : undefined
}
