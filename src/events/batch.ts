import type pg from 'pg'
import { isStorageAway } from '../db.ts'
import type { Provider } from '../providers/provider.ts'
import { type InsertStatements, insertEvents } from './insert.ts'
import { type Repeats, recordHeld, recordRepeats } from './repeats.ts'
import { countRedeliveries, type Delivery, eventKey, type Item, type RecordedEvent, recorded } from './store.ts'

/** Nothing was acknowledged: the provider has to deliver again. */
export class NotRecorded extends Error {
  override name = 'NotRecorded'
}

/** A delivery that waits for its answer. */
export interface Waiting {
  delivery: Delivery
  provider: Provider
  since: number
  resolve(events: RecordedEvent[]): void
  reject(error: Error): void
}

/** How many deliveries of a batch were repeats of what is stored, and why storage is away, if it is. */
interface Outcome {
  repeats: number
  away?: NotRecorded
}

function refuse(refused: readonly Waiting[], cause: unknown): Outcome {
  const error = new NotRecorded('storage did not take it', { cause })
  for (const { reject } of refused) reject(error)
  return { repeats: 0, ...(isStorageAway(cause) && { away: error }) }
}

const itemsOf = (batch: readonly Waiting[]) =>
  batch.flatMap(({ delivery, provider }) => delivery.events.map((event) => ({ delivery, event, provider })))

/**
 * A batch in which all is likely to be held: counts the redeliveries without the insert that would tell nothing new, in half the
 * statements. What turns out not to be held is recorded as ever. For deliveries of one event each.
 */
export async function recordStorm(pool: pg.Pool, statements: InsertStatements, batch: readonly Waiting[]): Promise<Outcome> {
  let held: Awaited<ReturnType<typeof countRedeliveries>>
  const items = itemsOf(batch)
  try {
    held = await countRedeliveries(pool, items)
  } catch (error) {
    return isStorageAway(error) && !isDeadlock(error) ? refuse(batch, error) : recordBatch(pool, statements, batch)
  }
  const fresh = batch.filter((_, index) => !held[index])
  const repeats = batch.filter((_, index) => held[index])
  answerRepeats(
    repeats,
    await recordHeld(
      pool,
      statements,
      items.filter((_, index) => held[index]),
      held.filter((it) => it !== undefined),
    ),
  )
  if (fresh.length > 0) await recordBatch(pool, statements, fresh)
  return { repeats: repeats.length }
}

function answerRepeats(repeated: readonly Waiting[], { found, failed }: Repeats): void {
  for (const one of repeated) {
    const { delivery, resolve } = one
    if (failed.has(delivery)) refuse([one], failed.get(delivery))
    else resolve(delivery.events.map((event) => found.get(event) ?? recorded(event, 'accepted')))
  }
}

/** Each delivery gets its own answer. */
export async function recordBatch(pool: pg.Pool, statements: InsertStatements, batch: readonly Waiting[]): Promise<Outcome> {
  const all = itemsOf(batch)
  const firsts = new Map<string, Item>()
  for (const item of all) {
    const name = eventKey(item.delivery.source, item.event.id)
    if (!firsts.has(name)) firsts.set(name, item)
  }

  let inserted: Set<string>
  try {
    inserted = await insertEvents(pool, statements, [...firsts.values()])
  } catch (error) {
    // One delivery may be to blame for a refusal, and nobody for a deadlock: both are surely rolled back. A broken connection
    // leaves the commit in doubt, and all of them.
    if (batch.length > 1 && (isDeadlock(error) || !isStorageAway(error))) return recordOneByOne(pool, statements, batch)
    return refuse(batch, error)
  }

  const isNew = (item: Item) => {
    const name = eventKey(item.delivery.source, item.event.id)
    return firsts.get(name) === item && inserted.has(name)
  }
  const repeats = inserted.size === all.length ? [] : all.filter((item) => !isNew(item))
  const repeated = new Set(repeats.map(({ delivery }) => delivery))
  // What is new is committed by now, so that nothing that goes wrong with a repeat may be told of another delivery.
  for (const { delivery, resolve } of batch)
    if (!repeated.has(delivery)) resolve(delivery.events.map((event) => recorded(event, 'accepted')))
  if (repeats.length === 0) return { repeats: 0 }
  answerRepeats(
    batch.filter(({ delivery }) => repeated.has(delivery)),
    await recordRepeats(pool, statements, repeats),
  )
  return { repeats: repeated.size }
}

async function recordOneByOne(pool: pg.Pool, statements: InsertStatements, batch: readonly Waiting[]): Promise<Outcome> {
  let away: NotRecorded | undefined
  for (const one of batch) {
    if (away) one.reject(away)
    else away = (await recordBatch(pool, statements, [one])).away
  }
  return { repeats: 0, ...(away && { away }) }
}

const isDeadlock = (error: unknown) => error instanceof Error && (error as { code?: unknown }).code === '40P01'
