import type pg from 'pg'
import { type Provider, requestOf, type WebhookRequest } from '../providers/provider.ts'
import { isSameEvent } from '../providers/read-events.ts'
import { type InsertStatements, insertEvents } from './insert.ts'
import {
  countBenignVariant,
  countRedeliveries,
  type Delivery,
  eventKey,
  findStoredRequest,
  type Held,
  type Item,
  keepConflict,
  type NewEvent,
  type RecordedEvent,
  recorded,
} from './store.ts'

/** An item that was not inserted: its event is stored already. */
type Repeat = Item & { provider: Provider }

/** What became of each repeat, and the deliveries for which that could not be told. */
export interface Repeats {
  found: ReadonlyMap<NewEvent, RecordedEvent>
  failed: ReadonlyMap<Delivery, unknown>
}

/**
 * Statements of their own after the insert, which doesn't see a row that another transaction has just committed: they count the
 * redeliveries and keep what came with other content.
 */
export async function recordRepeats(pool: pg.Pool, statements: InsertStatements, repeats: readonly Repeat[]): Promise<Repeats> {
  try {
    return await recordHeld(pool, statements, repeats, await countRedeliveries(pool, repeats))
  } catch (error) {
    return { found: new Map(), failed: new Map(repeats.map(({ delivery }) => [delivery, error])) }
  }
}

/** The same for repeats whose held rows are known and counted. */
export async function recordHeld(
  pool: pg.Pool,
  statements: InsertStatements,
  repeats: readonly Repeat[],
  held: readonly (Held | undefined)[],
): Promise<Repeats> {
  const found = new Map<NewEvent, RecordedEvent>()
  const failed = new Map<Delivery, unknown>()
  const findFirst = firstFinder(pool)
  for (const [index, item] of repeats.entries()) {
    const { delivery, event } = item
    const stored = held[index]
    if (failed.has(delivery)) continue
    try {
      if (!stored) throw new Error('an event was neither inserted nor found')
      const isSame = stored.body_sha256.equals(delivery.sha256) || isSameContent(item, stored, await findFirst(item, stored))
      if (isSame || stored.is_again) {
        found.set(event, recorded(event, 'duplicate'))
        await noteDifference(pool, item, stored, isSame)
      } else found.set(event, await recordFurther(pool, statements, item))
    } catch (error) {
      failed.set(delivery, error)
    }
  }
  return { found, failed }
}

async function noteDifference(pool: pg.Pool, { delivery, event }: Repeat, stored: Held, isSame: boolean): Promise<void> {
  if (stored.body_sha256.equals(delivery.sha256)) {
    // A type that isn't signed: whoever got in first may have made it up, and must not silence the real one unseen.
    if (stored.type !== event.type) await keepConflict(pool, stored.id, delivery)
  } else if (!isSame) await keepConflict(pool, stored.id, delivery)
  // Several events that are grouped anew are no variant of any of them.
  else if (delivery.events.length === 1) await countBenignVariant(pool, delivery.source, stored.id, !stored.is_again)
}

/**
 * An event of its own, under the held ID and its body's hash: the facts of one email that has several such events add up, and what
 * was made up doesn't hold back what is real. What was signed once only is none, and kept as a conflict.
 */
async function recordFurther(
  pool: pg.Pool,
  statements: InsertStatements,
  { delivery, event, provider }: Repeat,
): Promise<RecordedEvent> {
  const further = { ...event, id: `${event.id}:${delivery.sha256.toString('hex')}` }
  const item = { delivery: { ...delivery, events: [further] }, event: further, provider }
  const inserted = await insertEvents(pool, statements, [item])
  if (inserted.size > 0) return recorded(further, 'accepted')
  const [held] = await countRedeliveries(pool, [item])
  if (held) await noteDifference(pool, item, held, false)
  return recorded(further, 'duplicate')
}

/** Reads the stored request of a row; the last one is kept, as a POST of many events meets the same one again and again. */
function firstFinder(pool: pg.Pool): (item: Item, held: Held) => Promise<WebhookRequest | undefined> {
  let last: { name: string; request: WebhookRequest | undefined } | undefined
  return async ({ delivery }, { id, body_sha256 }) => {
    const name = eventKey(delivery.source, body_sha256.toString('hex'))
    if (last?.name !== name) {
      const stored = await findStoredRequest(pool, id)
      last = { name, request: stored?.body ? requestOf(stored.headers, stored.body) : undefined }
    }
    return last.request
  }
}

function isSameContent({ delivery, event, provider }: Repeat, { is_again }: Held, first: WebhookRequest | undefined): boolean {
  // Emptied by retention, nothing is left to compare with. A redelivery after so long is no news, but a further event is.
  if (!first) return is_again
  return isSameEvent(provider, first, requestOf(delivery.headers, delivery.body), event.id)
}
