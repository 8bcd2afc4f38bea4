import { createHash } from 'node:crypto'
import type pg from 'pg'
import type { Config, Source } from '../config.ts'
import { inTransaction, type Tx } from '../db.ts'
import { requestOf } from '../providers/provider.ts'
import { readNewEvents } from './receive.ts'
import type { Recorder } from './record.ts'
import { findStoredRequest, type RecordedEvent } from './store.ts'

export interface ReplayDeps {
  pool: pg.Pool
  recorder: Recorder
  config(): Config
  isWanted(source: Source, type: string | null): boolean
  enqueueEvents(tx: Tx, events: readonly string[], request?: string): Promise<void>
}

export type Replayed =
  | { outcome: 'queued' }
  /** A quarantined event was read anew: what was found in it, as if it came now. */
  | { outcome: 'read'; events: RecordedEvent[] }
  | { outcome: 'still_unusable' | 'pending' | 'unknown_source' | 'emptied' | 'not_found' }

/**
 * Runs the follow-ups of an event again; the keys that are taken still hold, so a replay can't send twice. One that waited for a
 * person to look at it is let through. Audited. Jobs of what is read anew carry the ID of the request that asks.
 */
export async function replayEvent(
  deps: ReplayDeps,
  id: string,
  actor: string,
  via: string,
  requestId?: string,
): Promise<Replayed> {
  const queued = await inTransaction(deps.pool, async (tx) => {
    const [requeued] = await requeueEvents(tx, deps.enqueueEvents, [id])
    if (requeued) await audit(tx, id, actor, via, requeued.status)
    return requeued !== undefined
  })
  if (queued) return { outcome: 'queued' }

  const { rows } = await deps.pool.query<{ status: string; is_emptied: boolean; is_only_bytes: boolean }>(
    `select status, body_emptied_at is not null as is_emptied, ${isOnlyBytes} as is_only_bytes from webhook_events where id = $1`,
    [id],
  )
  if (!rows[0]) return { outcome: 'not_found' }
  const { status, is_emptied, is_only_bytes } = rows[0]
  if (is_emptied) return { outcome: 'emptied' }
  return is_only_bytes ? readAnew(deps, { id, status, actor, via, requestId }) : { outcome: 'pending' }
}

/**
 * Makes closed events wait to be processed again, with their jobs; answers which, and as what they had ended. The rows are locked in
 * the order of their ID, as by all who take several.
 */
export async function requeueEvents(
  tx: Tx,
  enqueue: ReplayDeps['enqueueEvents'],
  ids: readonly string[],
): Promise<{ id: string; status: string }[]> {
  const { rows } = await tx.query<{ id: string; status: string }>(
    `with old as materialized (
       select id, status from webhook_events
       where id = any ($1) and status in ('processed', 'ignored', 'failed', 'quarantined') and body_emptied_at is null and not ${isOnlyBytes}
       order by id for update
     )
     update webhook_events events set status = 'pending', processed_at = null, error = null from old where events.id = old.id
     returning old.id, old.status`,
    [ids],
  )
  await enqueue(
    tx,
    rows.map(({ id }) => id),
  )
  return rows
}

/** What was unusable, whether it has been read since or not: a row that keeps bytes, and no event that rules could act on. */
export const isOnlyBytes = `(id_basis = 'body_hash' and type is null)`

async function readAnew(
  deps: ReplayDeps,
  {
    id,
    status: before,
    actor,
    via,
    requestId,
  }: { id: string; status: string; actor: string; via: string; requestId: string | undefined },
): Promise<Replayed> {
  const stored = await findStoredRequest(deps.pool, id)
  const source = stored && deps.config().sources.get(stored.source)
  if (!stored || !source) return { outcome: 'unknown_source' }
  if (stored.body === null) return { outcome: 'emptied' }
  const sha256 = createHash('sha256').update(stored.body).digest()
  // Where each delivery is an event of its own, this one is the same each time that it is read.
  const read = readNewEvents(deps, source, requestOf(stored.headers, stored.body), sha256, `event-${id}`)
  const events = read
    .filter(({ idBasis, type }) => idBasis !== 'body_hash' || type !== null)
    // The row that was quarantined under it goes on holding it.
    .map((event) => (event.replayKey === stored.replay_key ? { ...event, replayKey: null } : event))
  if (events.length === 0) return { outcome: 'still_unusable' }

  const recorded = await deps.recorder.record(
    {
      source: source.name,
      body: stored.body,
      sha256,
      headers: stored.headers,
      secretIndex: null,
      secretFingerprint: null,
      events,
      requestId,
    },
    source.provider,
  )
  // Some elements of a list may be readable by now and others not: those keep the row before people's eyes.
  const isWhole = events.length === read.length
  await inTransaction(deps.pool, async (tx) => {
    const { rowCount } = await tx.query(
      `update webhook_events set status = 'processed', processed_at = now(), error = 'read anew'
       where id = $1 and status = 'quarantined' and $2`,
      [id, isWhole],
    )
    // Of several at once that read a whole body, one finds its events new and another may close the row: one audit is enough.
    const isNews = before !== 'quarantined' || !isWhole ? recorded.some(({ status }) => status !== 'duplicate') : rowCount === 1
    if (isNews) await audit(tx, id, actor, via, before)
  })
  return isWhole ? { outcome: 'read', events: recorded } : { outcome: 'still_unusable' }
}

async function audit(tx: Tx, id: string, actor: string, via: string, before: string): Promise<void> {
  await tx.query(
    `insert into audit_log (actor, via, action, subject, before) values ($1, $2, 'replay', 'event:' || $3, jsonb_build_object('status', $4::text))`,
    [actor, via, id, before],
  )
}
