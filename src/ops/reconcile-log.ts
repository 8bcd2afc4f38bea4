import type pg from 'pg'
import { CsvError } from '../sends/csv.ts'
import type { Coverage } from '../sends/log-coverage.ts'
import { readSendingLog } from '../sends/log-file.ts'
import { type LineFinding, reconcile } from '../sends/reconcile.ts'
import { type LogField, logFields } from '../sends/sending-log.ts'
import { durationText } from './words.ts'

/** What a sending log told, and what was done, or would be, by it. */
export interface ReconciledLog {
  file_sha256: string
  /** Whether it was done; else it is what would be. */
  applied: boolean
  /** The column that each field was read from. */
  columns: Record<LogField, string | null>
  summary: Record<LineFinding['outcome'], number>
  coverage: Coverage
  lines: LineFinding[]
}

export interface LogRequest {
  columns: Partial<Record<LogField, string>>
  zone: string
  by: { actor: string; via: string; reason: string } | undefined
  /** Tells who reads it in how to name a column that can't be found. */
  howToName?: (field: LogField) => string
  /** Once the whole file is read, before anything is done by it. */
  onRead?: (read: { columns: ReconciledLog['columns']; lines: number }) => void
  onProgress?: (done: number, of: number) => void
}

/** Reads a whole sending log and settles by it; without `by` it only says what it would do. What a hook throws ends it between two decisions. */
export async function reconcileLog(
  { pool, isExclusive }: { pool: pg.Pool; isExclusive(): boolean },
  chunks: AsyncIterable<Uint8Array>,
  { columns: given, zone, by, howToName, onRead, onProgress }: LogRequest,
): Promise<ReconciledLog | { problem: string }> {
  const log = await readSendingLog(chunks, given, zone, howToName).catch((error: unknown) => {
    if (error instanceof CsvError) return { problem: error.message }
    throw error
  })
  if ('problem' in log) return log
  const nameOf = (field: LogField) => log.header[log.columns[field] ?? -1] ?? null
  const columns = Object.fromEntries(logFields.map((field) => [field, nameOf(field)])) as Record<LogField, string | null> // of all fields
  onRead?.({ columns, lines: log.lines.length })
  const { lines, coverage } = await reconcile(
    { pool, fileSha256: log.sha256, readAs: { zone, columns }, isExclusive: isExclusive(), by, onProgress },
    log.lines,
  )
  const count = (outcome: LineFinding['outcome']) => lines.filter((line) => line.outcome === outcome).length
  return {
    file_sha256: log.sha256,
    applied: by !== undefined,
    columns,
    summary: {
      settles: count('settles'),
      adds: count('adds'),
      known: count('known'),
      look: count('look'),
      nothing: count('nothing'),
    },
    coverage,
    lines,
  }
}

/** What people are told of a log whose times are off. */
export function timesOffText(minutes: number): string {
  const off = Math.abs(minutes)
  return `the times are off by about ${durationText(off * 60_000)}, so none of them is used${off < 30 ? '' : ': give the zone'}`
}
