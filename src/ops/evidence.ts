import type { Db } from '../db.ts'
import type { Status } from '../sends/lifecycle.ts'
import { CANDIDATE_AFTER_MS, CANDIDATE_BEFORE_MS } from '../sends/match.ts'
import { findAsks } from '../sends/second-person.ts'
import { findSuggestions, type Suggestion } from '../sends/suggest.ts'

// Read-only. An attempt is told by its number: its id is a claim token and never leaves the database.

/** What is known of whether one email was sent, for the person who decides. */
export interface SendEvidence {
  dedupe_key: string
  status: Status
  version: number
  recipient: string
  queued_at: Date
  /** Why nobody can tell. */
  last_error: string | null
  /** In the order of their times. */
  lines: EvidenceLine[]
  /** Null unless the send needs a decision. */
  suggestion: Suggestion | null
  /** Of the same recipient, from 24 h before the last call to 24 h after it. */
  around: { sends: number; delivered: number; parked_reports: number }
  /** Reports that may be attached, those nearest to the last call first. */
  candidates: AttachableReport[]
}

interface EvidenceLine {
  at: Date
  kind: 'request' | 'end' | 'report' | 'parked' | 'sending_log' | 'asked'
  text: string
}

export interface AttachableReport {
  event: string
  source: string
  event_id: string
  kind: string
  message_id: string | null
  recipient: string | null
  occurred_at: Date
  has_own_time: boolean
  /** Why it found no call by itself. */
  parked: string
  /** After the last call. */
  seconds_after_call: number | null
  /** A person has said that it is not ours. */
  dismissed_at: Date | null
}

const MOST_CANDIDATES = 20

interface SendSeen {
  dedupe_key: string
  status: Status
  version: number
  recipient: string
  match_key: string
  queued_at: Date
  last_error: string | null
  last_call_at: Date | null
}

interface Call {
  number: number
  outcome: string
  called_at: Date | null
  ended_at: Date | null
  error: string | null
  message_id: string | null
  log_read_at: Date | null
  log_read_by: string | null
}

/** The evidence for one send, with what it suggests; undefined when no send has this key. */
export async function findEvidence(db: Db, key: string, now = new Date()): Promise<SendEvidence | undefined> {
  const { rows: sends } = await db.query<SendSeen>(
    `select dedupe_key, status, version, recipient, match_key, queued_at, last_error,
       (select max(claimed_at) from send_attempts where send_attempts.dedupe_key = email_sends.dedupe_key and called_at is not null) as last_call_at
     from email_sends where dedupe_key = $1`,
    [key],
  )
  const send = sends[0]
  if (!send) return undefined
  const { match_key, last_call_at, ...seen } = send
  const { rows: calls } = await db.query<Call>(
    `select number, outcome, called_at, ended_at, error, message_id, logs.read_at as log_read_at, logs.read_by as log_read_by
     from send_attempts left join lateral (select logs.* from log_absences join sending_logs logs on logs.id = log
       where attempt = send_attempts.id order by read_at desc, logs.id desc limit 1) logs on true
     where dedupe_key = $1 order by number`,
    [key],
  )
  const { rows: reports } = await db.query<{ kind: string; message_id: string | null; occurred_at: Date; number: number }>(
    `select kind, reports.message_id, occurred_at, number from send_attempts calls join delivery_reports reports on attempt = calls.id
     where dedupe_key = $1 order by occurred_at, event limit 100`,
    [key],
  )
  const candidates = await findAttachable(db, match_key, last_call_at ?? send.queued_at)
  const suggestion = send.status === 'needs_review' ? (await findSuggestions(db, [key], now)).get(key) : undefined
  return {
    ...seen,
    lines: [...linesOf(calls, reports, candidates), ...(await findAsked(db, send))],
    suggestion: suggestion ?? null,
    around: await countAround(db, send),
    candidates,
  }
}

