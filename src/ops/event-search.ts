import type { IdBounds } from '../events/id-bounds.ts'
import { SOURCES } from '../events/sources-of-events.ts'
import { refOf } from '../providers/refs.ts'
import { type EventFilter, eventStatuses } from './filters.ts'

// How the list of events finds its rows. Few indexes may lie on their table, as each costs with every event that arrives: a list that
// names no source takes the newest of each source instead.

/** A statement that gives `id`, and its values from $1 on. */
export interface EventSearch {
  text: string
  values: readonly unknown[]
}

/** What is null isn't asked for, and is folded away when the statement is planned. */
const filters = (isReferring: string) => `($2::text is null or source = $2) and ($3::text is null or type = $3)
  and ($4::text is null or case when $4 = 'test' then livemode = false else livemode is distinct from false end)
  and ($5::timestamptz is null or received_at >= $5) and ($6::timestamptz is null or received_at < $6)
  and ($7::bigint is null or id >= $7) and ($8::bigint is null or id < $8) and ($9::bigint is null or id < $9)
  and ($11::text is null or event_id = $11) and ($12::text is null or ${isReferring})
  and ($13::text is distinct from 'conflict' or exists (select from webhook_conflicts where event = webhook_events.id))`
const ANY_STATUS = '($1::text[] is null or status = any ($1))'
const REDELIVERED_IF_ASKED = `($13::text is distinct from 'redelivery' or exists (
  select from webhook_redeliveries again where again.source = webhook_events.source and event = webhook_events.id))`

/** Those of an ID, whatever their source. */
const WITH_ID = `id = any (array(
    select one.id from sources cross join lateral (select id from webhook_events where source = sources.source and event_id = $11) one))`
/** Those that name something, one after the other until there are enough. */
const REFERRING = `(select event_id as named from event_refs where ref = $12 and ($7::bigint is null or event_id >= $7)
    and ($8::bigint is null or event_id < $8) and ($9::bigint is null or event_id < $9) order by ref desc, event_id desc) refs
  join webhook_events on id = named`
/** Those of a source that came again. */
const redelivered = (source: string, events: string) => `(select event as redelivered
    from webhook_redeliveries where source = ${source} and ($7::bigint is null or event >= $7)
    and ($8::bigint is null or event < $8) and ($9::bigint is null or event < $9)) again ${events}`
/** One after the other until there are enough, where the filter leaves few out. `offset 0` keeps it from reading all events instead. */
const ONE_BY_ONE = 'cross join lateral (select * from webhook_events where id = redelivered offset 0) webhook_events'
/** From here or from another index, whichever leads to fewer. */
const BY_STATISTICS = 'join webhook_events on id = redelivered'
const IN_CONFLICT = `id = any (array(select event from webhook_conflicts where $9::bigint is null or event < $9))`

/** Finds the events that a filter wants, the newest `limit` of them, in any order; to be counted, any so many of them. */
export function searchEvents(filter: EventFilter, bounds: IdBounds, limit: number, isCount = false): EventSearch {
  const { source, event_id, ref, type, status, mode, has, since, until, cursor } = filter
  return {
    text: `with recursive ${SOURCES} select id from (${waysTo(filter, isCount).join(' union all ')}) found`,
    values: [
      status ?? null,
      source ?? null,
      type ?? null,
      mode ?? null,
      since ?? null,
      until ?? null,
      bounds.low,
      bounds.high,
      cursor?.[0] ?? null,
      limit,
      event_id ?? null,
      ref === undefined ? null : refOf(ref),
      has ?? null,
    ],
  }
}

/** Selects whose rows together hold what the filter wants; each follows one index. */
function waysTo({ source, event_id, ref, type, status, mode, has }: EventFilter, isCount: boolean): string[] {
  const end = 'order by id desc limit $10'
  const found = (where: string, from = 'webhook_events', id = 'id') => {
    const isReferring =
      from === REFERRING ? 'true' : 'exists (select from event_refs where ref = $12 and event_refs.event_id = webhook_events.id)'
    return `(select ${id} as id from ${from} where ${where} and ${filters(isReferring)} order by ${id} desc limit $10)`
  }
  // To be counted it needs no order, so that the first sources may be enough.
  const ofEach = (ofSource: string) =>
    `(select found.id from sources cross join lateral ${ofSource} found ${isCount ? 'limit $10' : end})`
  const ofEachSource = (where: string) => ofEach(found(`source = sources.source and ${where}`))
  const isNarrowed = type !== undefined || status !== undefined || mode !== undefined
  const again = (of: string) => found(ANY_STATUS, redelivered(of, isNarrowed ? BY_STATISTICS : ONE_BY_ONE), 'redelivered')

  if (event_id !== undefined) return [found(`${WITH_ID} and ${ANY_STATUS} and ${REDELIVERED_IF_ASKED}`)]
  if (ref !== undefined) return [found(`${ANY_STATUS} and ${REDELIVERED_IF_ASKED}`, REFERRING)]
  if (has === 'conflict') return [found(`${IN_CONFLICT} and ${ANY_STATUS}`)]
  if (has === 'redelivery') return [source === undefined ? ofEach(again('sources.source')) : again('$2')]
  if (mode === 'test') return [source === undefined ? ofEachSource(ANY_STATUS) : found(ANY_STATUS)]
  if (source === undefined && type === undefined && status === undefined) return [found(ANY_STATUS)]
  return (status ?? eventStatuses).map((one, index) => {
    const where = status ? `status = ($1::text[])[${index + 1}]` : `$1::text[] is null and status = '${one}'`
    const hasIndex = source !== undefined || (type === undefined && ['pending', 'failed', 'quarantined'].includes(one))
    return hasIndex ? found(where) : ofEachSource(where)
  })
}
