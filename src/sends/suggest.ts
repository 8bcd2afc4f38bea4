import type { Db } from '../db.ts'
import { type Judged, judgeReports } from './judge.ts'
import { type Candidate, RULE_VERSION } from './match.ts'

export const verdicts = ['sent', 'not_sent', 'cant_tell'] as const
export type Verdict = (typeof verdicts)[number]

/** What speaks for one decision or the other. It is a hint for people: nothing acts on it by itself. */
export interface Suggestion {
  verdict: Verdict
  /** How sure `sent` is: A its own answer or report, B recipient and the report's own time, C recipient and the time of receipt. */
  grade: 'A' | 'B' | 'C' | null
  /** The report that it rests on. */
  event: string | null
  message_id: string | null
  /** Reports that may be of this send's calls. */
  candidates: number
  rule_version: number
  explanation: string
}

/** A call that may have sent the email. */
interface Call {
  dedupe_key: string
  attempt: string
  number: number
  match_key: string
  claimed_at: Date
  outcome: Candidate['outcome']
  message_id: string | null
  /** Since the send was last asked for. */
  is_current: boolean
  is_reported: boolean
  log_from: Date | null
  log_until: Date | null
  log_known: number | null
}

/**
 * What the evidence suggests for each of these sends that needs a decision, by the very rule that settles by itself; only whether the
 * account is exclusive and the breaker closed doesn't count, as a person looks. That a sending log lacks the call is the one thing
 * that speaks for "not sent".
 */
export async function findSuggestions(db: Db, keys: readonly string[], now: Date): Promise<Map<string, Suggestion>> {
  const calls = await findCalls(db, keys)
  const judged = await judgeReports(db, earliestCalls(calls))
  const suggestions = new Map<string, Suggestion>()
  for (const [key, own] of Map.groupBy(calls, ({ dedupe_key }) => dedupe_key)) suggestions.set(key, suggest(own, judged, now))
  for (const key of keys) if (!suggestions.has(key)) suggestions.set(key, cantTell(0, 'no call is known that may have sent it'))
  return suggestions
}

function suggest(calls: readonly Call[], judged: readonly Judged[], now: Date): Suggestion {
  const accepted = calls.find(({ is_current, outcome, is_reported }) => is_current && (outcome === 'accepted' || is_reported))
  if (accepted) {
    const why = accepted.is_reported ? 'a report names its message' : 'Inboxili accepted it'
    return {
      ...base('sent', `certain: ${why}, call ${accepted.number}`),
      grade: 'A',
      message_id: accepted.message_id,
      candidates: 1,
    }
  }
  const own = new Set(calls.map(({ attempt }) => attempt))
  const recipients = new Set(calls.map(({ match_key }) => match_key))
  // Of an ambiguous one only the nearest candidates are named.
  const possible = judged.filter(
    ({ report, candidates, parked }) =>
      !report.isDismissed &&
      (candidates.some((it) => own.has(it)) || (parked === 'ambiguous' && recipients.has(report.matchKey))),
  )
  const [fitting] = possible.filter(({ fits }) => fits !== undefined)
  if (fitting) {
    const { report } = fitting
    const call = calls.find(({ attempt }) => attempt === fitting.fits)
    const seconds = Math.round((report.occurredAt.getTime() - (call?.claimed_at.getTime() ?? 0)) / 1_000)
    const time = report.hasOwnTime ? "the report's own time" : "the report's arrival"
    return {
      ...base('sent', `recipient and ${time}, ${distance(seconds)}, only candidate of 1, rule v${RULE_VERSION}`),
      grade: report.hasOwnTime ? 'B' : 'C',
      event: report.event,
      message_id: report.messageId,
      candidates: new Set(possible.map(({ report: { messageId } }) => messageId)).size,
    }
  }
  if (possible.length > 0) {
    const reasons = [...new Set(possible.map(({ parked }) => parked))].join(', ')
    return cantTell(possible.length, `${possible.length} ${possible.length === 1 ? 'candidate' : 'candidates'}: ${reasons}`)
  }
  const open = calls.filter(({ outcome, is_reported, is_current }) => is_current || (outcome !== 'accepted' && !is_reported))
  const absence = open.find(({ log_from }) => log_from !== null)
  if (
    absence?.log_from &&
    absence.log_until &&
    open.every(({ log_from, message_id }) => log_from !== null && message_id === null)
  )
    return base(
      'not_sent',
      `the sending log from ${utc(absence.log_from)} to ${utc(absence.log_until)} has every email that we know was sent then (${absence.log_known}), and lacks this one`,
    )
  const last = Math.max(...calls.map(({ claimed_at }) => claimed_at.getTime()))
  return cantTell(0, `no report in ${age(now.getTime() - last)}, which proves nothing`)
}

