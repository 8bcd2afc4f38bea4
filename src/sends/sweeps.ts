import type pg from 'pg'
import { inTransaction, type Tx } from '../db.ts'
import { isHeld } from './hold.ts'
import { closeProven, joinReports, lockFor } from './join.ts'
import { moves } from './lifecycle.ts'
import { closeUnguarded, resendPreferred } from './policies.ts'
import { findJoinable, findRematchable, rematch } from './settle.ts'
import type { EnqueueSends } from './trigger.ts'

/** What one sweep changed. */
export interface SweepResult {
  /** Claims that never got to the call: provably unsent, queued again. */
  staleClaims: number
  /** Calls whose worker is gone: unknown, in front of a person. */
  staleCalls: number
  /** Waiting sends that had no job. */
  orphanSends: number
  /** Sends of policy `prefer_duplicate` that are called again. */
  resends: number
  /** Delivery events that found their send late. */
  joinedMessages: number
}

export interface SweepSettings {
  staleAfterMs: number
  reviewAfterMs: number
  isExclusive: boolean
}

/** Finds what dead workers left. Any number of processes may run it at once; each row moves once, by its own guard. */
export async function sweepSends(
  pool: pg.Pool,
  enqueue: EnqueueSends,
  { staleAfterMs, reviewAfterMs, isExclusive }: SweepSettings,
  findOrphans: FindOrphans,
): Promise<SweepResult> {
  const staleClaims = await inTransaction(pool, (tx) => requeueStaleClaims(tx, enqueue, staleAfterMs))
  const staleCalls = await inTransaction(pool, (tx) => reviewStaleCalls(tx, staleAfterMs))
  const orphanSends = await inTransaction(pool, async (tx) => {
    // While sending is held, one is enough: it is the next probe.
    const keys = await findOrphans(tx, (await isHeld(tx)) ? 1 : 1_000)
    await enqueue(
      tx,
      keys.map((key) => ({ key })),
    )
    return keys.length
  })
  const resends = await inTransaction(pool, (tx) => resendPreferred(tx, enqueue, reviewAfterMs))
  const joinable = await findJoinable(pool, 1_000)
  for (const messageId of joinable) {
    await inTransaction(pool, async (tx) => {
      await lockFor(tx, null, messageId)
      await joinReports(tx, messageId)
    })
  }
  const rematched = await rematchAll(pool, isExclusive)
  return { staleClaims, staleCalls, orphanSends, resends, joinedMessages: joinable.length + rematched }
}

/** Matches all parked events again: a process may have ended before it did so, and a person may have closed the breaker. */
async function rematchAll(pool: pg.Pool, isExclusive: boolean): Promise<number> {
  let joined = 0
  let recipients = await findRematchable(pool, '', 100)
  while (recipients.length > 0) {
    for (const recipient of recipients) joined += await rematch(pool, recipient, isExclusive, 1_000)
    recipients = await findRematchable(pool, recipients.at(-1) ?? '', 100)
  }
  return joined
}

/** Keys of sends that wait and have no unfinished job; the queue knows which. */
export type FindOrphans = (tx: Tx, limit: number) => Promise<string[]>

async function requeueStaleClaims(tx: Tx, enqueue: EnqueueSends, staleAfterMs: number): Promise<number> {
  const { rows } = await tx.query<{ dedupe_key: string }>(
    `with stale as (
       select dedupe_key, claim_token from email_sends
       where state = any ($2) and claimed_at < now() - $1::float8 * interval '1 ms' order by dedupe_key for no key update skip locked limit 1000
     ), closed as (
       update send_attempts set outcome = 'never_called', ended_at = now() from stale
       where send_attempts.id = stale.claim_token and outcome = 'claimed'
     )
     update email_sends set state = 'queued', version = version + 1, claim_token = null,
       last_error = 'the worker stopped before the call; nothing was sent'
     from stale where email_sends.dedupe_key = stale.dedupe_key and email_sends.claim_token = stale.claim_token
     returning email_sends.dedupe_key`,
    [staleAfterMs, moves.sweep.queued],
  )
  const keys = rows.map((row) => row.dedupe_key)
  const proven = await closeProven(tx, keys)
  // The old job is gone: its second worker found the claim taken and ended well.
  await enqueue(
    tx,
    keys.filter((key) => !proven.includes(key)).map((key) => ({ key })),
  )
  return rows.length
}

async function reviewStaleCalls(tx: Tx, staleAfterMs: number): Promise<number> {
  const { rows } = await tx.query<{ dedupe_key: string }>(
    `with stale as (
       select dedupe_key, claim_token from email_sends
       where state = any ($2) and sending_at < now() - $1::float8 * interval '1 ms' order by dedupe_key for no key update skip locked limit 1000
     ), closed as (
       update send_attempts set outcome = 'unknown', ended_at = now(), error = 'worker stopped during send' from stale
       where send_attempts.id = stale.claim_token and outcome = 'in_flight'
     )
     update email_sends set state = 'needs_review', version = version + 1, last_error = 'worker stopped during send'
     from stale where email_sends.dedupe_key = stale.dedupe_key and email_sends.claim_token = stale.claim_token
     returning email_sends.dedupe_key`,
    [staleAfterMs, moves.sweep.needs_review],
  )
  const keys = rows.map((row) => row.dedupe_key)
  const proven = await closeProven(tx, keys)
  await closeUnguarded(
    tx,
    keys.filter((key) => !proven.includes(key)),
  )
  return rows.length
}
