import type { Tx } from '../db.ts'
import type { Coverage, LogReader } from './log-coverage.ts'

/** What a reading of a sending log has found. */
export interface Reading {
  coverage: Coverage
  lines: number
  /** Open calls that the file lacks. */
  absent: readonly string[]
  /** All calls that it lacks, also those that have been decided about. */
  lacking: readonly string[]
  /** Calls that some line of it could be of. */
  traced: readonly string[]
}

/**
 * Keeps a reading in the place of an earlier one of the same file, and takes back what no longer holds: absences that this file doesn't
 * show any more, and those of any file of whose calls this one has a trace. The same reading again changes nothing; each change is audited.
 */
export async function keepReading(
  tx: Tx,
  { fileSha256, readAs, by }: LogReader & { by: NonNullable<LogReader['by']> },
  { coverage, lines, absent, lacking, traced }: Reading,
): Promise<void> {
  const { from, until, known, missing, times_off_by_minutes } = coverage
  const reading = [fileSha256, from, until, lines, known, missing, readAs.zone, readAs.columns, by.actor, by.via, by.reason]
  const { rowCount: isNew } = await tx.query(
    `insert into sending_logs (file_sha256, from_at, until_at, lines, known, missing, zone, columns, read_by, via, reason)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict (file_sha256) do nothing`,
    reading,
  )
  const { rows: withdrawn } = await tx.query<{ dedupe_key: string }>(
    `with withdrawn as (
       delete from log_absences using sending_logs logs
       where logs.id = log and ((file_sha256 = $1 and attempt <> all ($2)) or attempt = any ($3)) returning attempt
     )
     select distinct dedupe_key from withdrawn join send_attempts on id = attempt order by dedupe_key`,
    [fileSha256, lacking, traced],
  )
  // Whose outcome is still unknown: a line or an event may have told it meanwhile.
  const { rowCount: added } = await tx.query(
    `insert into log_absences (attempt, log)
     select calls.id, logs.id from send_attempts calls, sending_logs logs
     where calls.id = any ($2) and calls.message_id is null and outcome = 'unknown' and file_sha256 = $1 order by calls.id
     on conflict (attempt, log) do nothing`,
    [fileSha256, absent],
  )
  const isOther = isNew === 1 || added !== 0 || withdrawn.length > 0
  const { rowCount: changed } = await tx.query(
    `update sending_logs set from_at = $2, until_at = $3, lines = $4, known = $5, missing = $6, zone = $7, columns = $8,
       read_at = now(), read_by = $9, via = $10, reason = $11
     where file_sha256 = $1 and ($12 or (from_at, until_at, lines, known, missing, zone, columns) is distinct from
       ($2::timestamptz, $3::timestamptz, $4::int, $5::int, $6::int, $7::text, $8::jsonb))`,
    [...reading, isOther],
  )
  if (changed === 0) return
  const after = { ...readAs, lines, from, until, times_off_by_minutes, known, missing, absent: absent.length }
  await tx.query(
    `insert into audit_log (actor, via, action, subject, reason, after) values ($1, $2, 'read_log', 'log:' || $3, $4, $5)`,
    [by.actor, by.via, fileSha256, by.reason, { ...after, withdrawn: withdrawn.map(({ dedupe_key }) => dedupe_key) }],
  )
}
