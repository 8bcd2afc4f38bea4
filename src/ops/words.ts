import type { Forecast } from '../follow-ups/forecast.ts'
import type { Status } from '../sends/lifecycle.ts'
import type { Verdict } from '../sends/suggest.ts'
import type { PlannedSend } from './bulk-decisions.ts'
import type { EventStatus } from './filters.ts'

// What page and command line say, so that both say the same. What strangers wrote is in it as it came: whoever shows it escapes it.

/** How people read a status: the word is always there, the icon only helps. */
export interface Label {
  word: string
  icon: string
  /** For terminals that can't show the icon. */
  ascii: string
  tone: 'quiet' | 'busy' | 'good' | 'bad' | 'ask'
}

export const sendLabels = {
  queued: { word: 'Waiting to send', icon: '○', ascii: 'o', tone: 'quiet' },
  claimed: { word: 'About to send', icon: '○', ascii: 'o', tone: 'quiet' },
  sending: { word: 'Sending now', icon: '◐', ascii: '~', tone: 'busy' },
  sent: { word: 'Sent, not confirmed', icon: '→', ascii: '>', tone: 'busy' },
  delivered: { word: 'Delivered', icon: '✓', ascii: '+', tone: 'good' },
  bounced: { word: 'Bounced', icon: '✕', ascii: 'x', tone: 'bad' },
  needs_review: { word: 'Needs a decision', icon: '?', ascii: '?', tone: 'ask' },
  rejected: { word: 'Not sent, key free', icon: '⊘', ascii: '!', tone: 'bad' },
  abandoned: { word: 'Closed', icon: '–', ascii: '-', tone: 'quiet' },
} as const satisfies Record<Status, Label>

export const eventLabels = {
  pending: { word: 'Waiting', icon: '○', ascii: 'o', tone: 'quiet' },
  processed: { word: 'Processed', icon: '✓', ascii: '+', tone: 'good' },
  ignored: { word: 'Kept, no rule wants it', icon: '–', ascii: '-', tone: 'quiet' },
  failed: { word: 'Failed', icon: '✕', ascii: 'x', tone: 'bad' },
  quarantined: { word: 'Quarantined', icon: '?', ascii: '?', tone: 'ask' },
} as const satisfies Record<EventStatus, Label>

/** What a call of ours came to, by `send_attempts.outcome`. */
export const attemptLabels = {
  claimed: { word: 'About to call', icon: '○', ascii: 'o', tone: 'quiet' },
  never_called: { word: 'Not called, nothing was sent', icon: '–', ascii: '-', tone: 'quiet' },
  in_flight: { word: 'Calling now', icon: '◐', ascii: '~', tone: 'busy' },
  accepted: { word: 'Accepted', icon: '✓', ascii: '+', tone: 'good' },
  refused: { word: 'Refused, nothing was sent', icon: '⊘', ascii: '!', tone: 'bad' },
  unknown: { word: 'Unknown whether it was sent', icon: '?', ascii: '?', tone: 'ask' },
} as const satisfies Record<string, Label>

/** What the service decided of a delivery of an event. */
export const dedupeLabels = {
  new: { word: 'New', icon: '✓', ascii: '+', tone: 'good' },
  same_bytes: { word: 'Redelivery, same bytes', icon: '–', ascii: '-', tone: 'quiet' },
  same_json: { word: 'Redelivery, same JSON in other bytes', icon: '–', ascii: '-', tone: 'quiet' },
  conflict: { word: 'Conflict: same id, different content', icon: '✕', ascii: 'x', tone: 'bad' },
  new_id: { word: 'Same body under a new id', icon: '–', ascii: '-', tone: 'quiet' },
} as const satisfies Record<string, Label>

/** What the evidence speaks for. */
export const verdictWords: Record<Verdict, string> = { sent: 'sent', not_sent: 'not sent', cant_tell: "can't tell" }

/** What a rule made of an event, by `follow_ups.outcome`. */
export const followUpWords: Readonly<Record<string, string>> = {
  queued: '→ this send',
  held: 'made no email: the key was already taken',
  key_taken: 'failed: the key belongs to a send to another recipient',
  failed: 'failed',
}

/** Why a decision about many sends left one alone. */
export const skippedWords: Record<NonNullable<PlannedSend['skipped']>, string> = {
  not_found: 'no send has this key',
  changed: 'changed meanwhile',
  in_flight: 'it is being sent, or waits for it',
  already_decided: 'needs no decision',
  suggestion_differs: 'the evidence speaks for another decision',
  not_known_unsent: 'no sending log shows that it was not sent; decide it by itself',
  message_taken: 'its message belongs to another call',
}

/** What a replay would come to for so many events. */
export const prospectWords: Record<keyof Forecast['events'], string> = {
  wants_emails: 'want emails',
  no_rule: 'match no rule',
  no_email: 'match a rule that wants no email',
  fails: 'fail: a rule throws, or builds no usable key',
  needs_confirm: "have to be confirmed first, which a dry run doesn't do",
  settles: 'are delivery events',
  read_anew: 'are to be read anew',
  pending: 'wait to be processed already',
  emptied: 'have lost their body to retention',
  source_gone: 'are of a source that is not configured',
  not_looked_at: 'not looked at: time was up',
}

