import type { Db } from '../db.ts'
import { findIdBounds } from '../events/id-bounds.ts'
import { SOURCES } from '../events/sources-of-events.ts'
import { refOf } from '../providers/refs.ts'
import { EVENT_ROW, type EventRow, REDELIVERIES } from './event-queries.ts'
import { sendFilter } from './filters.ts'
import { searchSends } from './send-search.ts'

// Read-only.

/** What a search means: the one event or send that it names, several of them, or nothing that we know. */
export type Found =
  | { kind: 'event'; id: string }
  | { kind: 'send'; key: string }
  | { kind: 'sends' }
  | { kind: 'events' }
  | { kind: 'nothing' }

/** More than these are no choice between a few. */
const MOST_COMPARED = 100

/** Finds what the header's search box asks for: an exact event ID, else the sends that their list finds for it. */
export async function findAnything(db: Db, q: string, withoutAddresses = false): Promise<Found> {
  const { rows: events } = await db.query<{ id: string }>(
    `with recursive ${SOURCES} select events.id from sources
     cross join lateral (select id from webhook_events where source = sources.source and event_id = $1) events limit 2`,
    [q],
  )
  if (events[0]) return events.length === 1 ? { kind: 'event', ...events[0] } : { kind: 'events' }
  const keys = await findKeys(db, q, MOST_COMPARED + 1, withoutAddresses)
  if (keys.length === 0) return { kind: 'nothing' }
  const [only, ...others] = keys.length > 1 && keys.length <= MOST_COMPARED ? preferWhole(keys, q) : keys
  return only !== undefined && others.length === 0 ? { kind: 'send', key: only } : { kind: 'sends' }
}

/** Keys of the newest sends that the list finds for a text. */
async function findKeys(db: Db, q: string, limit: number, withoutAddresses: boolean): Promise<string[]> {
  const search = searchSends({ ...sendFilter(() => new Date()).parse({}), q, withoutAddresses }, limit)
  const { rows } = await db.query<{ dedupe_key: string }>(
    `${search.with} select dedupe_key from (${search.text}) found order by queued_at desc, dedupe_key desc limit $9`,
    search.values,
  )
  return rows.map((row) => row.dedupe_key)
}

/** Those that have the text as a whole part, if there are any: INV-10 is meant rather than INV-104. */
function preferWhole(keys: readonly string[], q: string): readonly string[] {
  const wanted = encodeURIComponent(q).toLowerCase()
  const whole = keys.filter((key) =>
    key.split(':').some((part) => [part, encodeURIComponent(part)].some((it) => it.toLowerCase() === wanted)),
  )
  return whole.length > 0 ? whole : keys
}

/** What a search that found no send looked through, and where the chain from event to send broke. */
export interface NoHit {
  broke: 'no_event' | 'waiting' | 'no_rule' | 'failed' | 'quarantined' | 'not_sent' | 'filtered'
  /** The answer in a sentence. */
  text: string
  /** What was looked through, in words. */
  searched: readonly string[]
  /** The newest events that name it, by their ID, their object or a reference; 10 at most. */
  events: NoHitEvent[]
}

interface NoHitEvent extends Pick<EventRow, 'id' | 'source' | 'event_id' | 'type' | 'status' | 'received_at' | 'error'> {
  follow_ups: { rule: string; outcome: string; error: string | null; dedupe_key: string | null; send_status: string | null }[]
}

const SEARCHED = ['keys of sends', 'recipients', 'message IDs', 'event IDs', 'what events refer to'] as const

/** Why a search found no send: whether there is one beyond the list's other filters, else what became of the events that name it. */
export async function explainNoHit(db: Db, q: string, withoutAddresses = false): Promise<NoHit> {
  const { rows: events } = await db.query<NoHitEvent>(
    `with recursive ${SOURCES}, named as (
       select one.id from sources cross join lateral (select id from webhook_events where source = sources.source and event_id = $1) one
       union
       (select event_id from event_refs where ref = $2 order by ref desc, event_id desc limit 10)
       union
       select one.id from sources cross join lateral (
         select id from webhook_events where source = sources.source and object_ref = $1 order by occurred_at desc nulls last limit 10) one
     )
     select id, source, event_id, type, events.status, received_at, events.error, (
       select coalesce(jsonb_agg(jsonb_build_object('rule', rule, 'outcome', outcome, 'error', follow_ups.error,
         'dedupe_key', dedupe_key, 'send_status', sends.status) order by at), '[]')
       from follow_ups left join email_sends sends using (dedupe_key) where event = events.id) as follow_ups
     from named join webhook_events events using (id) order by id desc limit 10`,
    [q, refOf(q)],
  )
  const beyond = await findKeys(db, q, 1, withoutAddresses)
  const searched = withoutAddresses ? SEARCHED.filter((what) => what !== 'recipients') : SEARCHED
  return { ...whereItBroke(events, beyond.length > 0), searched, events }
}

