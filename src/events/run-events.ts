import type { Db } from '../db.ts'
import { findIdBounds } from './id-bounds.ts'
import type { RunFilter } from './runs.ts'
import { SOURCES } from './sources-of-events.ts'

// How a run finds its events. Those of one source and status, and of the type if one is given, are a lane: one stretch of an index, in the
// order of the rows' numbers. Nothing has all lanes in one order, so it is counted first up to which number they hold enough.

interface Found {
  id: string
  received_at: Date
}

/** Rows from one number to another, both included. */
interface Stretch {
  first: string
  last: string
}

/** Finds the events that match now, oldest first, `most` of them; and the time of the first one that is left out. */
export async function findEventsOfRun(
  db: Db,
  filter: RunFilter,
  most: number,
): Promise<{ ids: string[]; nextSince: Date | null }> {
  const { low, high } = await findIdBounds(db, filter.since, filter.until)
  const all = { first: low ?? '0', last: high ?? GREATEST_ID }
  const found =
    filter.event_ids === undefined ? await findOldest(db, filter, all, most + 1) : await findNamed(db, filter, all, most + 1)
  return { ids: found.slice(0, most).map(({ id }) => id), nextSince: found[most]?.received_at ?? null }
}

async function findOldest(db: Db, filter: RunFilter, all: Stretch, wanted: number): Promise<Found[]> {
  for (let counted = wanted; ; counted *= 2) {
    const last = await findLast(db, filter, all, counted)
    const found = await find(db, filter, { ...all, last: last ?? all.last }, wanted)
    if (last === null) return found
    // Of the first ones, some may be from before the time that is asked for.
    const oldest = found[wanted - 1]
    if (!oldest) continue
    // Numbers are only nearly in the order of time: behind the last one there may be some that are older than what was found.
    const { high } = await findIdBounds(db, undefined, new Date(oldest.received_at.getTime() + 1))
    return high === null || BigInt(high) <= BigInt(last) ? found : find(db, filter, { ...all, last: high }, wanted)
  }
}

/** The number up to which so many of the lanes' events come, or somewhat more; null where there are fewer. */
async function findLast(db: Db, filter: RunFilter, { first, last }: Stretch, wanted: number): Promise<string | null> {
  const { lanes, columns, isIn } = lanesOf(filter)
  // Stretches twice as long until one holds enough, then by halves; so that none is counted which holds very many.
  const { rows } = await db.query<{ last: string | null }>(
    `with recursive ${lanes}, ends as materialized (select least($5::bigint, coalesce(max(id), 0)) as end_of_all from webhook_events),
     search (too_few, enough, events) as (
       select $4::bigint + $6::bigint - 2, null::bigint, 0::bigint
       union all
       select case when is_enough then too_few else probe end, case when is_enough then probe else enough end, count
       from search
         cross join ends
         cross join lateral (select coalesce((too_few + enough) / 2, least(2 * too_few - $4 + 1, end_of_all)) as probe) probes
         cross join lateral (select count(*) as count from (select from lanes cross join lateral (
           select from webhook_events where ${isIn('$4', 'probe')} order by ${columns} limit $7::bigint) found limit $7) most) counted
         cross join lateral (select count >= $6 as is_enough) compared
       where case when enough is null then too_few < end_of_all else too_few + 1 < enough and events not between $6 and $7 - 1 end
     )
     select min(enough) as last from search`,
    [...valuesOf(filter), first, last, wanted, Math.ceil(wanted * 1.5)],
  )
  return rows[0]?.last ?? null
}

async function find(db: Db, filter: RunFilter, { first, last }: Stretch, most: number): Promise<Found[]> {
  const { lanes, isIn } = lanesOf(filter)
  // Each lane by itself: `offset 0` keeps the two from being planned as one.
  const { rows } = await db.query<Found>(
    `with recursive ${lanes}
     select id, received_at from lanes cross join lateral (
       select id, received_at from webhook_events where ${isIn('$4::bigint', '$5::bigint')} and ${isInTime('$6', '$7')} offset 0) found
     order by received_at, id limit $8`,
    [...valuesOf(filter), first, last, filter.since ?? null, filter.until ?? null, most],
  )
  return rows
}

async function findNamed(db: Db, filter: RunFilter, { first, last }: Stretch, most: number): Promise<Found[]> {
  const { rows } = await db.query<Found>(
    `with recursive ${SOURCES}
     select id, received_at from webhook_events
     where id = any (array(select one.id from sources cross join lateral (
         select id from webhook_events where source = sources.source and event_id = any ($9::text[])) one))
       and ($1::text is null or type = $1) and ($2::text is null or source = $2) and status = any ($3::text[])
       and id between $4::bigint and $5::bigint and ${isInTime('$6', '$7')}
     order by received_at, id limit $8`,
    [...valuesOf(filter), first, last, filter.since ?? null, filter.until ?? null, most, filter.event_ids],
  )
  return rows
}

const valuesOf = ({ type, source, status }: RunFilter) => [type ?? null, source ?? null, [...new Set(status)]]
const isInTime = (since: string, until: string) =>
  `(${since}::timestamptz is null or received_at >= ${since}) and (${until}::timestamptz is null or received_at < ${until})`

/** What finds the lanes of $1 to $3, and their rows by the index of these columns. */
function lanesOf({ source, type }: RunFilter) {
  const lane = type === undefined ? ['source', 'status'] : ['type', 'source', 'status']
  const columns = [...lane, 'id'].join(', ')
  const place = (id: string) => `(${lane.map((column) => `lanes.${column}`).join(', ')}, ${id})`
  const ofSources =
    source === undefined
      ? 'select source from sources where $2::text is null and source is not null'
      : 'select $2::text as source'
  return {
    lanes: `${SOURCES}, lanes as materialized (
      select $1::text as type, source, status from (${ofSources}) sources cross join unnest($3::text[]) as status)`,
    columns,
    // Compared as rows, for which no other index is of use. `between` says nothing new, but has the planner expect few rows: of the
    // values of a lane it knows none, whatever its statistics are.
    isIn: (first: string, last: string) =>
      `(${columns}) >= ${place(first)} and (${columns}) <= ${place(last)} and status between lanes.status and lanes.status`,
  }
}

const GREATEST_ID = '9223372036854775807'
