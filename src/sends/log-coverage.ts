import type pg from 'pg'
import { type Db, inTransaction } from '../db.ts'
import { excludeForm } from './address.ts'
import { keepReading, type Reading } from './log-absences.ts'
import { type AcceptedCalls, ZONES_APART_MS } from './log-clock.ts'
import { CANDIDATE_AFTER_MS, CANDIDATE_BEFORE_MS } from './match.ts'
import type { LogField, LogLine } from './sending-log.ts'

// What a sending log doesn't have. That an email is missing says something only of a file that is whole, runs on for long enough, and
// whose times are known.

/** What a sending log covers, and which open sends it lacks. */
export interface Coverage {
  /** From its first to its last time, as they were read; null when no line has a time. */
  from: Date | null
  until: Date | null
  /** By how many minutes those are off; null where they fit, or nothing can tell. */
  times_off_by_minutes: number | null
  /** Emails of that time which Inboxili has accepted from us, and how many of those the file lacks. */
  known: number
  missing: number
  /** Sends that needed a decision, called at a time that the file covers, or settled by it. */
  open: number
  /** Those of them of which it has no trace; suggested as not sent, if the file is whole. */
  absent: string[]
}

/** Who has read which file, how, and why; nobody in a dry run. */
export interface LogReader {
  pool: pg.Pool
  fileSha256: string
  /** The zone of times that name none, and the column of each field. */
  readAs: { zone: string; columns: Record<LogField, string | null> }
  by: { actor: string; via: string; reason: string } | undefined
}

/** A line with whether it is known whose message it is. */
type JudgedLine = Pick<LogLine, 'messageId' | 'recipient' | 'occurredAt' | 'namesZone'> & { isExplained: boolean }

/** The lines of a log, with what its times are worth. */
export interface JudgedLog {
  lines: readonly JudgedLine[]
  accepted: AcceptedCalls
  minutesOff: number | null
  /** Sends that a dry run would settle, and has left open. */
  settled: ReadonlySet<string>
}

/** So long before and after a call the file must have other lines: an email may be logged a little later than it was asked for. */
const COVERED_BEFORE_MS = 5 * 60_000
const COVERED_AFTER_MS = 60 * 60_000

/**
 * Finds the calls of unknown outcome that the file should have and lacks, and keeps them as such, unless in a dry run. A file that lacks
 * emails that were accepted for certain is not whole (it may be filtered), and one that has none of them proves nothing: then none is
 * kept. What an earlier reading has kept and this one doesn't find any more is taken back.
 */
export async function coverLog(reader: LogReader, log: JudgedLog): Promise<Coverage> {
  const { pool, by } = reader
  const mayBeOf = tracesIn(log)
  if (!by) return (await look(pool, log, mayBeOf)).coverage
  return inTransaction(pool, async (tx) => {
    // Of two readings at once the second one sees what the first one has kept.
    await tx.query(`select pg_advisory_xact_lock(hashtextextended('sending logs', 0))`)
    const { coverage, reading } = await look(tx, log, mayBeOf)
    await keepReading(tx, { ...reader, by }, reading)
    return coverage
  })
}

async function look(db: Db, log: JudgedLog, mayBeOf: (call: Call) => boolean): Promise<{ coverage: Coverage; reading: Reading }> {
  const { lines, settled, minutesOff } = log
  const [from = null, until = null] = endsOf(lines.flatMap(({ occurredAt }) => occurredAt ?? []))
  const between = coveredTime(log, from, until)
  const { known, missing } = between ? await countKnown(db, between, lines) : { known: 0, missing: 0 }
  const isWhole = known > 0 && missing === 0
  const calls = (await findCalls(db, between)).map((call) => ({ ...call, hasTrace: mayBeOf(call) }))
  const lacking = calls.filter(({ is_covered, hasTrace }) => isWhole && is_covered && !hasTrace)
  const isOpen = ({ is_open, dedupe_key }: Call) => is_open && !settled.has(dedupe_key)
  const keys = (of: readonly Call[]) => [...new Set(of.filter(isOpen).map(({ dedupe_key }) => dedupe_key))]
  const open = settled.size + keys(calls.filter(({ is_covered }) => is_covered)).length
  const coverage = { from, until, times_off_by_minutes: minutesOff, known, missing, open, absent: keys(lacking) }
  const attempts = (of: readonly Call[]) => of.map(({ attempt }) => attempt)
  const reading = {
    coverage,
    lines: lines.length,
    absent: attempts(lacking.filter(isOpen)),
    lacking: attempts(lacking),
    traced: attempts(calls.filter(({ hasTrace }) => hasTrace)),
  }
  return { coverage, reading }
}