const base = (verdict: Verdict, explanation: string): Suggestion => ({
  verdict,
  grade: null,
  event: null,
  message_id: null,
  candidates: 0,
  rule_version: RULE_VERSION,
  explanation,
})
const cantTell = (candidates: number, explanation: string): Suggestion => ({ ...base('cant_tell', explanation), candidates })

const utc = (at: Date) => `${at.toISOString().slice(0, 16).replace('T', ' ')} UTC`
const distance = (seconds: number) => (seconds < 0 ? `${-seconds} s before the call` : `${seconds} s after the call`)

function age(ms: number): string {
  const minutes = Math.max(0, Math.floor(ms / 60_000))
  if (minutes < 60) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} d`
}

/**
 * The last calls of open sends that a report would settle if it might, as matching has found when it last looked; or that have proved
 * accepted. A query, to be a part of a larger one; an earlier call's report is left to the look at the single send.
 */
export const suggestedSent = `select candidates[1] from delivery_reports
    where attempt is null and dismissed_at is null and parked in ('account not exclusive', 'breaker open') and kind in ('delivered', 'bounced')
      and candidates[1] is not null
  union all
  select calls.id from email_sends sends join send_attempts calls on calls.id = sends.claim_token
    where sends.state = 'needs_review' and (sends.message_id is not null or sends.delivered_at is not null or sends.bounced_at is not null)
      and calls.claimed_at >= sends.queued_at and (calls.outcome = 'accepted'
        or calls.message_id is not null and exists (select from delivery_reports where delivery_reports.attempt = calls.id))`

/** The calls that a whole sending log lacks. */
export const suggestedNotSent = 'select attempt from log_absences'

async function findCalls(db: Db, keys: readonly string[]): Promise<Call[]> {
  const { rows } = await db.query<Call>({
    name: 'find-calls-to-judge',
    text: `select calls.dedupe_key, calls.id as attempt, number, calls.match_key, calls.claimed_at, outcome, calls.message_id,
        calls.claimed_at >= queued_at as is_current,
        calls.message_id is not null and exists (select from delivery_reports where attempt = calls.id) as is_reported,
        logs.from_at as log_from, logs.until_at as log_until, logs.known as log_known
      from send_attempts calls join email_sends using (dedupe_key)
        left join lateral (select logs.* from log_absences join sending_logs logs on logs.id = log where attempt = calls.id
          order by read_at desc, logs.id desc limit 1) logs on true
      where calls.dedupe_key = any ($1) and outcome in ('in_flight', 'unknown', 'accepted')
      order by calls.dedupe_key, number`,
    values: [keys],
  })
  return rows
}

/** From when on the reports of each recipient count. */
function earliestCalls(calls: readonly Call[]): Map<string, Date> {
  const earliest = new Map<string, Date>()
  for (const { match_key, claimed_at } of calls) {
    const before = earliest.get(match_key)
    if (!before || claimed_at < before) earliest.set(match_key, claimed_at)
  }
  return earliest
}
