import type pg from 'pg'
import { isStorageAway } from '../db.ts'
import type { Provider } from '../providers/provider.ts'
import { recordRepeats } from './repeats.ts'
import { type Delivery, eventKey, type Item, insertEvents, insertStatement, type RecordedEvent, recorded } from './store.ts'

/** Nothing was acknowledged: the provider has to deliver again. */
export class NotRecorded extends Error {
  override name = 'NotRecorded'
}

export interface Recorder {
  /** Resolves when the events are committed. Rejects with NotRecorded when they may not be. */
  record(delivery: Delivery, provider: Provider): Promise<RecordedEvent[]>
  /** For how many milliseconds the oldest delivery has been waiting for its commit; 0 without one. */
  delayMs(): number
}

interface Waiting {
  delivery: Delivery
  provider: Provider
  since: number
  resolve(events: RecordedEvent[]): void
  reject(error: Error): void
}

const MOST_EVENTS_IN_BATCH = 128
const MOST_BYTES_IN_BATCH = 512 * 1024
const SECOND_BATCH_FROM = 64
const LONGEST_WAIT_MS = 1_000
const MOST_WAITING = 2_000
const MOST_BYTES_WAITING = 64 * 1024 * 1024

/**
 * Records deliveries, the concurrent ones in one shared transaction: while a batch is being committed, the next gathers. No
 * timer holds back a lone one. Waiting is bounded in time, count and bytes.
 */
export function createRecorder(pool: pg.Pool, jobs: { eventJobsInsert: string; wake: string }): Recorder {
  const statement = insertStatement(jobs.eventJobsInsert, jobs.wake)
  const waiting: Waiting[] = []
  let waitingBytes = 0
  /** When the oldest of each batch under way came. */
  const batches = new Set<{ since: number }>()
  let _watch: NodeJS.Timeout | undefined

  const start = () => {
    const isMuch = () => waiting.length >= SECOND_BATCH_FROM || waitingBytes >= MOST_BYTES_IN_BATCH
    while (waiting.length > 0 && (batches.size === 0 || (batches.size === 1 && isMuch()))) {
      const [oldest = { since: 0 }] = waiting
      const batch = takeBatch()
      batches.add(oldest)
      void recordBatch(pool, statement, batch).finally(() => {
        batches.delete(oldest)
        start()
      })
    }
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
    record: (delivery, provider) =>
      new Promise((resolve, reject) => {
        if (waiting.length >= MOST_WAITING || waitingBytes + delivery.body.length > MOST_BYTES_WAITING) {
          reject(new NotRecorded('too much is waiting'))
          return
        }
        waiting.push({ delivery, provider, since: performance.now(), resolve, reject })
        waitingBytes += delivery.body.length
        start()
        if (waiting.length > 0) _watch ??= setTimeout(refuseOld, 100)
      }),
    delayMs() {
      const times = [...batches, ...waiting.slice(0, 1)].map(({ since }) => since)
      return times.length === 0 ? 0 : performance.now() - Math.min(...times)
    },
  }
}

/** Answers why storage is away, if it is; each delivery gets its own answer. */
async function recordBatch(pool: pg.Pool, statement: string, batch: readonly Waiting[]): Promise<NotRecorded | undefined> {
  const refuse = (refused: readonly Waiting[], cause: unknown) => {
    const error = new NotRecorded('storage did not take it', { cause })
    for (const { reject } of refused) reject(error)
    return isStorageAway(cause) ? error : undefined
  }
  const all = batch.flatMap(({ delivery, provider }) => delivery.events.map((event) => ({ delivery, event, provider })))
  const firsts = new Map<string, Item>()
  for (const item of all) {
    const name = eventKey(item.delivery.source, item.event.id)
    if (!firsts.has(name)) firsts.set(name, item)
  }

  let inserted: Set<string>
  try {
    inserted = await insertEvents(pool, statement, [...firsts.values()])
  } catch (error) {
    // One delivery may be to blame for a refusal, and nobody for a deadlock: both are surely rolled back. A broken connection
    // leaves the commit in doubt, and all of them.
    if (batch.length > 1 && (isDeadlock(error) || !isStorageAway(error))) return recordOneByOne(pool, statement, batch)
    return refuse(batch, error)
  }

  const isNew = (item: Item) => {
    const name = eventKey(item.delivery.source, item.event.id)
    return firsts.get(name) === item && inserted.has(name)
  }
  const repeats = all.filter((item) => !isNew(item))
  const repeated = new Set(repeats.map(({ delivery }) => delivery))
  // What is new is committed by now, so that nothing that goes wrong with a repeat may be told of another delivery.
  for (const { delivery, resolve } of batch)
    if (!repeated.has(delivery)) resolve(delivery.events.map((event) => recorded(event, 'accepted')))
  if (repeats.length === 0) return undefined
  const { found, failed } = await recordRepeats(pool, statement, repeats)
  for (const one of batch.filter(({ delivery }) => repeated.has(delivery))) {
    const { delivery, resolve } = one
    if (failed.has(delivery)) refuse([one], failed.get(delivery))
    else resolve(delivery.events.map((event) => found.get(event) ?? recorded(event, 'accepted')))
  }
  return undefined
}

async function recordOneByOne(pool: pg.Pool, statement: string, batch: readonly Waiting[]): Promise<NotRecorded | undefined> {
  let away: NotRecorded | undefined
  for (const one of batch) {
    if (away) one.reject(away)
    else away = await recordBatch(pool, statement, [one])
  }
  return away
}

const isDeadlock = (error: unknown) => error instanceof Error && (error as { code?: unknown }).code === '40P01'
