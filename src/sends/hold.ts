import type { Db, Tx } from '../db.ts'
import { byPerson } from './lifecycle.ts'
import type { CallOutcome } from './outcome.ts'

/** Unknown answers in a row after which nobody calls any more but a probe. */
const UNKNOWN_BEFORE_HOLD = 5

/** By whom sending was held, where it may lift itself: a probe that is accepted shows that all is well again. */
export const BY_ITSELF = 'oncehook'

/** Whether sends may be claimed: freely, by this one probe, or not at all. */
export type Leave = 'free' | 'probe' | 'held'

/** As the migration that made the row wrote it: the server, and its timeline, which a recovery from a backup counts up. */
const DATABASE = `(select system_identifier || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) from pg_control_system())`

/** What happens without a person stands in the audit too. */
const AUDITED = `insert into audit_log (actor, via, action, subject, reason) select '${BY_ITSELF}', '${BY_ITSELF}',`

/**
 * Holds sending, and the matching by recipient, when the database has been restored since the last look: its rows may not know of
 * all that was sent, and only a person can tell. True when this look found it.
 */
export async function noticeRestore(db: Db): Promise<boolean> {
  const { rowCount } = await db.query({
    name: 'notice-restore',
    text: `with held as (
        update sending_control set database_id = ${DATABASE}, version = version + 1, held_by = 'restore', held_at = now(), next_probe_at = null,
          held_reason = $1, matching = 'suggest', matching_reason = $1, matching_at = now()
        where database_id <> ${DATABASE} returning held_reason
      )
      ${AUDITED} 'pause sending', 'sending', held_reason from held`,
    values: ['the database was restored: what was sent since the backup may be missing in it'],
  })
  return rowCount === 1
}

/** Asks for leave to claim. While sending is held for what its calls said, one caller gets a probe now and then. */
export async function askLeave(db: Db, probeEveryMs: number): Promise<Leave> {
  const { rows } = await db.query<{ is_held: boolean; is_probe: boolean }>({
    name: 'ask-leave',
    text: `with probe as (
        update sending_control set next_probe_at = now() + $1::float8 * interval '1 ms'
        where held_by = $2 and next_probe_at <= now() returning 1
      )
      select held_reason is not null as is_held, exists (select from probe) as is_probe from sending_control`,
    values: [probeEveryMs, BY_ITSELF],
  })
  const { is_held, is_probe } = rows[0] ?? { is_held: true, is_probe: false }
  return is_probe ? 'probe' : is_held ? 'held' : 'free'
}

/** Tells whether sending is held now. */
export async function isHeld(db: Db): Promise<boolean> {
  const { rows } = await db.query<{ is_held: boolean }>('select held_reason is not null as is_held from sending_control')
  return rows[0]?.is_held ?? true
}

/**
 * Counts what a call said, as the last thing that its recording writes: 5 unknown answers in a row, or a key that is refused, hold
 * sending for all processes; a probe that Inboxili accepts lifts that. True when this call made the difference.
 */
