import { createHash } from 'node:crypto'
import type pg from 'pg'
import type { Config, Source } from '../config.ts'
import { inTransaction, type Tx } from '../db.ts'
import { requestOf } from '../providers/provider.ts'
import { readNewEvents } from './receive.ts'
import type { RecordedEvent, Recorder } from './record.ts'
import { findStoredRequest } from './store.ts'

export interface ReplayDeps {
  pool: pg.Pool
  recorder: Recorder
  config(): Config
  isWanted(source: Source, type: string | null): boolean
  enqueueEvents(tx: Tx, events: readonly string[]): Promise<void>
}

export type Replayed =
  | { outcome: 'queued' }
  /** A quarantined event was read anew: what was found in it, as if it came now. */
  | { outcome: 'read'; events: RecordedEvent[] }
  | { outcome: 'still_unusable' | 'pending' | 'unknown_source' | 'emptied' | 'not_found' }

/** Runs the follow-ups of an event again; the keys that are taken still hold, so a replay can't send twice. Audited. */
export async function replayEvent(deps: ReplayDeps, id: string, actor: string, via: string): Promise<Replayed> {
  const queued = await inTransaction(deps.pool, async (tx) => {
    const { rows } = await tx.query<{ status: string }>(
      `with old as (select id, status from webhook_events where id = $1 and status in ('processed', 'ignored', 'failed') for update)
       update webhook_events events set status = 'pending', processed_at = null, error = null from old where events.id = old.id
       returning old.status`,
      [id],
    )
    if (!rows[0]) return false
    await deps.enqueueEvents(tx, [id])
    await audit(tx, id, actor, via, rows[0].status)
    return true
  })
  if (queued) return { outcome: 'queued' }

  const { rows } = await deps.pool.query<{ status: string }>('select status from webhook_events where id = $1', [id])
  const status = rows[0]?.status
  if (status !== 'quarantined') return { outcome: status === undefined ? 'not_found' : 'pending' }
  return readAnew(deps, id, actor, via)
}

async function readAnew(deps: ReplayDeps, id: string, actor: string, via: string): Promise<Replayed> {
  const stored = await findStoredRequest(deps.pool, id)
  const source = stored && deps.config().sources.get(stored.source)
  if (!stored || !source) return { outcome: 'unknown_source' }
  if (stored.body === null) return { outcome: 'emptied' }
  const sha256 = createHash('sha256').update(stored.body).digest()
  const events = readNewEvents(deps, source, requestOf(stored.headers, stored.body), sha256).filter(
    (event) => event.status !== 'quarantined',
  )
  if (events.length === 0) return { outcome: 'still_unusable' }

  const recorded = await deps.recorder.record(
    { source: source.name, body: stored.body, sha256, headers: stored.headers, secretIndex: null, events },
    source.provider,
  )
  await inTransaction(deps.pool, async (tx) => {
    const { rowCount } = await tx.query(
      `update webhook_events set status = 'processed', processed_at = now(), error = 'read anew' where id = $1 and status = 'quarantined'`,
      [id],
    )
    if (rowCount === 1) await audit(tx, id, actor, via, 'quarantined')
  })
  return { outcome: 'read', events: recorded }
}

async function audit(tx: Tx, id: string, actor: string, via: string, before: string): Promise<void> {
  await tx.query(
    `insert into audit_log (actor, via, action, subject, before) values ($1, $2, 'replay', 'event:' || $3, jsonb_build_object('status', $4::text))`,
    [actor, via, id, before],
  )
}
