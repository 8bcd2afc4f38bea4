import type pg from 'pg'
import { isStorageAway } from '../db.ts'
import { type Provider, requestOf } from '../providers/provider.ts'
import { isSameEvent } from '../providers/read-events.ts'
import {
  countBenignVariant,
  countRedeliveries,
  type Delivery,
  eventKey,
  findStoredRequest,
  type Held,
  type Item,
  insertEvents,
  insertStatement,
  keepConflict,
} from './store.ts'

/** What became of one event of a delivery. */
export interface RecordedEvent {
  id: string
  type: string | null
  status: 'accepted' | 'duplicate' | 'quarantined'
}

/** Nothing was acknowledged: the provider has to deliver again. */
export class NotRecorded extends Error {
  override name = 'NotRecorded'
}

export interface Recorder {
  /** Resolves when the events are committed. Rejects with NotRecorded when they may not be. */
  record(delivery: Delivery, provider: Provider): Promise<RecordedEvent[]>
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
  let batches = 0
  let watch: NodeJS.Timeout | undefined

  const start = () => {
    while (waiting.length > 0 && (batches === 0 || (batches === 1 && waiting.length >= SECOND_BATCH_FROM))) {
      const batch = takeBatch()
      batches += 1
      void recordBatch(pool, statement, batch).finally(() => {
        batches -= 1
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
    watch = waiting.length > 0 ? setTimeout(refuseOld, 100) : undefined
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
        if (waiting.length > 0) watch ??= setTimeout(refuseOld, 100)
      }),
  }
}

async function recordBatch(pool: pg.Pool, statement: string, batch: readonly Waiting[]): Promise<void> {
  let results: RecordedEvent[][]
  try {
    results = await recordDeliveries(pool, statement, batch)
  } catch (error) {
    // A refusal by the database may be one delivery's fault. A broken connection leaves the commit in doubt, and all of them.
    if (batch.length > 1 && !isStorageAway(error)) {
      for (const one of batch) await recordBatch(pool, statement, [one])
      return
    }
    for (const { reject } of batch) reject(new NotRecorded('storage did not take it', { cause: error }))
    return
  }
  batch.forEach(({ resolve }, index) => {
    resolve(results[index] ?? [])
  })
}

async function recordDeliveries(
  pool: pg.Pool,
  statement: string,
  batch: readonly Pick<Waiting, 'delivery' | 'provider'>[],
): Promise<RecordedEvent[][]> {
  const all = batch.flatMap(({ delivery }) => delivery.events.map((event): Item => ({ delivery, event })))
  const firsts = new Map<string, Item>()
  for (const item of all) {
    const name = eventKey(item.delivery.source, item.event.id)
    if (!firsts.has(name)) firsts.set(name, item)
  }

  const inserted = await insertEvents(pool, statement, [...firsts.values()])
  const isNew = (item: Item) => {
    const name = eventKey(item.delivery.source, item.event.id)
    return firsts.get(name) === item && inserted.has(name)
  }
  const repeats = all.filter((item) => !isNew(item))
  const further =
    repeats.length === 0
      ? new Set<Item>()
      : await recordRepeats(pool, statement, repeats, new Map(batch.map((it) => [it.delivery, it.provider])))

  return batch.map(({ delivery }) =>
    all
      .filter((item) => item.delivery === delivery)
      .map((item) => ({
        id: item.event.id,
        type: item.event.type,
        status:
          !isNew(item) && !further.has(item) ? 'duplicate' : item.event.status === 'quarantined' ? 'quarantined' : 'accepted',
      })),
  )
}

/**
 * A statement of its own after the insert, which doesn't see a row that another transaction has just committed: counts the
 * redeliveries and keeps what came with other content. Answers the items that are further events after all.
 */
async function recordRepeats(
  pool: pg.Pool,
  statement: string,
  repeats: readonly Item[],
  providers: ReadonlyMap<Delivery, Provider>,
): Promise<Set<Item>> {
  const further = new Set<Item>()
  const held = await countRedeliveries(pool, repeats)
  for (const [index, item] of repeats.entries()) {
    const stored = held[index]
    const provider = providers.get(item.delivery)
    if (!stored || !provider) throw new Error('an event was neither inserted nor found')
    if (stored.body_sha256.equals(item.delivery.sha256)) continue
    if (await isSameContent(pool, provider, stored, item)) {
      if (item.delivery.events.length === 1) await countBenignVariant(pool, stored.id)
    } else if (provider.otherBodyIsFurtherEvent) {
      const id = `${item.event.id}:${item.delivery.sha256.toString('hex')}`
      const [recorded] = await recordDeliveries(pool, statement, [
        {
          delivery: { ...item.delivery, events: [{ ...item.event, id }] },
          provider: { ...provider, otherBodyIsFurtherEvent: false },
        },
      ])
      if (recorded?.[0]?.status === 'accepted') further.add(item)
    } else {
      await keepConflict(pool, stored.id, item.delivery)
    }
  }
  return further
}

async function isSameContent(pool: pg.Pool, provider: Provider, stored: Held, item: Item): Promise<boolean> {
  const first = await findStoredRequest(pool, stored.id)
  // Emptied by retention: nothing is left to compare with, and a redelivery after so long is no news.
  if (!first?.body) return true
  return isSameEvent(
    provider,
    requestOf(first.headers, first.body),
    requestOf(item.delivery.headers, item.delivery.body),
    item.event.id,
  )
}
