import { Counter, Histogram, Registry } from '@prometheus-io/client'
import type { CallOutcome } from '../sends/outcome.ts'
import { measureNode, measurePools, measureVersion, type Pools } from './process-metrics.ts'

export interface WorkerMetrics {
  /** One call of the email API has ended. */
  called(outcome: CallOutcome['kind'], seconds: number): void
  /** Calls of workers that died: claims that never got to the call, and calls whose answer nobody knows. */
  left(found: { staleClaims: number; staleCalls: number }): void
  text(): Promise<string>
  contentType: string
}

/** The metrics of one worker: what it alone knows. What stands in the tables every `serve` tells. */
export function createWorkerMetrics({
  pools = {},
  isWholeProcess,
}: {
  pools?: Pools
  isWholeProcess?: boolean
} = {}): WorkerMetrics {
  const registry = new Registry()
  const registers = [registry]
  const calls = new Counter({
    name: 'oncehook_email_calls_total',
    help: 'Calls of the email API, by outcome; never_called are claims of dead workers that never got to their call.',
    labelNames: ['outcome'],
    registers,
  })
  // From the start, so that a rate over them doesn't lack the first one.
  for (const outcome of ['accepted', 'refused', 'rate_limited', 'not_sent', 'unknown', 'never_called']) calls.inc({ outcome }, 0)
  const seconds = new Histogram({
    name: 'oncehook_email_call_seconds',
    help: 'Seconds of a call of the email API.',
    buckets: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120],
    registers,
  })
  measureVersion(registry)
  measurePools(registry, pools)
  if (isWholeProcess) measureNode(registry)
  return {
    contentType: registry.contentType,
    called(outcome, took) {
      calls.inc({ outcome })
      seconds.observe(took)
    },
    left({ staleClaims, staleCalls }) {
      calls.inc({ outcome: 'never_called' }, staleClaims)
      calls.inc({ outcome: 'unknown' }, staleCalls)
    },
    text: () => registry.metrics(),
  }
}
