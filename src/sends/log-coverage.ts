import type pg from 'pg'
import { type Db, inTransaction } from '../db.ts'
import { excludeForm } from './address.ts'
import { CANDIDATE_AFTER_MS, CANDIDATE_BEFORE_MS } from './match.ts'
import type { LogLine } from './sending-log.ts'

// What a sending log doesn't have. That an email is missing says something only of a file that is whole, and runs on for long enough.

/** What a sending log covers, and which open sends it lacks. */
export interface Coverage {
  /** From its first to its last time; null when no line has a time. */
  from: Date | null
  until: Date | null
  /** Emails of that time which Inboxili has accepted from us, and how many of those the file lacks. */
  known: number
  missing: number
  /** Sends that needed a decision, called at a time that the file covers, or settled by it. */
  open: number
  /** Those of them of which it has no trace; suggested as not sent, if the file is whole. */
  absent: string[]
}

/** Who has read which file, and why; nobody in a dry run. */
export interface LogReader {
  pool: pg.Pool
  fileSha256: string
  by: { actor: string; via: string; reason: string } | undefined
}

/** A line with whether it is known whose message it is. */
export type JudgedLine = Pick<LogLine, 'messageId' | 'recipient' | 'occurredAt'> & { isExplained: boolean }

/** So long before and after a call the file must have other lines: an email may be logged a little later than it was asked for. */
const COVERED_BEFORE_MS = 5 * 60_000
const COVERED_AFTER_MS = 60 * 60_000

/**
 * Finds the calls of unknown outcome that the file should have and lacks, and keeps them as such, unless in a dry run. A file that lacks
 * emails that were accepted for certain is not whole (it may be filtered), and one that has none of them proves nothing: then none is
 * kept. The same file again adds what is new.
 */
export async function coverLog(
  { pool, fileSha256, by }: LogReader,
  lines: readonly JudgedLine[],
  settled: ReadonlySet<string>,
): Promise<Coverage> {
  const times = lines.flatMap(({ occurredAt }) => (occurredAt === null ? [] : [occurredAt.getTime()]))
  if (times.length === 0) return { from: null, until: null, known: 0, missing: 0, open: 0, absent: [] }
  const from = new Date(times.reduce((one, other) => Math.min(one, other)))
  const until = new Date(times.reduce((one, other) => Math.max(one, other)))
  const covered = [new Date(from.getTime() + COVERED_BEFORE_MS), new Date(until.getTime() - COVERED_AFTER_MS)] as const
  const { known, missing } = await countKnown(pool, covered, lines)
  // A dry run has left those open that it would settle.
  const calls = (await findOpenCalls(pool, covered)).filter(({ dedupe_key }) => !settled.has(dedupe_key))
  const isWhole = known > 0 && missing === 0
  const absent = isWhole ? withoutTrace(calls, lines) : []
  if (by) {
    await inTransaction(pool, async (tx) => {
      const { rows } = await tx.query<{ id: string }>(
        `insert into sending_logs (file_sha256, from_at, until_at, lines, known, missing, read_by, via, reason)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         on conflict (file_sha256) do update set known = excluded.known, missing = excluded.missing returning id`,
        [fileSha256, from, until, lines.length, known, missing, by.actor, by.via, by.reason],
      )
      // Whose outcome is still unknown: a line or an event may have told it meanwhile.
      await tx.query(
        `insert into log_absences (attempt, log)
         select id, $2 from send_attempts where id = any ($1) and message_id is null and outcome = 'unknown' order by id
         on conflict (attempt) do nothing`,
        [absent.map(({ attempt }) => attempt), rows[0]?.id],
      )
    })
  }
  const keys = (of: readonly OpenCall[]) => [...new Set(of.map(({ dedupe_key }) => dedupe_key))]
  return { from, until, known, missing, open: settled.size + keys(calls).length, absent: keys(absent) }
}

type Between = readonly [Date, Date]

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

interface OpenCall {
  attempt: string
  dedupe_key: string
  match_key: string
  claimed_at: Date
}

async function findOpenCalls(db: Db, between: Between): Promise<OpenCall[]> {
  const { rows } = await db.query<OpenCall>(
    `select calls.id as attempt, dedupe_key, calls.match_key, calls.claimed_at
     from email_sends join send_attempts calls using (dedupe_key)
     where status = 'needs_review' and calls.message_id is null and outcome = 'unknown' and calls.claimed_at between $1 and $2
     order by calls.claimed_at, calls.id`,
    [...between],
  )
  return rows
}

/** Calls that no line could be of, however widely it is taken: by the mailbox, or by nothing where a line names none. */
function withoutTrace(calls: readonly OpenCall[], lines: readonly JudgedLine[]): OpenCall[] {
  const unexplained = Map.groupBy(
    lines.filter(({ isExplained }) => !isExplained),
    ({ recipient }) => (recipient === null ? null : excludeForm(recipient)),
  )
  return calls.filter(({ match_key, claimed_at }) => {
    const mayBe = ({ occurredAt }: JudgedLine) => {
      if (occurredAt === null) return true
      const after = occurredAt.getTime() - claimed_at.getTime()
      return after >= -CANDIDATE_AFTER_MS && after <= CANDIDATE_BEFORE_MS
    }
    return ![...(unexplained.get(match_key) ?? []), ...(unexplained.get(null) ?? [])].some(mayBe)
  })
}
