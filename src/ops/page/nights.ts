/** Last night in a zone: from ten in the evening to six in the morning, the night that ended last. */
export function lastNight(now: Date, timeZone: string): { since: Date; until: Date } {
  const local = partsOf(now, timeZone)
  const isOver = local.hour >= 6
  const morning = isOver ? 0 : -1
  return {
    since: instantAt(local, morning - 1, 22, timeZone),
    until: instantAt(local, morning, 6, timeZone),
  }
}

interface LocalDay {
  year: number
  month: number
  day: number
  hour: number
  minute: number
}

/** The instant at which clocks of the zone show this hour, so many days from the given one. */
function instantAt({ year, month, day }: LocalDay, days: number, hour: number, timeZone: string): Date {
  return instantOf(Date.UTC(year, month - 1, day + days, hour), timeZone)
}

/**
 * The instant at which clocks of the zone show what those of UTC show at this one. Where a change of clocks lets them show it twice, the
 * first time; where it skips it, as much later, so that a day begins with its first instant in every zone.
 */
export function instantOf(wanted: number, timeZone: string): Date {
  // No zone is a day away from UTC, so these are from before and after a change of that time.
  const before = offsetAt(new Date(wanted - DAY_MS), timeZone)
  const after = offsetAt(new Date(wanted + DAY_MS), timeZone)
  const isAfter =
    offsetAt(new Date(wanted - before), timeZone) !== before && offsetAt(new Date(wanted - after), timeZone) === after
  return new Date(wanted - (isAfter ? after : before))
}

const DAY_MS = 86_400_000

function offsetAt(instant: Date, timeZone: string): number {
  const { year, month, day, hour, minute } = partsOf(instant, timeZone)
  return Date.UTC(year, month - 1, day, hour, minute) - Math.floor(instant.getTime() / 60_000) * 60_000
}

function partsOf(instant: Date, timeZone: string): LocalDay {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
  })
  const parts = Object.fromEntries(format.formatToParts(instant).map(({ type, value }) => [type, Number(value)]))
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0 } = parts
  return { year, month, day, hour, minute }
}
