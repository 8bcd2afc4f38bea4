/** Upper bounds, in milliseconds, that answers are counted under. Counts lie in the database by their place here: never change them. */
export const ACK_BUCKETS_MS = [1, 2, 3, 5, 7.5, 10, 15, 25, 50, 75, 100, 150, 250, 500, 750, 1_000, 2_500, 5_000] as const

/** The place of the bucket that an answer counts in; the last one is for what took longer than all bounds. */
export function bucketOf(seconds: number): number {
  const at = ACK_BUCKETS_MS.findIndex((bound) => seconds * 1_000 <= bound)
  return at < 0 ? ACK_BUCKETS_MS.length : at
}
