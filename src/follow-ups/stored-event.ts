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

/** An event that waits to be processed. */
export async function findPending(db: Db, id: string): Promise<StoredEvent | undefined> {
  const { rows } = await db.query<StoredEvent>({
    name: 'find-pending-event',
    text: `select ${EVENT} from ${FROM} where id = $1 and status = 'pending' and processed_at is null`,
    values: [id],
  })
  return rows[0]
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
export async function metaOf(db: Db, source: Source, event: StoredEvent): Promise<EventMeta> {
  return {
    source: event.source,
    eventId: event.event_id,
    type: event.type,
    occurredAt: event.occurred_at,
    receivedAt: event.received_at,
    livemode: event.livemode,
    superseded: event.object_ref !== null && (await isSuperseded(db, event.id, source)),
  }
}

/**
 * Tells whether a later event of the same object and mode, by the provider's time, is stored. What is quarantined says nothing yet, nor
 * does what a provider that signs no content has posted and nothing has confirmed; what names no mode is of the source's.
 */
async function isSuperseded(db: Db, id: string, { mode, provider }: Source): Promise<boolean> {
  const { rows } = await db.query<{ is_superseded: boolean }>({
    name: 'is-superseded',
    text: `select exists (
        select from webhook_events this join webhook_events later
          on later.source = this.source and later.object_ref = this.object_ref and later.occurred_at > this.occurred_at
        where this.id = $1 and later.status <> 'quarantined' and ($3 or later.status = 'processed')
           and coalesce(later.livemode, $2) = $2
      ) as is_superseded`,
    values: [id, mode === 'live', provider.contentIsSigned],
  })
  return rows[0]?.is_superseded === true
}
