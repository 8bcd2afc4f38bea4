/** Upper bounds, in milliseconds, that answers are counted under. Counts lie in the database by their place here: never change them. */
export const ACK_BUCKETS_MS = [1, 2, 3, 5, 7.5, 10, 15, 25, 50, 75, 100, 150, 250, 500, 750, 1_000, 2_500, 5_000] as const

/** One answer, as counts by bucket; the last one is for what took longer than all bounds. */
export function countsOf(seconds: number): number[] {
  const counts = Array<number>(ACK_BUCKETS_MS.length + 1).fill(0)
  const at = ACK_BUCKETS_MS.findIndex((bound) => seconds * 1_000 <= bound)
  counts[at < 0 ? ACK_BUCKETS_MS.length : at] = 1
  return counts
}
