import type { CsvRecord } from './csv.ts'

// What a sending log exported from the Inboxili dashboard says, line by line. Its form is not published: columns are found by
// their names, and what can't be read is absent.

export const logFields = ['recipient', 'message_id', 'status', 'time', 'subject'] as const
export type LogField = (typeof logFields)[number]

/** The place of each field's column; a field without one is absent in all lines. */
export type Columns = Partial<Record<LogField, number>>

/** What a line says of its email; `unclear` where the word for it is not known. */
type Said = 'sent' | 'delivered' | 'bounced' | 'complained' | 'failed' | 'unclear'

/** One line of the log. Its text stays in the file: its number and hash stand for it. */
export interface LogLine {
  line: number
  sha256: string
  says: Said
  bounceKind: 'hard' | 'soft' | 'unknown' | null
  messageId: string | null
  recipient: string | null
  /** Absent, too, for a day without a time, and for a local time that comes twice or never. */
  occurredAt: Date | null
  /** Whether that time is certain whatever zone is said to be meant: it has one of its own, or needs none. */
  namesZone: boolean
  subject: string | null
}

/** Names that exports give their columns, the plainest first. */
const synonyms: Record<LogField, readonly string[]> = {
  recipient: ['recipient', 'to', 'recipientemail', 'toemail', 'toaddress', 'emailaddress', 'sentto', 'email'],
  message_id: ['messageid', 'emailid', 'msgid', 'id'],
  status: ['status', 'deliverystatus', 'state', 'event', 'eventtype', 'result'],
  time: ['time', 'timestamp', 'date', 'datetime', 'eventtime', 'occurredat', 'sentat', 'createdat', 'senttime', 'sentdate'],
  subject: ['subject', 'subjectline', 'emailsubject'],
}

/** As names and words are compared: without case, blanks, `_` and `-`. */
const plain = (text: string) => text.toLowerCase().replace(/[\s_-]+/g, '')

/** Finds the columns: those that are given by name, the others by the header. Says what is wrong instead, if anything is. */
export function chooseColumns(
  header: readonly string[],
  given: Partial<Record<LogField, string>>,
  howToName: (field: LogField) => string = () => 'name it',
): { columns: Columns } | { problems: string[] } {
  const names = header.map(plain)
  const problems: string[] = []
  const columns: Columns = {}
  const placesOf = (name: string) => names.flatMap((each, place) => (each === plain(name) ? [place] : []))
  for (const field of logFields) {
    const name = given[field] ?? synonyms[field].find((word) => placesOf(word).length > 0)
    const [place, ...more] = name === undefined ? [] : placesOf(name)
    if (more.length > 0) problems.push(`the file has several columns "${header[place ?? 0]}"; rename one`)
    else if (place !== undefined) columns[field] = place
    else if (given[field] !== undefined) problems.push(`the file has no column "${given[field]}"`)
  }
  const places = Object.values(columns)
  if (new Set(places).size < places.length) problems.push('one column can’t be two things')
  for (const field of ['message_id', 'status'] as const)
    if (problems.length === 0 && columns[field] === undefined)
      problems.push(`no column looks like the ${field}; ${howToName(field)}`)
  return problems.length > 0 ? { problems } : { columns }
}

const words: Record<string, [Said, LogLine['bounceKind']]> = {
  sent: ['sent', null],
  accepted: ['sent', null],
  delivered: ['delivered', null],
  bounced: ['bounced', 'unknown'],
  bounce: ['bounced', 'unknown'],
  hardbounce: ['bounced', 'hard'],
  hardbounced: ['bounced', 'hard'],
  softbounce: ['bounced', 'soft'],
  softbounced: ['bounced', 'soft'],
  complained: ['complained', null],
  complaint: ['complained', null],
  spamcomplaint: ['complained', null],
  failed: ['failed', null],
  rejected: ['failed', null],
}

/** Reads one line; the times without a zone are those of `zone`. */
export function readLogLine({ line, sha256, cells }: CsvRecord, columns: Columns, zone: string): LogLine {
  const cell = (field: LogField) => {
    const place = columns[field]
    return (place === undefined ? '' : (cells[place] ?? '')).trim()
  }
  const word = plain(cell('status'))
  const [says, bounceKind] = (Object.hasOwn(words, word) && words[word]) || ['unclear', null]
  const messageId = cell('message_id')
  const address = cell('recipient').replace(/^[^<>]*<([^<>]*)>$/, '$1')
  return {
    line,
    sha256,
    says,
    bounceKind,
    messageId: messageId !== '' && messageId.length <= 500 && !/\p{Cc}/u.test(messageId) ? messageId : null,
    recipient: address.length <= 254 && /^[^\s@<>,;\p{Cc}]+@[^\s@<>,;\p{Cc}]+$/u.test(address) ? address : null,
    occurredAt: readTime(cell('time'), zone),
    namesZone: namesZone(cell('time')),
    subject: cell('subject') || null,
  }
}

const TIME = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?) ?(Z|UTC|[+-]\d\d:?\d\d)?$/i

/** An instant: ISO 8601, or unix seconds or milliseconds. A day without a time is none: it could be before or after the call. */
export function readTime(text: string, zone: string): Date | null {
  if (/^\d{9,10}(\.\d{1,9})?$/.test(text)) return new Date(Number(text) * 1_000)
  if (/^\d{12,13}$/.test(text)) return new Date(Number(text))
  const [, day, clock = '', offset] = TIME.exec(text) ?? []
  if (day === undefined) return null
  const local = new Date(`${day}T${clock.replace(',', '.')}Z`)
  // JavaScript takes the 30th of February for the 2nd of March.
  if (Number.isNaN(local.getTime()) || local.toISOString().slice(0, 10) !== day) return null
  if (offset === undefined) return instantOf(local.getTime(), zone)
  const [, sign, hours = '', minutes = ''] = /^([+-])(\d\d):?(\d\d)$/.exec(offset) ?? []
  const behind = sign === undefined ? 0 : (Number(hours) * 60 + Number(minutes)) * (sign === '-' ? -1 : 1)
  return new Date(local.getTime() - behind * 60_000)
}

/** Whether a time is an instant by itself. */
function namesZone(text: string): boolean {
  const [, day, , offset] = TIME.exec(text) ?? []
  return day === undefined || offset !== undefined
}

const DAY_MS = 86_400_000

/** The one instant at which clocks of the zone show this time. When they are put back some come twice, when forward some never. */
function instantOf(localMs: number, zone: string): Date | null {
  if (zone === 'UTC') return new Date(localMs)
  const offsets = [offsetMs(localMs - DAY_MS, zone), offsetMs(localMs + DAY_MS, zone)]
  const instants = new Set(offsets.map((offset) => localMs - offset).filter((ms) => ms + offsetMs(ms, zone) === localMs))
  const [instant] = instants
  return instants.size === 1 && instant !== undefined ? new Date(instant) : null
}

const calendars = new Map<string, Intl.DateTimeFormat>()

/** Whether there is such a time zone. */
export function isZone(zone: string): boolean {
  try {
    offsetMs(0, zone)
    return true
  } catch {
    return false
  }
}

/** How far the clocks of a zone are ahead of UTC. Throws RangeError for a zone that there is not. */
function offsetMs(ms: number, zone: string): number {
  const calendar =
    calendars.get(zone) ??
    new Intl.DateTimeFormat('en-US', {
      timeZone: zone,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    })
  calendars.set(zone, calendar)
  const parts = Object.fromEntries(calendar.formatToParts(ms).map(({ type, value }) => [type, Number(value)]))
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1_000) * 1_000
}
