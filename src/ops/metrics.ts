import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client'
import type { Db } from '../db.ts'
import { ACK_BUCKETS_MS } from '../events/ack-buckets.ts'
import { type Siblings, textOfAll } from './joint-metrics.ts'
import { measureLevels } from './level-metrics.ts'
import { measureNode, measurePools, measureVersion, type Pools } from './process-metrics.ts'

export interface Metrics {
  acknowledged(source: string, result: string, seconds: number): void
  refused(source: string, cause: string): void
  /** One transaction of new events, and how many were in it. */
  batched(events: number): void
  /** So many more requests, and bytes of their bodies, are under way; fewer, where negative. */
  underWay(requests: number, bytes: number): void
  /** The text of /metrics; what stands in tables is counted now, over indexed open rows, and left out while the database is away. */
  text(db: Db): Promise<string>
  contentType: string
}

/** What the metrics of a `serve` are read from, beside what they are told. */
interface Readings {
  pools?: Pools
  /** Those that wait for their batch. */
  waiting?(): { requests: number; bytes: number }
  sendsPerMinute?: number
  /** The names of the sources that there are now. */
  sources?(): Iterable<string>
  /** With what the library tells of the process itself. */
  isWholeProcess?: boolean
  /** The others on the same port: each answers for all. */
  siblings?: Siblings | undefined
}

/** How a webhook request may be answered. */
const RESULTS = ['accepted', 'duplicate', 'quarantined', 'refused', 'not_recorded', 'overloaded', 'key_unavailable']
const BAD_BODIES = ['bad_body', 'broken_compression', 'body_too_large', 'unsupported_encoding', 'aborted']
/** Those of every provider; the others there are only where they have been seen. */
const CAUSES = ['missing_signature', 'malformed_signature', 'signature_mismatch']

/** The metrics of one `serve`. Labels are names from the configuration and results, never anything that a sender chose. */
export function createMetrics({
  pools = {},
  waiting,
  sendsPerMinute,
  sources,
  isWholeProcess,
  siblings,
}: Readings = {}): Metrics {
  const own = new Registry()
  const registers = [own]
  // What is the same whoever tells it.
  const common = new Registry()
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers })
  const acks = new Counter({
    name: 'oncehook_webhook_answers_total',
    help: 'Answers to webhook requests, by source and result.',
    labelNames: ['source', 'result'],
    registers,
    // From the start, so that the first burst is a rise, and not where a new series begins.
    collect() {
      for (const source of sources?.() ?? []) for (const result of [...RESULTS, ...BAD_BODIES]) this.inc({ source, result }, 0)
    },
  })
  const seconds = new Histogram({
    name: 'oncehook_webhook_answer_seconds',
    help: 'Seconds from the head of a webhook request to its answer.',
    buckets: ACK_BUCKETS_MS.map((ms) => ms / 1_000),
    registers,
  })
  const refusals = new Counter({
    name: 'oncehook_webhook_refusals_total',
    help: 'Webhook requests answered with 401, by source and cause.',
    labelNames: ['source', 'cause'],
    registers,
    collect() {
      for (const source of sources?.() ?? []) for (const cause of CAUSES) this.inc({ source, cause }, 0)
    },
  })
  const batches = new Histogram({
    name: 'oncehook_batch_events',
    help: 'Events of one transaction.',
    buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256, 1_024],
    registers,
  })
  const requests = gauge('oncehook_webhook_requests', 'Webhook requests that are not answered yet.')
  const bytes = gauge('oncehook_webhook_bytes', 'Bytes of bodies of webhook requests that are not answered yet, as announced.')
  new Gauge({
    name: 'oncehook_waiting_requests',
    help: 'Verified webhook requests that wait for the next transaction.',
    registers,
    collect() {
      this.set(waiting?.().requests ?? 0)
    },
  })
  new Gauge({
    name: 'oncehook_call_limit_per_minute',
    help: 'Calls of the email API that all workers together may make in a minute.',
    registers: [common],
  }).set(sendsPerMinute ?? 0)
  const levels = measureLevels(common)
  measureVersion(common)
  measurePools(own, pools)
  if (isWholeProcess) measureNode(own)
  siblings?.tell(() => own.getMetricsAsJSON())

  return {
    contentType: own.contentType,
    acknowledged(source, result, took) {
      acks.inc({ source, result })
      seconds.observe(took)
    },
    refused: (source, cause) => refusals.inc({ source, cause }),
    batched: (events) => batches.observe(events),
    underWay(more, moreBytes) {
      requests.inc(more)
      bytes.inc(moreBytes)
    },
    async text(db) {
      await levels.refresh(db)
      const counted = siblings ? await textOfAll(await siblings.ask()) : await own.metrics()
      return `${counted.trimEnd()}\n\n${await common.metrics()}`
    },
  }
}
