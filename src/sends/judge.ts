import type { Db } from '../db.ts'
import type { State } from './lifecycle.ts'
import { CANDIDATE_AFTER_MS, CANDIDATE_BEFORE_MS, type Candidate, matchReport, type Parked, type UnknownReport } from './match.ts'

type Report = Omit<UnknownReport, 'messageId'> & {
  event: string
  messageId: string | null
  matchKey: string
  hasOwnTime: boolean
  isDismissed: boolean
}

/** As many parked reports of one recipient are looked at, those nearest after the call. */
const MOST_REPORTS = 100
const MOST_ATTEMPTS = 1_000

/** A report, and the attempts it may speak of; the one attempt, where the rule is sure. */
export interface Judged {
  report: Report
  candidates: readonly string[]
  fits: string | undefined
  parked: Parked | undefined
}

/** What the rule says of the parked reports of each recipient since then, as if the account were exclusive and the breaker closed. */
export async function judgeReports(db: Db, since: ReadonlyMap<string, Date>): Promise<Judged[]> {
  const { rows: reports } = await db.query<Report>({
    name: 'find-reports-to-judge',
    text: `select event, kind, message_id as "messageId", recipient, reports.match_key as "matchKey", occurred_at as "occurredAt", subject,
        has_own_time as "hasOwnTime", dismissed_at is not null as "isDismissed"
      from unnest($1::text[], $2::timestamptz[]) as wanted (match_key, since) cross join lateral (
        select * from delivery_reports where match_key = wanted.match_key and attempt is null
          and occurred_at >= wanted.since - ${CANDIDATE_AFTER_MS} * interval '1 ms'
        order by occurred_at, event limit ${MOST_REPORTS}) reports`,
    values: [[...since.keys()], [...since.values()]],
  })
  const byRecipient = Map.groupBy(reports, ({ matchKey }) => matchKey)
  const attempts = await findAttemptsOf(db, byRecipient)
  return reports.map((report): Judged => {
    const { messageId } = report
    const others = (byRecipient.get(report.matchKey) ?? []).flatMap((other) =>
      other.messageId === null ? [] : [{ messageId: other.messageId, occurredAt: other.occurredAt }],
    )
    const match = matchReport({ ...report, messageId: messageId ?? '' }, attempts.get(report.matchKey) ?? [], {
      others,
      isExclusive: true,
      isBreakerClosed: true,
    })
    const candidates = 'parked' in match ? match.candidates : [match.candidate.attempt]
    if (messageId === null) return { report, candidates, fits: undefined, parked: 'no message id' }
    return 'parked' in match
      ? { report, candidates, fits: undefined, parked: match.parked }
      : { report, candidates, fits: match.candidate.attempt, parked: undefined }
  })
}

async function findAttemptsOf(db: Db, reports: ReadonlyMap<string, readonly Report[]>): Promise<Map<string, Candidate[]>> {
  if (reports.size === 0) return new Map()
  const times = (of: readonly Report[]) => of.map(({ occurredAt }) => occurredAt.getTime())
  const { rows } = await db.query<Candidate & { matchKey: string; state: State }>({
    name: 'find-attempts-to-judge',
    text: `select attempts.match_key as "matchKey", attempts.id as attempt, attempts.recipient, attempts.claimed_at as "claimedAt", outcome, state,
        message ->> 'subject' as subject
      from unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) as wanted (match_key, since, until) cross join lateral (
        select * from send_attempts where match_key = wanted.match_key and message_id is null and outcome in ('in_flight', 'unknown', 'accepted')
          and claimed_at between wanted.since and wanted.until order by claimed_at desc limit ${MOST_ATTEMPTS}) attempts
        join email_sends using (dedupe_key)`,
    values: [
      [...reports.keys()],
      [...reports.values()].map((of) => new Date(Math.min(...times(of)) - CANDIDATE_BEFORE_MS)),
      [...reports.values()].map((of) => new Date(Math.max(...times(of)) + CANDIDATE_AFTER_MS)),
    ],
  })
  return Map.groupBy(rows, ({ matchKey }) => matchKey)
}
