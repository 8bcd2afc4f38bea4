import type { Source } from '../config.ts'
import type { Db } from '../db.ts'
import { gathered } from './gather.ts'
import { findPending, findSuperseded, type StoredEvent } from './stored-event.ts'

/** How an event that asks for nothing, or for no more, ends. */
export interface Closing {
  status: 'processed' | 'ignored'
  error: string | null
}

/** What processing reads and closes: together, for the events that are processed at the same time. */
export interface EventBatches {
  /** An event that waits to be processed. */
  findPending(id: string): Promise<StoredEvent | undefined>
  isSuperseded(event: StoredEvent, source: Source): Promise<boolean>
  /** Closes an event of which nothing follows, unless another worker has by now, and keeps what it names. */
  close(event: StoredEvent, closing: Closing, refs: readonly string[]): Promise<void>
}

/** As many as one statement is for. */
const MOST = 64

/** The reads and closings of one process. */
export function batchEvents(db: Db): EventBatches {
  const find = gathered(MOST, (ids: readonly string[]) => findPending(db, ids))
  const superseded = gathered(MOST, (items: readonly { event: StoredEvent; source: Source }[]) => findSuperseded(db, items))
  const close = gathered(MOST, (items: readonly Closed[]) => closeEvents(db, items))
  return {
    findPending: find,
    isSuperseded: async (event, source) => event.object_ref !== null && (await superseded({ event, source })),
    close: (event, closing, refs) => close({ id: event.id, ...closing, refs }),
  }
}

interface Closed extends Closing {
  id: string
  refs: readonly string[]
}

/** The event's own truth decides for each: one that another worker was first with stays as it is. Locked in the order of their IDs. */
async function closeEvents(db: Db, items: readonly Closed[]): Promise<undefined[]> {
  const refs = items.flatMap(({ id, refs }) => refs.map((ref) => ({ id, ref })))
  await db.query({
    name: 'close-events',
    text: `with given as materialized (
        select id, status, error from unnest($1::bigint[], $2::text[], $3::text[]) as given (id, status, error)
      ), held as materialized (
        select id from webhook_events where id = any ($1) and status = 'pending' and processed_at is null order by id for no key update
      ), closed as (
        update webhook_events events set status = given.status, processed_at = now(), error = given.error
        from given join held using (id) where events.id = given.id returning events.id
      ), forgotten as (
        -- What went wrong in an earlier try is no more.
        delete from follow_ups where event in (select id from closed) and outcome in ('failed', 'key_taken')
      )
      insert into event_refs (ref, event_id) select ref, event_id from unnest($4::text[], $5::bigint[]) as named (ref, event_id)
      order by ref, event_id on conflict do nothing`,
    values: [
      items.map(({ id }) => id),
      items.map(({ status }) => status),
      items.map(({ error }) => error),
      refs.map(({ ref }) => ref),
      refs.map(({ id }) => id),
    ],
  })
  return items.map(() => undefined)
}
