import type { Db } from '../db.ts'
import { ACK_BUCKETS_MS } from '../events/ack-buckets.ts'

// Read-only.

/** How long the answers 2xx of one stretch of time took. */
export interface AckPoint {
  /** When it begins. */
  at: Date
  acks: number
  /** Half of them, and 99 of 100, took at most so many milliseconds; Infinity beyond the widest bucket, null without any. */
  p50_ms: number | null
  p99_ms: number | null
}

/** Adds up the buckets of a stretch; unnesting each row would take five times as long. */
const SUMS = [...ACK_BUCKETS_MS, 0].map((_, index) => `sum(counts[${index + 1}])::float8`).join(', ')

/**
 * So many points from then until now, each with the quantiles of its stretch, as upper bounds; of all sources together, or of one. Whole
 * minutes are counted where they begin, so a stretch should be at least one.
 */
export async function ackQuantiles(
  db: Db,
  since: Date,
  points: number,
  { source = '', now = new Date() }: { source?: string; now?: Date } = {},
): Promise<AckPoint[]> {
  const width = (now.getTime() - since.getTime()) / points
  // `extract` would reckon in decimals, which takes a third of the time that the whole takes.
  const { rows } = await db.query<{ point: number; counts: number[] }>({
    name: 'ack-quantiles',
    text: `select floor(date_part('epoch', minute - $2) * 1000 / $4::float8)::int as point, array[${SUMS}] as counts
      from ack_minutes where source = $1 and minute >= $2 and minute < $3 group by 1`,
    values: [source, since, now, width],
  })
  const counted = new Map(rows.map(({ point, counts }) => [point, counts]))
  return Array.from({ length: points }, (_, index) => {
    const counts = counted.get(index) ?? []
    const acks = counts.reduce((sum, count) => sum + count, 0)
    const at = new Date(since.getTime() + index * width)
    return { at, acks, p50_ms: boundOf(counts, acks * 0.5), p99_ms: boundOf(counts, acks * 0.99) }
  })
}

/** The bound under which so many of the counted are. */
function boundOf(counts: readonly number[], wanted: number): number | null {
  if (counts.length === 0) return null
  let sum = 0
  const at = counts.findIndex((count) => {
    sum += count
    return sum >= wanted && sum > 0
  })
  return ACK_BUCKETS_MS[at] ?? Number.POSITIVE_INFINITY
}
