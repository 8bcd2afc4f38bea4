import type { Db } from '../db.ts'
import { ACK_BUCKETS_MS } from '../events/ack-buckets.ts'
import { ackQuantiles } from './ack-times.ts'

// Read-only.

export const ranges = { '1h': 3_600_000, '24h': 86_400_000, '7d': 604_800_000 } as const
export type Range = keyof typeof ranges
const POINTS = 60

/** One stretch of time; null is a gap: no process reported, or there is nothing to take a share of. */
export interface Point {
  /** When it begins. */
  at: Date
  /** Requests with an event that was new. */
  events_per_second: number | null
  /** At most so long took 99 of 100 acknowledgements; 10,000 stands for more than 5 s. */
  ack_p99_ms: number | null
  duplicates_percent: number | null
  unknown_percent: number | null
}

export interface Series {
  range: Range
  /** The length of a stretch. */
  seconds: number
  points: Point[]
  /** Of the whole range: redeliveries, and calls of the email API with those whose outcome is unknown. */
  duplicates: number
  unknown: number
  calls: number
}

interface Answered {
  at: Date
  fresh: number
  duplicates: number
}

interface Called {
  at: Date
  calls: number
  unknown: number
}

const BEYOND_BUCKETS_MS = 2 * Math.max(...ACK_BUCKETS_MS)

/** 60 points of the range until the last whole minute. */
export async function findSeries(db: Db, range: Range): Promise<Series> {
  const ms = ranges[range]
  const { rows: clock } = await db.query<{ until: Date }>(`select date_trunc('minute', now()) as until`)
  const until = clock[0]?.until ?? new Date()
  const since = new Date(until.getTime() - ms)
  const width = ms / POINTS
  const values = [since, until, width]
  // Reckoned with as whole stretches: the number of each row's own would take longer than to find the rows.
  const stretch = (time: string) => `date_bin($3::float8 * interval '1 ms', ${time}, $1::timestamptz) as at`
  const { rows: answered } = await db.query<Answered>(
    `select ${stretch('minute')}, coalesce(sum(count) filter (where outcome in ('accepted', 'quarantined')), 0)::float8 as fresh,
       coalesce(sum(count) filter (where outcome = 'duplicate'), 0)::float8 as duplicates
     from source_minutes where minute >= $1 and minute < $2 group by 1`,
    values,
  )
  const { rows: called } = await db.query<Called>(
    `select ${stretch('claimed_at')}, count(*)::int as calls, count(*) filter (where outcome = 'unknown')::int as unknown
     from send_attempts where claimed_at >= $1 and claimed_at < $2 and outcome in ('accepted', 'refused', 'unknown') group by 1`,
    values,
  )
  const { rows: lives } = await db.query<{ from: Date; to: Date }>(
    `select started_at as from, seen_at as to from processes where kind = 'serve' and seen_at >= $1 limit 1000`,
    [since],
  )
  const acks = await ackQuantiles(db, since, POINTS, { now: until })
  const answers = new Map(answered.map((row) => [row.at.getTime(), row]))
  const calls = new Map(called.map((row) => [row.at.getTime(), row]))
  const points = Array.from({ length: POINTS }, (_, index): Point => {
    const at = new Date(since.getTime() + index * width)
    const end = new Date(at.getTime() + width)
    const answer = answers.get(at.getTime())
    const call = calls.get(at.getTime())
    // Nothing was counted: either nothing came, as far as a process is known to have run then, or nobody was there to count.
    const hasRun = lives.some(({ from, to }) => from < end && to >= at)
    return {
      at,
      events_per_second: answer ? answer.fresh / (width / 1_000) : hasRun ? 0 : null,
      ack_p99_ms: finite(acks[index]?.p99_ms ?? null),
      duplicates_percent: answer ? percent(answer.duplicates, answer.fresh + answer.duplicates) : null,
      unknown_percent: call ? percent(call.unknown, call.calls) : null,
    }
  })
  const sum = <Row>(rows: readonly Row[], value: (row: Row) => number) => rows.reduce((total, row) => total + value(row), 0)
  return {
    range,
    seconds: width / 1_000,
    points,
    duplicates: sum(answered, (row) => row.duplicates),
    unknown: sum(called, (row) => row.unknown),
    calls: sum(called, (row) => row.calls),
  }
}

const percent = (part: number, whole: number) => (whole === 0 ? null : (100 * part) / whole)
const finite = (ms: number | null) => (ms === null || Number.isFinite(ms) ? ms : BEYOND_BUCKETS_MS)
