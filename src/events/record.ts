import type pg from 'pg'
import type { Provider } from '../providers/provider.ts'
import { NotRecorded, recordBatch, recordStorm, type Waiting } from './batch.ts'
import { insertStatements } from './insert.ts'
import type { Delivery, RecordedEvent } from './store.ts'

export interface Recorder {
  /** Resolves when the events are committed. Rejects with NotRecorded when they may not be. */
  record(delivery: Delivery, provider: Provider): Promise<RecordedEvent[]>
  /** For how many milliseconds the oldest delivery has been waiting for its commit; 0 without one. */
  delayMs(): number
}

/** Those that wait for a batch, now. */
export interface Waiters {
  requests: number
  bytes: number
}

const MOST_EVENTS_IN_BATCH = 128
const MOST_BYTES_IN_BATCH = 512 * 1024
const SECOND_BATCH_FROM = 64
const SMALLEST_STORM = 8
const LONGEST_WAIT_MS = 1_000
const MOST_WAITING = 2_000
const MOST_BYTES_WAITING = 64 * 1024 * 1024

/**
 * Records deliveries, the concurrent ones in one shared transaction: while a batch is being committed, the next gathers. No
 * timer holds back a lone one. Waiting is bounded in time, count and bytes. `onBatch` is told of each transaction.
 */
export function createRecorder(
  pool: pg.Pool,
  jobs: { eventJobsInsert: string; wake: string },
  onBatch: (events: number) => void = () => undefined,
): Recorder & { waiting(): Waiters } {
  const statements = insertStatements(jobs.eventJobsInsert, jobs.wake)
  const waiting: Waiting[] = []
  let waitingBytes = 0
  let isStorm = false
  /** When the oldest of each batch under way came. */
  const batches = new Set<{ since: number }>()
  let _watch: NodeJS.Timeout | undefined

  const isMuch = () => waiting.length >= SECOND_BATCH_FROM || waitingBytes >= MOST_BYTES_IN_BATCH
  const start = () => {
    while (waiting.length > 0 && (batches.size === 0 || (batches.size === 1 && isMuch()))) {
      const oldest = { since: waiting[0]?.since ?? 0 }
      const batch = takeBatch()
      onBatch(batch.reduce((sum, { delivery }) => sum + delivery.events.length, 0))
      batches.add(oldest)
      // A sender that delivers a lot again, as after an outage, goes on with it: what was all held once is looked for first.
      const record = isStorm && batch.every(({ delivery }) => delivery.events.length === 1) ? recordStorm : recordBatch
      void record(pool, statements, batch)
        .then(({ repeats }) => {
          if (repeats < batch.length) isStorm = false
          else if (batch.length >= SMALLEST_STORM) isStorm = true
        })
        .finally(() => {
          batches.delete(oldest)
          start()
        })
    }
  }

  let isPlanned = false
  // What comes in the same turn of the event loop goes together.
  const startSoon = () => {
    if (isPlanned) return
    isPlanned = true
    setImmediate(() => {
      isPlanned = false
      start()
    })
  }

  const takeBatch = (): Waiting[] => {
    let events = 0
    let bytes = 0
    let count = 0
    for (const { delivery } of waiting) {
      events += delivery.events.length
      bytes += delivery.body.length
      if (count > 0 && (events > MOST_EVENTS_IN_BATCH || bytes > MOST_BYTES_IN_BATCH)) break
      count += 1
    }
    const batch = waiting.splice(0, count)
    for (const { delivery } of batch) waitingBytes -= delivery.body.length
    return batch
  }

  // Only what waits behind a slow batch can become too old, so the watch runs no longer than that.
  const refuseOld = () => {
    const now = performance.now()
    while (waiting[0] && now - waiting[0].since > LONGEST_WAIT_MS) {
      const old = waiting.shift()
      waitingBytes -= old?.delivery.body.length ?? 0
      old?.reject(new NotRecorded('waited too long for storage'))
    }
    _watch = waiting.length > 0 ? setTimeout(refuseOld, 100) : undefined
  }

  return {
    waiting: () => ({ requests: waiting.length, bytes: waitingBytes }),
    record: (delivery, provider) =>
      new Promise((resolve, reject) => {
        if (waiting.length >= MOST_WAITING || waitingBytes + delivery.body.length > MOST_BYTES_WAITING) {
          reject(new NotRecorded('too much is waiting'))
          return
        }
        waiting.push({ delivery, provider, since: performance.now(), resolve, reject })
        waitingBytes += delivery.body.length
        if (isMuch()) start()
        else startSoon()
        if (waiting.length > 0) _watch ??= setTimeout(refuseOld, 100)
      }),
    delayMs() {
      const times = [...batches, ...waiting.slice(0, 1)].map(({ since }) => since)
      return times.length === 0 ? 0 : performance.now() - Math.min(...times)
    },
  }
}
