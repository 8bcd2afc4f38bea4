import { Registry } from '@prometheus-io/client'

/** What one process has counted and measured, as it goes from process to process. */
export type Snapshot = Awaited<ReturnType<Registry['getMetricsAsJSON']>>
type Metric = Snapshot[number]

/** How a process that shares its port with others comes to the figures of all. */
export interface Siblings {
  /** Has this process answer whenever one of them asks, and once more when it ends. */
  tell(own: () => Promise<Snapshot>): void
  /** What all have counted, this process and the ended ones too. Rejects when one doesn't answer: a part is no answer. */
  ask(): Promise<Snapshot[]>
}

/** The text of several processes' figures as those of one. Counts and sizes add up; of the delays of the event loop the worst stands. */
export async function textOfAll(snapshots: readonly Snapshot[]): Promise<string> {
  return Registry.aggregate(snapshots.map((snapshot) => snapshot.map(addable))).metrics()
}

function addable(metric: Metric): Metric {
  const { name, values } = metric
  // A quantile of several processes can't be told from theirs.
  if (metric.type === 'summary') return { ...metric, values: values.filter(({ labels = {} }) => !('quantile' in labels)) }
  if (/^nodejs_eventloop_lag_(?!min_)/.test(name)) return { ...metric, aggregator: 'max' }
  if (name === 'process_start_time_seconds') return { ...metric, aggregator: 'min' }
  return metric
}

/** What of an ended process goes on counting, added to that of those that ended before: a counter that fell would read as a restart. */
export async function keepCounts(ended: Snapshot, last: Snapshot): Promise<Snapshot> {
  const counts = last.filter(({ type }) => type !== 'gauge')
  return Registry.aggregate([ended, counts.map(addable)]).getMetricsAsJSON()
}
