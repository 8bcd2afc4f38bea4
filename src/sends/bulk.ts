import type pg from 'pg'
import { inTransaction, type Tx } from '../db.ts'
import type { Log } from '../log.ts'
import { type DecisionRequest, decideWithin } from './decide.ts'
import { lockFor } from './join.ts'
import type { State } from './lifecycle.ts'
import { rematch } from './settle.ts'
import { findSuggestions, type Verdict } from './suggest.ts'
import type { EnqueueSends } from './trigger.ts'

// Carries out plans of many decisions, each by itself and as a single one is.

export interface BulkDeps {
  pool: pg.Pool
  enqueueSends: EnqueueSends
  isExclusive(): boolean
  log: Log
}

export type BulkDecision = 'sent' | 'abandoned' | 'retry'

/** Why nothing is decided about a send of a plan. */
export type Skipped =
  | 'not_found'
  | 'changed'
  | 'in_flight'
  | 'already_decided'
  /** The evidence speaks for another decision, or for another one than when the plan was made. */
  | 'suggestion_differs'
  /** In bulk a send goes out again only where a sending log shows that it hadn't. */
  | 'not_known_unsent'
  | 'message_taken'

/** Goes on with plans whose process has ended; answers how many this call brought to their end. */
export async function continuePlans(deps: BulkDeps): Promise<number> {
  const { rows } = await deps.pool.query<{ id: string }>(
    `select id from decision_plans where state = 'running' and started_at < now() - interval '1 minute' order by started_at limit 10`,
  )
  let ended = 0
  for (const { id } of rows) {
    // One that fails must not keep those behind it from going on.
    const hasEnded = await continuePlan(deps, id).catch((error: unknown) =>
      deps.log.warn({ error, plan: id }, 'going on with a plan failed'),
    )
    if (hasEnded) ended += 1
  }
  return ended
}

interface Running {
  decision: BulkDecision
  reason: string
  created_by: string
  started_by: string
  via: string
}

/**
 * Does what of a plan is still to be done, one send at a time; any number of processes may. Nothing, unless the plan is running. True for
 * the one call that brings it to its end.
 */
export async function continuePlan(deps: BulkDeps, id: string): Promise<boolean> {
  const { rows } = await deps.pool.query<Running>(
    `select decision, reason, created_by, started_by, via from decision_plans where id = $1 and state = 'running'`,
    [id],
  )
  const [plan] = rows
  if (!plan) return false
  const { rows: due } = await deps.pool.query<{ number: number; dedupe_key: string }>(
    `select number, dedupe_key from decision_plan_sends
     where plan = $1 and skipped is null and decided_at is null order by number`,
    [id],
  )
  // The others are decided all the same; what failed stays due, and the plan running.
  const failures: unknown[] = []
  for (const { number, dedupe_key } of due)
    await decideOne(deps, plan, { plan: id, number }, dedupe_key).catch((error: unknown) => failures.push(error))
  if (failures.length > 0) throw failures[0]
  const { rowCount } = await deps.pool.query(
    `update decision_plans set state = 'done', ended_at = now() where id = $1 and state = 'running' and not exists (
       select from decision_plan_sends where plan = $1 and skipped is null and decided_at is null)`,
    [id],
  )
  return rowCount === 1
}

async function decideOne(
  { pool, enqueueSends, isExclusive, log }: BulkDeps,
  plan: Running,
  place: { plan: string; number: number },
  key: string,
): Promise<void> {
  const result = await inTransaction(pool, (tx) => decidePlanned(tx, enqueueSends, plan, place, key))
  if (!result) return
  log.info({ decision: plan.decision, outcome: result.skipped ?? 'decided', by: plan.started_by, plan: place.plan }, 'decision')
  if (!result.matchKey) return
  // If it fails, the sweep does it.
  await rematch(pool, result.matchKey, isExclusive()).catch((error: unknown) => log.warn({ error }, 'matching again failed'))
}

/** Decides one send and notes it with the plan, in one transaction; undefined when somebody else has done so. */
async function decidePlanned(
  tx: Tx,
  enqueue: EnqueueSends,
  { decision, reason, created_by, started_by, via }: Running,
  { plan, number }: { plan: string; number: number },
  key: string,
): Promise<{ skipped: Skipped | null; matchKey?: string } | undefined> {
  const { rows: sends } = await tx.query<{ match_key: string; state: State; message_id: string | null }>(
    `select match_key, state, planned.message_id from decision_plan_sends planned join email_sends using (dedupe_key)
     where plan = $1 and number = $2`,
    [plan, number],
  )
  // Nothing about the recipient changes from here on: what is suggested now holds until this is committed.
  if (sends[0]) await lockFor(tx, sends[0].match_key, sends[0].message_id ?? undefined)
  const { rows } = await tx.query<{ version: number; suggestion: Verdict; message_id: string | null }>(
    `select version, suggestion, message_id from decision_plan_sends
     where plan = $1 and number = $2 and skipped is null and decided_at is null for update`,
    [plan, number],
  )
  const [planned] = rows
  if (!planned) return undefined
  const note = (skipped: Skipped | null) =>
    tx.query(
      'update decision_plan_sends set skipped = $3, decided_at = case when $3::text is null then now() end where plan = $1 and number = $2',
      [plan, number, skipped],
    )
  const skip = async (skipped: Skipped) => {
    await note(skipped)
    return { skipped }
  }
  const now = (await findSuggestions(tx, [key], new Date())).get(key)
  const { version, suggestion, message_id } = planned
  const plannedBy = created_by === started_by ? undefined : created_by
  const by = { version, reason, actor: started_by, via, plannedBy }
  const request: DecisionRequest =
    decision === 'sent' ? { decision, messageId: message_id ?? undefined, ...by } : { decision, ...by }
  const isSame = now?.verdict === suggestion && now.message_id === message_id
  // A send that has changed is told so, whatever is suggested for it by now.
  if (!isSame && (await isAt(tx, key, version))) return skip('suggestion_differs')
  const decided = await decideWithin(tx, enqueue, key, request)
  switch (decided.outcome) {
    case 'decided':
      await note(null)
      return { skipped: null, matchKey: decided.matchKey }
    case 'message_taken':
    case 'not_found':
      return skip(decided.outcome)
    default:
      return skip('changed')
  }
}

async function isAt(tx: Tx, key: string, version: number): Promise<boolean> {
  const { rowCount } = await tx.query('select from email_sends where dedupe_key = $1 and version = $2', [key, version])
  return rowCount === 1
}
