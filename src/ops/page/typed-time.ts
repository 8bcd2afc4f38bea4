import { timeText, zonedTimeText } from '../words.ts'
import { instantOf } from './nights.ts'

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

/** A time as the page writes it (`2026-11-29 22:00`, `28 Nov 14:02`, `2026-11-29`), read in the zone, as an instant of ISO 8601; anything else as it came. */
export function typedTime(text: string, timeZone: string, now: Date): string {
  const wanted = fullTime(text) ?? shortTime(text, now)
  if (wanted === undefined) return text
  return wanted.isUtc ? new Date(wanted.at).toISOString() : instantOf(wanted.at, timeZone).toISOString()
}

interface Wanted {
  /** What the clock shows, as if it were one of UTC. */
  at: number
  isUtc?: boolean
}

function fullTime(text: string): Wanted | undefined {
  const [, day, time = '00:00', seconds = ':00', utc, offset] =
    /^(\d{4}-\d\d-\d\d)(?: (\d\d:\d\d)(:\d\d)?)?( UTC([+-]\d\d:\d\d)?)?$/.exec(text.trim()) ?? []
  if (day === undefined) return undefined
  const at = Date.parse(`${day}T${time}${seconds}Z`)
  if (Number.isNaN(at) || !isDay(day)) return undefined
  return utc === undefined ? { at } : { at: Date.parse(`${day}T${time}${seconds}${offset ?? 'Z'}`), isUtc: true }
}

/** One that no calendar has is one of the next month to JavaScript. */
const isDay = (day: string) => new Date(day).toISOString().startsWith(day)

/** Without a year, as lists write it, it is the newest that is not to come. */
function shortTime(text: string, now: Date): Wanted | undefined {
  const [, day = '', name = '', year, time] = /^(\d{1,2}) ([A-Z][a-z]{2})(?: (\d{4}))? (\d\d:\d\d)$/.exec(text.trim()) ?? []
  const month = MONTHS.indexOf(name) + 1
  if (month === 0) return undefined
  const inYear = (which: number) => fullTime(`${which}-${String(month).padStart(2, '0')}-${day.padStart(2, '0')} ${time}`)
  if (year !== undefined) return inYear(Number(year))
  const [thisYear, lastYear] = [inYear(now.getUTCFullYear()), inYear(now.getUTCFullYear() - 1)]
  return thisYear && thisYear.at <= now.getTime() + DAY_MS ? thisYear : lastYear
}

const DAY_MS = 86_400_000

const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(Z|[+-]\d\d:\d\d)?$/

/** What anybody reads as the time that a person in this zone has given: an instant, always in the same form; anything else as it came. */
export function sharedTime(text: string, timeZone: string, now: Date): string {
  const typed = typedTime(text, timeZone, now)
  return instantIn(typed)?.toISOString() ?? typed
}

/** Without a zone it is one of UTC, as a filter reads it. */
function instantIn(text: string): Date | undefined {
  const [instant, offset] = INSTANT.exec(text) ?? []
  const at = new Date(offset === undefined ? `${instant}Z` : text)
  return instant === undefined || Number.isNaN(at.getTime()) || !isDay(instant.slice(0, 10)) ? undefined : at
}

/** An instant as `typedTime` reads it in the zone, with its offset where clocks show that time twice; anything else as it came. */
export function shownTime(text: string, timeZone: string): string {
  const at = instantIn(text)
  if (at === undefined) return text
  const ways = [timeText(at, timeZone), zonedTimeText(at, timeZone)]
  return ways.find((way) => typedTime(way, timeZone, at) === at.toISOString()) ?? text
}
