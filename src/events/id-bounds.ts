import type { Db } from '../db.ts'

/** The rows of webhook_events between two times lie between these, as they are numbered nearly in the order in which they come. */
export interface IdBounds {
  low: string | null
  high: string | null
}

/** What committed late has a number from up to so long before its neighbours. */
const OUT_OF_ORDER_MS = 60_000

/** Finds by halves which rows may lie between two times; a look at about 20 rows for each, however many there are. */
export async function findIdBounds(db: Db, since: Date | undefined, until: Date | undefined): Promise<IdBounds> {
  if (since === undefined && until === undefined) return { low: null, high: null }
  const { rows } = await db.query<IdBounds>(
    `with recursive search (number, wanted, low, high) as (
       select number, wanted, (select coalesce(min(id), 0) from webhook_events), (select coalesce(max(id), 0) + 1 from webhook_events)
       from unnest($1::timestamptz[]) with ordinality as given (wanted, number) where wanted is not null
       union all
       select number, wanted, case when is_before then probe.id + 1 else low end, case when is_before then high else middle end
       from search
         cross join lateral (select (low + high) / 2 as middle) halves
         left join lateral (select id, received_at from webhook_events where id >= middle order by id limit 1) probe on true
         cross join lateral (select coalesce(probe.id < high and probe.received_at < wanted, false) as is_before) compared
       where low < high
     )
     select (select low from search where number = 1 and low >= high) as low, (select low from search where number = 2 and low >= high) as high`,
    [[since && new Date(since.getTime() - OUT_OF_ORDER_MS), until && new Date(until.getTime() + OUT_OF_ORDER_MS)]],
  )
  return rows[0] ?? { low: null, high: null }
}