function linesOf(
  calls: readonly Call[],
  reports: readonly { kind: string; message_id: string | null; occurred_at: Date; number: number }[],
  candidates: readonly AttachableReport[],
): EvidenceLine[] {
  const lines: EvidenceLine[] = []
  for (const { number, called_at, ended_at, outcome, error, message_id, log_read_at, log_read_by } of calls) {
    if (called_at) lines.push({ at: called_at, kind: 'request', text: `request written (call ${number})` })
    if (called_at && ended_at) {
      const end = error ?? outcome.replaceAll('_', ' ')
      lines.push({ at: ended_at, kind: 'end', text: `${end}${message_id === null ? '' : `, ${message_id}`} (call ${number})` })
    }
    if (log_read_at)
      lines.push({
        at: log_read_at,
        kind: 'sending_log',
        text: `not in the sending log that ${log_read_by} read in (call ${number})`,
      })
  }
  for (const { kind, message_id, occurred_at, number } of reports)
    lines.push({ at: occurred_at, kind: 'report', text: `report "${kind}"${named(message_id)} (call ${number})` })
  for (const { kind, message_id, recipient, occurred_at, parked, dismissed_at } of candidates) {
    const to = recipient === null ? '' : ` → ${recipient}`
    const why = dismissed_at ? 'a person said: not ours' : `parked: ${parked}`
    lines.push({ at: occurred_at, kind: 'parked', text: `report "${kind}"${named(message_id)}${to}, ${why}` })
  }
  return lines.sort((a, b) => a.at.getTime() - b.at.getTime())
}

const named = (messageId: string | null) => (messageId === null ? '' : ` ${messageId}`)

/** Who wants it sent again as it is now, where that takes another person. */
async function findAsked(db: Db, { dedupe_key, status, version }: SendSeen): Promise<EvidenceLine[]> {
  if (status !== 'needs_review') return []
  const asks = await findAsks(db, dedupe_key, version)
  return asks.map(({ at, actor, reason }) => ({
    at,
    kind: 'asked',
    text: `${actor.replace(/^person:/, '')} wants it sent again, which another person must say too: ${reason}`,
  }))
}

async function findAttachable(db: Db, matchKey: string, call: Date): Promise<AttachableReport[]> {
  const { rows } = await db.query<AttachableReport>({
    name: 'find-attachable',
    text: `select event, source, event_id, kind, message_id, recipient, reports.occurred_at, has_own_time, parked,
        round(extract(epoch from reports.occurred_at - $2))::int as seconds_after_call, dismissed_at
      from delivery_reports reports join webhook_events events on events.id = event
      where match_key = $1 and attempt is null
        and reports.occurred_at between $2::timestamptz - ${CANDIDATE_AFTER_MS} * interval '1 ms' and $2::timestamptz + ${CANDIDATE_BEFORE_MS} * interval '1 ms'
      order by abs(extract(epoch from reports.occurred_at - $2)), event limit ${MOST_CANDIDATES}`,
    values: [matchKey, call],
  })
  return rows
}

async function countAround(
  db: Db,
  { dedupe_key, recipient, match_key, last_call_at, queued_at }: SendSeen,
): Promise<SendEvidence['around']> {
  const { rows } = await db.query<SendEvidence['around']>({
    name: 'count-around',
    text: `select count(*)::int as sends, count(*) filter (where status = 'delivered')::int as delivered,
        (select count(*)::int from delivery_reports
         where match_key = $4 and attempt is null and occurred_at between $3::timestamptz - interval '24 h' and $3::timestamptz + interval '24 h') as parked_reports
      from email_sends where lower(recipient) = lower($2) and dedupe_key <> $1
        and queued_at between $3::timestamptz - interval '24 h' and $3::timestamptz + interval '24 h'`,
    values: [dedupe_key, recipient, last_call_at ?? queued_at, match_key],
  })
  return rows[0] ?? { sends: 0, delivered: 0, parked_reports: 0 }
}
