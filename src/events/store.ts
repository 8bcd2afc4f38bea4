import { type Db, queryBriefly } from '../db.ts'
import type { Provider } from '../providers/provider.ts'
import type { ReadEvent } from '../providers/read-events.ts'

/** One POST, verified and read, on its way into the database. */
export interface Delivery {
  source: string
  body: Buffer
  sha256: Buffer
  /** The allow-listed headers. */
  headers: Record<string, string>
  /** Which of the configured secrets verified it. */
  secretIndex: number | null
  /** Which secret that was, told apart from all others without telling it. */
  secretFingerprint: string | null
  events: readonly NewEvent[]
  /** Goes with the jobs, so that the log of a worker can be read together with ours; it is stored nowhere else. */
  requestId?: string | undefined
}

/** An event as it is stored first. */
export interface NewEvent extends ReadEvent {
  status: 'pending' | 'ignored' | 'quarantined'
  error: string | null
}

/** What became of one event of a delivery. */
export interface RecordedEvent {
  id: string
  type: string | null
  status: 'accepted' | 'duplicate' | 'quarantined'
}

/** An event as it is answered: what is new and unusable is told apart. */
export function recorded({ id, type, status }: NewEvent, outcome: 'accepted' | 'duplicate'): RecordedEvent {
  return { id, type, status: outcome === 'accepted' && status === 'quarantined' ? 'quarantined' : outcome }
}

/** One event of one delivery. */
export interface Item {
  delivery: Delivery
  event: NewEvent
}

/** A stored event that an arriving one repeats. */
export interface Held {
  /** Row of webhook_events. */
  id: string
  type: string | null
  body_sha256: Buffer
  /** It was counted as a redelivery; not, where it has the same ID only and another body may be a further event. */
  is_again: boolean
}

const column = <Value>(items: readonly Item[], value: (item: Item) => Value): Value[] => items.map(value)

/** Identifies an event among all sources; a source name has no blank. */
export function eventKey(source: string, eventId: string): string {
  return `${source} ${eventId}`
}

/**
 * Counts a redelivery of each stored event that the items repeat: by its ID, where that isn't signed by its bytes, and by what is
 * signed once only; not where another body is a further event. Answers the held row of each item, in the items' order. Events are
 * counted in the order of their rows, so that two batches with the same ones don't deadlock.
 */
export async function countRedeliveries(
  db: Db,
  items: readonly (Item & { provider: Provider })[],
): Promise<(Held | undefined)[]> {
  const query = {
    name: 'count-redeliveries',
    // One look-up for each item and way: joined as a whole, a plan made while a way's index was empty would read all of it later.
    text: `with found as materialized (
        select number, source, held.*
        from unnest($1::text[], $2::text[], $3::text[], $4::bool[], $5::text[], $6::bool[], $7::text[]) with ordinality
          as given (source, event_id, type, id_signed, sha256, other_is_further, replay_key, number)
        cross join lateral (
          select id, type, body_sha256, is_again from (
            select 1 as preference, id, type, body_sha256, not other_is_further or body_sha256 = decode(sha256, 'hex') as is_again
            from webhook_events where source = given.source and event_id = given.event_id
            union all
            -- Not "is not distinct from": before PostgreSQL 18 that reads all of the source.
            select 2, id, type, body_sha256, true from webhook_events
            where source = given.source and type = given.type and body_sha256 = decode(sha256, 'hex')
              and not id_signed and not given.id_signed
            union all
            select 2, id, type, body_sha256, true from webhook_events
            where source = given.source and type is null and given.type is null and body_sha256 = decode(sha256, 'hex')
              and not id_signed and not given.id_signed
            union all
            select 3, id, type, body_sha256, true from webhook_events where source = given.source and replay_key = given.replay_key
          ) matches order by preference limit 1
        ) held
      ), counted as (
        insert into webhook_redeliveries as earlier (source, event, redeliveries, last_redelivered_at)
        select source, id, count(*), now() from found where is_again group by source, id order by id
        on conflict (source, event) do update
          set redeliveries = earlier.redeliveries + excluded.redeliveries, last_redelivered_at = excluded.last_redelivered_at
      )
      select number, id, type, body_sha256, is_again from found`,
    values: [
      column(items, ({ delivery }) => delivery.source),
      column(items, ({ event }) => event.id),
      column(items, ({ event }) => event.type),
      column(items, ({ event }) => event.idIsSigned),
      column(items, ({ delivery }) => delivery.sha256.toString('hex')),
      items.map(({ provider }) => provider.otherBodyIsFurtherEvent),
      column(items, ({ event }) => event.replayKey),
    ],
  }
  return queryBriefly<Held & { number: string }, (Held | undefined)[]>(db, query, (rows) => {
    const byNumber = new Map(rows.map(({ number, ...held }) => [Number(number), held]))
    return items.map((_, index) => byNumber.get(index + 1))
  })
}

interface StoredRequest {
  source: string
  /** Null once retention has emptied it. */
  body: Buffer | null
  headers: Record<string, string>
  replay_key: string | null
}

/** The stored bytes and headers of an event, wherever they lie. */
export async function findStoredRequest(db: Db, id: string): Promise<StoredRequest | undefined> {
  const { rows } = await db.query<StoredRequest>({
    name: 'find-stored-request',
    text: `select source, headers, replay_key, coalesce(events.body, bodies.body) as body
      from webhook_events events left join webhook_bodies bodies on bodies.sha256 = events.body_sha256 where events.id = $1`,
    values: [id],
  })
  return rows[0]
}

/** As many as people would look at: whoever holds one signed request may post any number. */
const MOST_CONFLICTS = 10

/**
 * Keeps a body that came under a held ID with other content, once per content. Beyond the tenth of an event (some more where they come
 * at once) only its redeliveries count them.
 */
export async function keepConflict(db: Db, id: string, { body, sha256 }: Delivery): Promise<void> {
  await db.query(
    `insert into webhook_conflicts (event, body, body_sha256) select $1::bigint, $2::bytea, $3::bytea
     where (select count(*) filter (where body_sha256 <> $3) from webhook_conflicts where event = $1) < $4
     on conflict on constraint webhook_conflicts_once do update set times = webhook_conflicts.times + 1`,
    [id, body, sha256, MOST_CONFLICTS],
  )
}

/** Counts a redelivery that said the same in other bytes; as a redelivery too, where it didn't pass for one by its bytes. */
export async function countBenignVariant(db: Db, source: string, id: string, isUncounted: boolean): Promise<void> {
  await db.query(
    `insert into webhook_redeliveries as earlier (source, event, redeliveries, benign_variants, last_redelivered_at)
     values ($1, $2, $3, 1, now())
     on conflict (source, event) do update set benign_variants = earlier.benign_variants + 1,
       redeliveries = earlier.redeliveries + excluded.redeliveries, last_redelivered_at = excluded.last_redelivered_at`,
    [source, id, isUncounted ? 1 : 0],
  )
}
