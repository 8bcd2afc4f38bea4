import type { Config, EventMeta, FollowUpRule, Source } from '../config.ts'
import type { Db } from '../db.ts'
import { parseJson } from '../providers/json.ts'
import { requestOf } from '../providers/provider.ts'
import { payloadOf } from '../providers/read-events.ts'

/** An event as the rules' functions need it. */
export interface StoredEvent {
  id: string
  source: string
  event_id: string
  type: string | null
  livemode: boolean | null
  occurred_at: Date | null
  received_at: Date
  object_ref: string | null
  headers: Record<string, string>
  body: Buffer | null
}

// A further event under an ID of the provider's own goes by that ID still, so that a key made of it is the same for both.
const EVENT = `id, source, type, livemode, occurred_at, events.received_at, object_ref, headers,
  case when id_basis = 'provider' and right(event_id, 65) = ':' || encode(body_sha256, 'hex') then left(event_id, -65)
    else event_id end as event_id,
  coalesce(events.body, bodies.body) as body`
const FROM = 'webhook_events events left join webhook_bodies bodies on bodies.sha256 = events.body_sha256'

/** Bodies of more than that aren't fetched together: the memory that takes is a multiple of them. */
const MOST_BYTES_AT_ONCE = 4 * 1024 * 1024

/** Of these events those that wait to be processed, in the order of the IDs. */
export async function findPending(db: Db, ids: readonly string[]): Promise<(StoredEvent | undefined)[]> {
  const { rows } = await db.query<StoredEvent & { is_left_out: boolean }>({
    name: 'find-pending-events',
    text: `with waiting as (
        select ${EVENT} from ${FROM} where id = any ($1) and status = 'pending' and processed_at is null
      ), sized as (
        select *, count(*) over () > 1 and sum(octet_length(body)) over (order by id) > $2 as is_left_out from waiting
      )
      select id, source, type, livemode, occurred_at, received_at, object_ref, headers, event_id,
        case when not is_left_out then body end as body, coalesce(is_left_out, false) as is_left_out
      from sized`,
    values: [ids, MOST_BYTES_AT_ONCE],
  })
  const found = new Map<string, StoredEvent>()
  for (const { is_left_out, ...event } of rows) {
    const [whole] = is_left_out ? await findPending(db, [event.id]) : [event]
    if (whole) found.set(event.id, whole)
  }
  return ids.map((id) => found.get(id))
}

/** An event whatever became of it. */
export async function findEvent(
  db: Db,
  id: string,
): Promise<(StoredEvent & { status: string; is_emptied: boolean; is_only_bytes: boolean }) | undefined> {
  const { rows } = await db.query<StoredEvent & { status: string; is_emptied: boolean; is_only_bytes: boolean }>({
    name: 'find-stored-event',
    text: `select ${EVENT}, status, body_emptied_at is not null as is_emptied, id_basis = 'body_hash' and type is null as is_only_bytes
      from ${FROM} where id = $1`,
    values: [id],
  })
  return rows[0]
}

/** What it says, as far as that can be read, even if nobody knows its source any more. */
export function payloadIfReadable({ sources }: Config, { source: name, headers, body, event_id }: StoredEvent): unknown {
  if (body === null) return undefined
  const provider = sources.get(name)?.provider
  try {
    if (provider) return payloadOf(provider, requestOf(headers, body), event_id)
  } catch {
    // A provider may throw at what it doesn't know.
  }
  const parsed = parseJson(body)
  return parsed.ok ? parsed.value : undefined
}

/** The rules that an event is for: those of its source and type, unless it is of the other mode than its source. */
export function rulesFor({ rules }: Config, source: Source, { type, livemode }: StoredEvent): FollowUpRule[] {
  if (livemode !== null && livemode !== (source.mode === 'live')) return []
  return rules.filter((rule) => rule.source === source.name && type !== null && rule.types.has(type))
}

/** What the rules' functions are told of an event beside its payload. */
export function metaOf(source: Source, event: StoredEvent, superseded: boolean): EventMeta {
  return {
    source: source.name,
    eventId: event.event_id,
    type: event.type,
    occurredAt: event.occurred_at,
    receivedAt: event.received_at,
    livemode: event.livemode,
    superseded,
  }
}

/**
 * Tells of each event whether a later one of the same object and mode, by the provider's time, is stored. What is quarantined says
 * nothing yet, nor does what a provider that signs no content has posted and nothing has confirmed; what names no mode is of the source's.
 */
export async function findSuperseded(db: Db, items: readonly { event: StoredEvent; source: Source }[]): Promise<boolean[]> {
  const { rows } = await db.query<{ is_superseded: boolean }>({
    name: 'find-superseded',
    text: `select exists (
        select from webhook_events this join webhook_events later
          on later.source = this.source and later.object_ref = this.object_ref and later.occurred_at > this.occurred_at
        where this.id = given.id and later.status <> 'quarantined' and (given.content_is_signed or later.status = 'processed')
           and coalesce(later.livemode, given.is_live) = given.is_live
      ) as is_superseded
      from unnest($1::bigint[], $2::bool[], $3::bool[]) with ordinality as given (id, is_live, content_is_signed, number)
      order by number`,
    values: [
      items.map(({ event }) => event.id),
      items.map(({ source }) => source.mode === 'live'),
      items.map(({ source }) => source.provider.contentIsSigned),
    ],
  })
  return rows.map((row) => row.is_superseded)
}