/** `1,204`; `10,000+` where counting stopped at so many; `–` for what nobody knows. */
export function countText(count: number | bigint | null, most?: number): string {
  if (count === null) return '–'
  return most !== undefined && count > most ? `${most.toLocaleString('en-US')}+` : count.toLocaleString('en-US')
}

/** `0.3 % (4 of 1,204)`. Only none is 0 % and only all is 100 %; a share of nothing is `–`. */
export function shareText(part: number, whole: number): string {
  if (whole === 0) return '–'
  return `${percentText(part / whole)} (${countText(part)} of ${countText(whole)})`
}

function percentText(share: number): string {
  if (share === 0 || share === 1) return `${share * 100} %`
  if (share < 0.001) return '< 0.1 %'
  if (share > 0.999) return '> 99.9 %'
  return `${(share * 100).toFixed(1)} %`
}

/** How long: `812 ms`, `15.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`; cut off, not rounded up, and `–` for what nobody knows. */
export function durationText(ms: number | null): string {
  if (ms === null) return '–'
  const whole = Math.max(0, Math.floor(ms))
  const seconds = Math.floor(whole / 1_000)
  const two = (more: number, unit: string, less: number, smaller: string) =>
    less === 0 ? `${more} ${unit}` : `${more} ${unit} ${less} ${smaller}`
  if (whole < 1_000) return `${whole} ms`
  if (seconds < 60) return `${Math.floor(whole / 100) / 10} s`
  if (seconds < 3_600) return two(Math.floor(seconds / 60), 'min', seconds % 60, 's')
  if (seconds < 86_400) return two(Math.floor(seconds / 3_600), 'h', Math.floor((seconds % 3_600) / 60), 'min')
  return two(Math.floor(seconds / 86_400), 'd', Math.floor((seconds % 86_400) / 3_600), 'h')
}

/** How old, in one unit, for `… ago`: `2 s`, `41 min`, `5 h`, `9 d`. */
export function ageText(at: Date | null, now: Date): string {
  if (at === null) return '–'
  const seconds = Math.max(0, Math.floor((now.getTime() - at.getTime()) / 1_000))
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`
  return seconds < 86_400 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} d`
}

/** A time in full, in this zone, which is named elsewhere: `2026-11-29 14:02:07`. */
export function timeText(at: Date | null, zone = 'UTC'): string {
  if (at === null) return '–'
  if (zone === 'UTC') return at.toISOString().slice(0, 19).replace('T', ' ')
  const { year, month, day, hour, minute, second } = partsOf(at, zone, '2-digit')
  return `${year}-${month}-${day} ${hour}:${minute}:${second}`
}

/** A time in full that names its zone: `2026-11-29 14:02:07 UTC`, `2026-11-29 15:02:07 UTC+01:00`. */
export function zonedTimeText(at: Date | null, zone = 'UTC'): string {
  if (at === null) return '–'
  return `${timeText(at, zone)} UTC${zone === 'UTC' ? '' : offsetText(at, zone)}`
}

const offsetText = (at: Date, zone: string) => (partsOf(at, zone, '2-digit').timeZoneName ?? '').replace('GMT', '')

/** A time to the millisecond, with its offset: `2026-11-29 14:02:06.881Z`, `2026-11-29 15:02:06.881+01:00`. */
export function exactTimeText(at: Date, zone = 'UTC'): string {
  const ms = String(at.getUTCMilliseconds()).padStart(3, '0')
  return `${timeText(at, zone)}.${ms}${zone === 'UTC' ? 'Z' : offsetText(at, zone) || 'Z'}`
}

/** A time as a list has it: `14:02:07 · 4 min ago`, over 24 hours `28 Nov 14:02`, in another year `28 Nov 2025 14:02`. */
export function listTimeText(at: Date | null, now: Date, zone = 'UTC'): string {
  if (at === null) return '–'
  const { year, month, day, hour, minute, second } = partsOf(at, zone, 'short')
  const ms = now.getTime() - at.getTime()
  if (Math.abs(ms) >= 86_400_000)
    return `${Number(day)} ${month} ${year === partsOf(now, zone, 'short').year ? '' : `${year} `}${hour}:${minute}`
  return `${hour}:${minute}:${second} · ${ms < 0 ? `in ${ageText(now, at)}` : `${ageText(at, now)} ago`}`
}

const formats = new Map<string, Intl.DateTimeFormat>()

function partsOf(at: Date, timeZone: string, month: '2-digit' | 'short'): Partial<Record<Intl.DateTimeFormatPartTypes, string>> {
  const name = `${month} ${timeZone}`
  const format =
    formats.get(name) ??
    new Intl.DateTimeFormat('en-US', {
      timeZone,
      month,
      ...({ year: 'numeric', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' } as const),
      hourCycle: 'h23',
      timeZoneName: 'longOffset',
    })
  formats.set(name, format)
  return Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, value]))
}