export async function noteOutcome(tx: Tx, outcome: CallOutcome, isProbe: boolean, probeEveryMs: number): Promise<boolean> {
  if (outcome.kind === 'accepted') {
    // Most often there is nothing to write, and nobody waits for anybody.
    await tx.query({
      name: 'forget-trouble',
      text: 'update sending_control set unknown_in_a_row = 0 where unknown_in_a_row > 0',
    })
    if (!isProbe) return false
    const { rowCount } = await tx.query({
      name: 'lift-hold',
      text: `with old as (select held_reason from sending_control where held_by = $1 for no key update), lifted as (
          update sending_control set held_reason = null, held_by = null, held_at = null, next_probe_at = null, version = version + 1
          from old where held_by = $1 returning old.held_reason
        )
        insert into audit_log (actor, via, action, subject, reason, before)
        select $1, $1, 'resume sending', 'sending', 'Inboxili took the send that was tried', to_jsonb(held_reason) from lifted`,
      values: [BY_ITSELF],
    })
    return rowCount === 1
  }
  const isRefusedKey = outcome.kind === 'refused' && (outcome.httpStatus === 401 || outcome.httpStatus === 403)
  if (outcome.kind !== 'unknown' && !isRefusedKey) return false
  const { rows } = await tx.query<{ is_new: boolean }>({
    name: 'count-trouble',
    text: `with counted as (
        update sending_control control set
        unknown_in_a_row = control.unknown_in_a_row + (not $2)::int,
        held_reason = case when old.trips then $3 else control.held_reason end,
        held_by = case when old.trips then $4 else control.held_by end,
        held_at = case when old.trips then now() else control.held_at end,
        next_probe_at = case when old.trips then now() + $5::float8 * interval '1 ms' else control.next_probe_at end,
        version = control.version + old.trips::int
      from (select held_reason is null and ($2 or unknown_in_a_row + 1 >= $1) as trips from sending_control for no key update) old
        returning old.trips as is_new, control.held_reason
      ), audited as (${AUDITED} 'pause sending', 'sending', held_reason from counted where is_new)
      select is_new from counted`,
    values: [
      UNKNOWN_BEFORE_HOLD,
      isRefusedKey,
      isRefusedKey ? `Inboxili refuses the API key: ${outcome.error}` : `${UNKNOWN_BEFORE_HOLD} calls in a row ended unknown`,
      BY_ITSELF,
      probeEveryMs,
    ],
  })
  return rows[0]?.is_new ?? false
}

export type Switched = { outcome: 'done'; version: number } | { outcome: 'stale'; version: number }

/** Holds sending, or lets it go on, by a person's will; a hold by a person is lifted by a person only. Audited. */
export async function switchSending(
  tx: Tx,
  { paused, reason, version, actor, via }: { paused: boolean; reason: string; version: number; actor: string; via: string },
): Promise<Switched> {
  const { rows } = await tx.query<{ version: number; before: string | null }>(
    `with old as (select version, held_reason from sending_control for no key update)
     update sending_control set version = sending_control.version + 1, unknown_in_a_row = 0, next_probe_at = null,
       held_reason = case when $1 then $2 end, held_by = case when $1 then $3 end, held_at = case when $1 then now() end
     from old where old.version = $4 returning sending_control.version, old.held_reason as before`,
    [paused, reason, byPerson(actor), version],
  )
  return finish(tx, rows[0], { action: paused ? 'pause sending' : 'resume sending', reason, actor, via })
}

/** Lets events that name only a recipient settle sends again, or not, by a person's will. Audited. */
export async function switchMatching(
  tx: Tx,
  {
    mode,
    reason,
    version,
    actor,
    via,
  }: { mode: 'auto' | 'suggest'; reason: string; version: number; actor: string; via: string },
): Promise<Switched> {
  const { rows } = await tx.query<{ version: number; before: string | null }>(
    `with old as (select version, matching from sending_control for no key update)
     update sending_control set version = sending_control.version + 1, matching = $1, matching_reason = $2, matching_at = now()
     from old where old.version = $3 returning sending_control.version, old.matching as before`,
    [mode, reason, version],
  )
  return finish(tx, rows[0], { action: `matching ${mode}`, reason, actor, via })
}

async function finish(
  tx: Tx,
  row: { version: number; before: string | null } | undefined,
  { action, reason, actor, via }: { action: string; reason: string; actor: string; via: string },
): Promise<Switched> {
  if (!row) {
    const { rows } = await tx.query<{ version: number }>('select version from sending_control')
    return { outcome: 'stale', version: rows[0]?.version ?? 0 }
  }
  await tx.query(
    `insert into audit_log (actor, via, action, subject, reason, before) values ($1, $2, $3, 'sending', $4, to_jsonb($5::text))`,
    [actor, via, action, reason, row.before],
  )
  return { outcome: 'done', version: row.version }
}
