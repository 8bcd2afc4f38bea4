/** The value below which this share of the sorted values lies; NaN of none. */
export function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

export interface Summary {
  median: number
  /** The quarters above and below the median: half of all rounds lie between. */
  low: number
  high: number
}

/** The median of some rounds and how far they spread. */
export function summary(values: readonly number[]): Summary {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b)
  const middle = sorted.length / 2
  const median =
    sorted.length % 2 === 1
      ? sorted[Math.floor(middle)]
      : ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2
  return { median: median ?? Number.NaN, low: quantile(sorted, 0.25), high: quantile(sorted, 0.75) }
}
