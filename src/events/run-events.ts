import type { Db } from '../db.ts'
import { findIdBounds, type IdBounds } from './id-bounds.ts'
import type { RunFilter } from './runs.ts'
import { SOURCES } from './sources-of-events.ts'

// How a run finds its events: each way follows one index in the order of the rows' numbers and stops when it has enough.

interface Found {
  id: string
  received_at: Date
}

/** Finds the events that match now, oldest first, `most` of them; and the time of the first one that is left out. */
export async function findEventsOfRun(
  db: Db,
  filter: RunFilter,
  most: number,
): Promise<{ ids: string[]; nextSince: Date | null }> {
  const bounds = await findIdBounds(db, filter.since, filter.until)
  let found = await find(db, filter, bounds, most + 1)
  if (found.length > most) {
    // Numbers are only nearly in the order of time: so many came until then, and so did the oldest so many.
    const last = Math.max(...found.map(({ received_at }) => received_at.getTime()))
    const { high } = await findIdBounds(db, undefined, new Date(last + 1))
    found = await find(db, filter, { ...bounds, high }, null)
  }
  return { ids: found.slice(0, most).map(({ id }) => id), nextSince: found[most]?.received_at ?? null }
}

async function find(db: Db, filter: RunFilter, { low, high }: IdBounds, limit: number | null): Promise<Found[]> {
  const { source, type, since, until, event_ids } = filter
  const status = [...new Set(filter.status)]
  // No name, so that it is planned for its own filters.
  const { rows } = await db.query<Found>(
    `with recursive ${SOURCES}, found as (
       select * from (${waysTo({ ...filter, status }).join(' union all ')}) ways order by id limit $9
     )
     select id, received_at from found order by received_at, id`,
    [source ?? null, type ?? null, status, since ?? null, until ?? null, event_ids ?? null, low, high, limit],
  )
  return rows
}

/** What is null isn't asked for, and is folded away when the statement is planned. */
const FILTERS = `($1::text is null or source = $1) and ($2::text is null or type = $2)
  and ($4::timestamptz is null or received_at >= $4) and ($5::timestamptz is null or received_at < $5)
  and ($6::text[] is null or event_id = any ($6)) and ($7::bigint is null or id >= $7) and ($8::bigint is null or id < $8)`
const WITH_ID = `id = any (array(select one.id from sources cross join lateral (
    select id from webhook_events where source = sources.source and event_id = any ($6)) one))`

/** Selects whose rows together hold what the filter wants. */
function waysTo({ source, type, status, event_ids }: RunFilter): string[] {
  const found = (where: string) =>
    `(select id, received_at from webhook_events where ${where} and ${FILTERS} order by id limit $9)`
  if (event_ids !== undefined) return [found(`${WITH_ID} and status = any ($3)`)]
  // These two are nearly all that there are.
  if (source === undefined && type === undefined && status.includes('processed') && status.includes('ignored'))
    return [found('status = any ($3)')]
  return status.map((one, index) => {
    const where = `status = ($3::text[])[${index + 1}]`
    const hasIndex = source !== undefined || (type === undefined && ['pending', 'failed', 'quarantined'].includes(one))
    if (hasIndex) return found(where)
    return `(select found.* from sources cross join lateral ${found(`source = sources.source and ${where}`)} found)`
  })
}
