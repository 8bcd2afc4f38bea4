import type pg from 'pg'
import { inTransaction, type Tx } from '../db.ts'
import { moves, type State, type Status } from './lifecycle.ts'
import { RULE_VERSION } from './match.ts'
import { joinReports, lockFor } from './settle.ts'
import type { EnqueueSends } from './trigger.ts'

/** What a person says of a send whose outcome nobody could tell, or that it is to be looked at again. */
export type Decision = { decision: 'sent'; messageId?: string | undefined } | { decision: 'abandoned' | 'retry' | 'reopen' }

/** A decision by somebody, for a reason, on the send as it was seen. */
export type DecisionRequest = Decision & { version: number; reason: string; actor: string; via: string }

export type Decided =
  | { outcome: 'decided'; version: number; matchKey: string }
  | { outcome: 'not_found' }
  /** The send has changed since it was seen, or its state doesn't allow the decision. */
  | { outcome: 'stale' | 'not_allowed'; status: Status; version: number }
  /** The message ID belongs to another send's call. */
  | { outcome: 'message_taken' }

/** Where each decision takes a send. */
const targets = { sent: 'sent', abandoned: 'abandoned', retry: 'queued', reopen: 'needs_review' } as const satisfies Record<
  Decision['decision'],
  State
>

/**
 * Carries out a person's decision, once: of two at the same time one wins, as the version that was seen guards the row. A retry makes
 * its job in the same commit; the call that may have sent is kept. Audited with the reason, in the same transaction.
 */
export async function decide(pool: pg.Pool, enqueue: EnqueueSends, key: string, request: DecisionRequest): Promise<Decided> {
  return inTransaction(pool, async (tx) => {
    const seen = await findRow(tx, key)
    if (!seen) return { outcome: 'not_found' }
    const messageId = request.decision === 'sent' ? request.messageId : undefined
    // Before any row, as everybody who binds a message does.
    await lockFor(tx, seen.match_key, messageId)
    if (messageId !== undefined && (await isAnothers(tx, key, messageId))) return { outcome: 'message_taken' }
    const to = targets[request.decision]
    const { rows } = await tx.query<{ version: number; before: object }>({
      name: 'decide-send',
      text: `with old as (select * from email_sends where dedupe_key = $1 for no key update)
        update email_sends sends set state = $2, version = sends.version + 1, last_error = case when $2 = 'queued' then null else sends.last_error end,
          completed_at = case when $2 = 'sent' then now() else sends.completed_at end,
          settled_at = case when $2 in ('sent', 'abandoned') then now() when $2 = 'needs_review' then null else sends.settled_at end,
          settled_by = case when $2 in ('sent', 'abandoned') then 'person:' || $5 when $2 = 'needs_review' then null else sends.settled_by end,
          queued_at = case when $2 = 'queued' then now() else sends.queued_at end, send_after = null,
          rate_limited_calls = 0, unreached_calls = 0
        from old where sends.dedupe_key = old.dedupe_key and old.version = $3 and old.state = any ($4)
        returning sends.version, jsonb_build_object('state', old.state, 'version', old.version) as before`,
      values: [key, to, request.version, moves.person[to], request.actor],
    })
    const decided = rows[0]
    if (!decided) {
      const now = (await findRow(tx, key)) ?? seen
      return { outcome: now.version === request.version ? 'not_allowed' : 'stale', status: now.status, version: now.version }
    }
    if (messageId !== undefined) await attachMessage(tx, key, messageId)
    if (to === 'queued') await enqueue(tx, [{ key }])
    if (to === 'sent' || to === 'abandoned') await keepEvidence(tx, key, to, request)
    await tx.query({
      name: 'audit-decision',
      text: `insert into audit_log (actor, via, action, subject, reason, before, after)
        values ($1, $2, $3, 'send:' || $4, $5, $6, jsonb_build_object('state', $7::text, 'version', $8::int))`,
      values: [request.actor, request.via, request.decision, key, request.reason, decided.before, to, decided.version],
    })
    if (messageId !== undefined) await joinReports(tx, messageId)
    return { outcome: 'decided', version: decided.version, matchKey: seen.match_key }
  })
}

interface Row {
  status: Status
  version: number
  match_key: string
}

async function findRow(tx: Tx, key: string): Promise<Row | undefined> {
  const { rows } = await tx.query<Row>('select status, version, match_key from email_sends where dedupe_key = $1', [key])
  return rows[0]
}

/** The message is locked, so that nobody can take it meanwhile. */
async function isAnothers(tx: Tx, key: string, messageId: string): Promise<boolean> {
  const { rowCount } = await tx.query('select from send_attempts where message_id = $1 and dedupe_key <> $2', [messageId, key])
  return rowCount !== 0
}

/** Gives a message to the latest call that has none, unless one of the send's calls has it already. */
async function attachMessage(tx: Tx, key: string, messageId: string): Promise<void> {
  await tx.query({
    name: 'attach-message',
    text: `update send_attempts set message_id = $2
      where id = (select id from send_attempts where dedupe_key = $1 and message_id is null and called_at is not null order by number desc limit 1)
        and not exists (select from send_attempts where message_id = $2)`,
    values: [key, messageId],
  })
  await tx.query('update email_sends set message_id = $2 where dedupe_key = $1', [key, messageId])
}

async function keepEvidence(tx: Tx, key: string, to: State, { actor, reason }: DecisionRequest): Promise<void> {
  await tx.query({
    name: 'keep-decision',
    text: `insert into settlements (dedupe_key, attempt, grade, rule_version, from_state, to_state, candidates, evidence, actor)
      select $1, id, 'P', $2, 'needs_review', $3, jsonb_build_array(id), jsonb_build_object('reason', $4::text), 'person:' || $5
      from send_attempts where dedupe_key = $1 order by number desc limit 1`,
    values: [key, RULE_VERSION, to, reason, actor],
  })
}
