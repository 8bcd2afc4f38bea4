/** Finds the longest time without an ack among those that come after a moment: the outage that begins there. */
export function watchForOutage(from: number): { acked(at: number): void; secondsUntilBack(until: number): number } {
  let lastAt = from
  let longest = 0
  let endedAt = Number.NaN
  return {
    acked(at) {
      if (at < from) return
      if (at - lastAt > longest) {
        longest = at - lastAt
        endedAt = at
      }
      lastAt = at
    },
    // One that is longer still hasn't ended.
    secondsUntilBack: (until) => (until - lastAt > longest ? Number.NaN : (endedAt - from) / 1000),
  }
}