type Between = readonly [Date, Date]

function endsOf(times: readonly Date[]): [Date, Date] | [] {
  if (times.length === 0) return []
  const each = times.map((time) => time.getTime())
  return [
    new Date(each.reduce((one, other) => Math.min(one, other))),
    new Date(each.reduce((one, other) => Math.max(one, other))),
  ]
}

/**
 * When a call must have been made for the file to tell of it. Times that name no zone may be of another one than was said, and so may
 * their ends be: then it must lie between two calls of ours whose emails stand in the file, too.
 */
function coveredTime({ lines, accepted, minutesOff }: JudgedLog, from: Date | null, until: Date | null): Between | undefined {
  if (!from || !until || minutesOff !== null) return undefined
  const [first, last] = [from.getTime() + COVERED_BEFORE_MS, until.getTime() - COVERED_AFTER_MS]
  if (lines.every(({ occurredAt, namesZone }) => occurredAt === null || namesZone)) return [new Date(first), new Date(last)]
  const [firstCall, lastCall] = endsOf([...accepted.values()])
  if (!firstCall || !lastCall) return undefined
  return [new Date(Math.max(first, firstCall.getTime())), new Date(Math.min(last, lastCall.getTime()))]
}

/** Emails that Inboxili has accepted in that time, by our own records, and how many of them the file doesn't name. */
async function countKnown(db: Db, between: Between, lines: readonly JudgedLine[]): Promise<{ known: number; missing: number }> {
  const { rows } = await db.query<{ known: number; missing: number }>(
    `select count(*)::int as known, count(*) filter (where named.message_id is null)::int as missing
     from send_attempts calls left join (select distinct message_id from unnest($3::text[]) message_id) named using (message_id)
     where outcome = 'accepted' and calls.message_id is not null and claimed_at between $1 and $2`,
    [...between, lines.flatMap(({ messageId }) => messageId ?? [])],
  )
  return rows[0] ?? { known: 0, missing: 0 }
}

interface Call {
  attempt: string
  dedupe_key: string
  match_key: string
  message_id: string | null
  claimed_at: Date
  /** It isn't known what became of it, and its send needs a decision. */
  is_open: boolean
  is_covered: boolean
}

/** The open calls of that time, and all that some log is known to lack. */
async function findCalls(db: Db, between: Between | undefined): Promise<Call[]> {
  const { rows } = await db.query<Call>(
    `with wanted as (
       select calls.id from email_sends join send_attempts calls using (dedupe_key)
       where status = 'needs_review' and calls.message_id is null and outcome = 'unknown' and calls.claimed_at between $1 and $2
       union select attempt from log_absences
     )
     select calls.id as attempt, dedupe_key, calls.match_key, calls.message_id, calls.claimed_at,
       status = 'needs_review' and calls.message_id is null and outcome = 'unknown' as is_open,
       coalesce(calls.claimed_at between $1 and $2, false) as is_covered
     from wanted join send_attempts calls using (id) join email_sends using (dedupe_key) order by calls.claimed_at, calls.id`,
    [...(between ?? [null, null])],
  )
  return rows
}

/** Tells of a call whether some line could be of it, however widely it is taken: by the mailbox, or by nothing where a line names none. */
function tracesIn({ lines, minutesOff }: JudgedLog): (call: Call) => boolean {
  const named = new Set(lines.flatMap(({ messageId }) => messageId ?? []))
  const isSure = ({ namesZone }: JudgedLine) => namesZone && minutesOff === null
  const unexplained = Map.groupBy(
    lines.filter(({ isExplained }) => !isExplained),
    ({ recipient }) => (recipient === null ? null : excludeForm(recipient)),
  )
  return ({ match_key, message_id, claimed_at }) => {
    const mayBe = (line: JudgedLine) => {
      if (line.occurredAt === null) return true
      const after = line.occurredAt.getTime() - claimed_at.getTime()
      return after >= -CANDIDATE_AFTER_MS - (isSure(line) ? 0 : ZONES_APART_MS) && after <= CANDIDATE_BEFORE_MS
    }
    if (message_id !== null && named.has(message_id)) return true
    return [...(unexplained.get(match_key) ?? []), ...(unexplained.get(null) ?? [])].some(mayBe)
  }
}
