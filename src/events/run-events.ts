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

async function find(db: Db, filter: RunFilter, bounds: IdBounds, limit: number | null): Promise<Found[]> {
  const { text, values } = statementOf(filter, bounds, limit)
  // No name, so that it is planned for its own filters.
  return (await db.query<Found>(text, values)).rows
}

function statementOf(
  { source, type, status, since, until, event_ids }: RunFilter,
  { low, high }: IdBounds,
  limit: number | null,
): { text: string; values: unknown[] } {
  const values: unknown[] = []
  const given = (value: unknown, sqlType: string) => `$${values.push(value)}::${sqlType}`
  const statuses = [...new Set(status)]
  const [least, most] = [given(low ?? '0', 'bigint'), given(high ?? GREATEST_ID, 'bigint')]
  const end = `limit ${given(limit, 'bigint')}`
  const times = [
    since && `and received_at >= ${given(since, 'timestamptz')}`,
    until && `and received_at < ${given(until, 'timestamptz')}`,
  ]
  const found = (where: string, order: string) =>
    `(select id, received_at from webhook_events where ${[where, ...times].filter(Boolean).join(' ')} order by ${order} ${end})`
  const byId = (where: string) => found(`id >= ${least} and id <= ${most} and ${where}`, 'id')
  const givenType = type === undefined ? undefined : given(type, 'text')
  // Compared as rows, so that only the index of these columns has the order: otherwise whichever way seems short is walked in vain.
  const ofSource = (from: string, one: string) => {
    const [columns, first] = givenType
      ? ['type, source, status', `${givenType}, ${from}, ${one}`]
      : ['source, status', `${from}, ${one}`]
    return found(`(${columns}, id) >= (${first}, ${least}) and (${columns}, id) <= (${first}, ${most})`, `${columns}, id`)
  }

  const ways = () => {
    if (event_ids !== undefined) {
      const named = `id = any (array(select one.id from sources cross join lateral (
        select id from webhook_events where source = sources.source and event_id = any (${given(event_ids, 'text[]')})) one))`
      const ofThem = [source !== undefined && `source = ${given(source, 'text')}`, givenType && `type = ${givenType}`]
      return [byId([named, `status = any (${given(statuses, 'text[]')})`, ...ofThem].filter(Boolean).join(' and '))]
    }
    // These two are nearly all that there are.
    if (source === undefined && type === undefined && statuses.includes('processed') && statuses.includes('ignored'))
      return [byId(`status = any (${given(statuses, 'text[]')})`)]
    return statuses.map((status) => {
      const one = given(status, 'text')
      if (source !== undefined) return ofSource(given(source, 'text'), one)
      if (type === undefined && OPEN.includes(status)) return byId(`status = ${one}`)
      return `(select found.* from sources cross join lateral ${ofSource('sources.source', one)} found)`
    })
  }
  const text = `with recursive ${SOURCES}, found as (
      select * from (${ways().join(' union all ')}) ways order by id ${end}
    )
    select id, received_at from found order by received_at, id`
  return { text, values }
}

/** Those that have an index of their own. */
const OPEN: readonly string[] = ['pending', 'failed', 'quarantined']
const GREATEST_ID = '9223372036854775807'