function whereItBroke(events: readonly NoHitEvent[], isBeyond: boolean): Pick<NoHit, 'broke' | 'text'> {
  if (isBeyond) return { broke: 'filtered', text: 'There are sends for it, but none that the other filters want.' }
  const naming =
    events.length === 1 ? 'One event names it' : `${events.length === 10 ? '10 or more' : events.length} events name it`
  const followUps = events.flatMap((event) => event.follow_ups)
  const refused = followUps.find(({ send_status }) => send_status === 'rejected')
  if (refused) return { broke: 'not_sent', text: `${naming}. The email was asked for and not sent; its key is free.` }
  const failed = followUps.find(({ outcome }) => outcome === 'failed' || outcome === 'key_taken')
  const broken = events.find(({ status }) => status === 'failed')
  if (failed || broken)
    return { broke: 'failed', text: `${naming}. The follow-up failed: ${failed?.error ?? broken?.error ?? 'no reason is known'}` }
  const unread = events.find(({ status }) => status === 'quarantined')
  if (unread) return { broke: 'quarantined', text: `${naming}, and waits for a person: ${unread.error ?? 'quarantined'}` }
  if (events.some(({ status }) => status === 'pending')) return { broke: 'waiting', text: `${naming}, and is not processed yet.` }
  if (events.length > 0) return { broke: 'no_rule', text: `${naming} and was kept; no rule asked for an email.` }
  return { broke: 'no_event', text: 'No event that is stored names it.' }
}

/** So many bodies are looked through at most, and so many hits told: it reads each byte. */
const MOST_BODIES = 200_000
const MOST_HITS = 20

type BodyHits = { events: EventRow[]; is_complete: boolean; searched: number }

/** Pools in which a search of bodies runs: it holds one of the few connections for seconds, which all who look share. */
const searching = new WeakSet<Db>()

/** What `searchBodies` finds; undefined while another search of this pool is under way. */
export async function searchBodiesAlone(db: Db, text: string, since: Date): Promise<BodyHits | undefined> {
  if (searching.has(db)) return undefined
  searching.add(db)
  return searchBodies(db, text, since).finally(() => searching.delete(db))
}

/** Events whose raw bytes hold the text as it is or as JSON writes it, newest first; `is_complete` is false where there may be more. */
export async function searchBodies(db: Db, text: string, since: Date): Promise<BodyHits> {
  const { low } = await findIdBounds(db, since, undefined)
  const newest = (columns: string) =>
    `(select ${columns} from webhook_events where id >= $1::bigint and received_at >= $2 order by id desc limit $3)`
  const { rows: counted } = await db.query<{ count: number }>(`select count(*)::int as count from ${newest('id')} newest`, [
    low ?? '0',
    since,
    MOST_BODIES + 1,
  ])
  const count = counted[0]?.count ?? 0
  const { rows } = await db.query<EventRow>(
    `select ${EVENT_ROW} from ${newest('*')} events ${REDELIVERIES}
     where exists (select from unnest($4::bytea[]) part where position(part in case when body_emptied_at is null then
       coalesce(events.body, (select body from webhook_bodies where sha256 = body_sha256)) end) > 0)
     order by id desc limit $5`,
    [low ?? '0', since, MOST_BODIES, waysToWrite(text), MOST_HITS + 1],
  )
  return {
    events: rows.slice(0, MOST_HITS),
    is_complete: count <= MOST_BODIES && rows.length <= MOST_HITS,
    searched: Math.min(count, MOST_BODIES),
  }
}

/** A text as its bytes may stand in a JSON body. */
function waysToWrite(text: string): Buffer[] {
  const json = JSON.stringify(text).slice(1, -1)
  const ascii = json.replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return [...new Set([text, json, ascii, json.replaceAll('/', '\\/')])].map((way) => Buffer.from(way))
}
