import type { Db } from '../db.ts'
import { type BulkDecision, continuePlan, type Skipped } from '../sends/bulk.ts'
import { byPerson, type State } from '../sends/lifecycle.ts'
import { operatorNamed } from '../sends/second-person.ts'
import { findSuggestions, type Suggestion, type Verdict } from '../sends/suggest.ts'
import type { DecideDeps } from './decide-send.ts'
import { listReview } from './review-queries.ts'

// Decisions about many sends: what would change is looked at first; then each is carried out by itself, as a single one is.

/** One plan takes so many sends. */
export const MOST_IN_A_PLAN = 500
/** From so many on, who confirms says how many they are. */
export const CONFIRMED_FROM = 11
const PLAN_GOOD_FOR_MINUTES = 10

/** One decision for these sends, or for all that need one and match. */
export type PlanRequest = { decision: BulkDecision; reason: string } & (
  | { sends: readonly { key: string; version?: number | undefined }[] }
  | { filter: { suggestion?: Verdict | undefined } }
)

export interface PlannedSend {
  dedupe_key: string
  /** As it was when the plan was made; null for a key that nobody knows. */
  version: number | null
  recipient: string | null
  suggestion: Verdict | null
  result: 'will_change' | 'decided' | 'skipped'
  skipped: Skipped | null
}

/** A plan, and what became of it. */
export interface DecisionPlan {
  id: string
  state: 'planned' | 'running' | 'done'
  decision: BulkDecision
  reason: string
  will_change: number
  decided: number
  skipped: number
  /** More sends matched than one plan takes. */
  has_more: boolean
  created_at: Date
  created_by: string
  expires_at: Date
  started_at: Date | null
  started_by: string | null
  ended_at: Date | null
  sends: PlannedSend[]
}

interface Item {
  key: string
  version: number | null
  suggestion: Suggestion | undefined
  skipped: Skipped | null
}

/** Looks at what a decision would change, and keeps exactly these sends and versions as a plan for ten minutes. Decides nothing. */
export async function planDecisions(
  { pool }: Pick<DecideDeps, 'pool'>,
  request: PlanRequest,
  actor: string,
): Promise<DecisionPlan> {
  const items = 'filter' in request ? await itemsMatching(pool, request) : await itemsOf(pool, request)
  const kept = items.slice(0, MOST_IN_A_PLAN)
  const { rows } = await pool.query<{ id: string }>(
    `with forgotten as (delete from decision_plans where state = 'planned' and expires_at < now() - interval '1 day'),
     plan as (
       insert into decision_plans (decision, reason, has_more, created_by, expires_at)
       values ($1, $2, $3, $4, now() + ${PLAN_GOOD_FOR_MINUTES} * interval '1 minute') returning id
     ), sends as (
       insert into decision_plan_sends (plan, number, dedupe_key, version, suggestion, message_id, skipped)
       select plan.id, number, item.dedupe_key, item.version, item.suggestion, item.message_id, item.skipped
       from plan, unnest($5::text[], $6::int[], $7::text[], $8::text[], $9::text[]) with ordinality
         as item (dedupe_key, version, suggestion, message_id, skipped, number)
     )
     select id from plan`,
    [
      request.decision,
      request.reason,
      items.length > kept.length,
      actor,
      kept.map(({ key }) => key),
      kept.map(({ version }) => version),
      kept.map(({ suggestion }) => suggestion?.verdict ?? null),
      kept.map(({ suggestion }) => suggestion?.message_id ?? null),
      kept.map(({ skipped }) => skipped),
    ],
  )
  const plan = await findPlan(pool, rows[0]?.id ?? '')
  if (!plan) throw new Error('a plan that was kept has vanished')
  return plan
}

async function itemsMatching(
  db: Db,
  { decision, filter }: { decision: BulkDecision; filter: { suggestion?: Verdict | undefined } },
): Promise<Item[]> {
  const { sends } = await listReview(db, { suggestion: filter.suggestion, limit: MOST_IN_A_PLAN + 1, cursor: undefined })
  return sends.map(({ dedupe_key, version, suggestion }) => ({
    key: dedupe_key,
    version,
    suggestion,
    skipped:
      filter.suggestion !== undefined && filter.suggestion !== suggestion.verdict
        ? 'suggestion_differs'
        : whyNot(decision, suggestion),
  }))
}

async function itemsOf(
  db: Db,
  { decision, sends }: { decision: BulkDecision; sends: readonly { key: string; version?: number | undefined }[] },
): Promise<Item[]> {
  const seen = new Map(sends.map(({ key, version }) => [key, version]))
  const { rows } = await db.query<{ dedupe_key: string; version: number; state: State }>(
    'select dedupe_key, version, state from email_sends where dedupe_key = any ($1)',
    [[...seen.keys()]],
  )
  const found = new Map(rows.map((row) => [row.dedupe_key, row]))
  const open = rows.filter(({ state }) => state === 'needs_review').map(({ dedupe_key }) => dedupe_key)
  const suggestions = await findSuggestions(db, open, new Date())
  return [...seen].map(([key, version]): Item => {
    const send = found.get(key)
    const suggestion = suggestions.get(key)
    if (!send) return { key, version: null, suggestion, skipped: 'not_found' }
    const isChanged = version !== undefined && version !== send.version
    const skipped = !suggestion ? whyClosed(send.state) : isChanged ? 'changed' : whyNot(decision, suggestion)
    return { key, version: send.version, suggestion, skipped }
  })
}

const whyClosed = (state: State): Skipped =>
  state === 'queued' || state === 'claimed' || state === 'sending' ? 'in_flight' : 'already_decided'

function whyNot(decision: BulkDecision, { verdict }: Suggestion): Skipped | null {
  if (decision === 'retry') return verdict === 'not_sent' ? null : 'not_known_unsent'
  const opposite = decision === 'sent' ? 'not_sent' : 'sent'
  return verdict === opposite ? 'suggestion_differs' : null
}

/** One plan with its sends, as it stands. */
export async function findPlan(db: Db, id: string): Promise<DecisionPlan | undefined> {
  const { rows } = await db.query<Omit<DecisionPlan, 'sends' | 'will_change' | 'decided' | 'skipped'>>(
    `select id, state, decision, reason, has_more, created_at, created_by, expires_at, started_at, started_by, ended_at
     from decision_plans where id = $1`,
    [id],
  )
  const [plan] = rows
  if (!plan) return undefined
  const { rows: sends } = await db.query<PlannedSend>(
    `select planned.dedupe_key, planned.version, recipient, suggestion, skipped,
       case when skipped is not null then 'skipped' when decided_at is not null then 'decided' else 'will_change' end as result
     from decision_plan_sends planned left join email_sends using (dedupe_key) where plan = $1 order by number`,
    [id],
  )
  const count = (result: PlannedSend['result']) => sends.filter((send) => send.result === result).length
  return { ...plan, will_change: count('will_change'), decided: count('decided'), skipped: count('skipped'), sends }
}

export type PlanRun =
  /** All of it is done, by this call or an earlier one. */
  | { outcome: 'done'; plan: DecisionPlan }
  /** There is no such plan, or it has expired. */
  | { outcome: 'not_found' }
  /** It changes more than ten sends, and who asks hasn't said how many. */
  | { outcome: 'unconfirmed'; will_change: number }
  /** It sends again, which takes two operators: who has made the plan, and another. */
  | { outcome: 'second_person_needed' }

/**
 * Carries out a plan, once: each send that still is as it was when the plan was made, and nothing else. Asked for again, or by two at
 * once, it answers the same; after a crash it goes on where it was.
 */
export async function runPlan(
  deps: DecideDeps,
  id: string,
  { actor, via, confirm }: { actor: string; via: string; confirm?: number | undefined },
): Promise<PlanRun> {
  const plan = await findPlan(deps.pool, id)
  if (!plan) return { outcome: 'not_found' }
  const takesTwo = deps.takesTwo() && plan.decision === 'retry'
  if (plan.state === 'planned') {
    const { will_change } = plan
    if (confirm === undefined ? will_change >= CONFIRMED_FROM : confirm !== will_change)
      return { outcome: 'unconfirmed', will_change }
    await deps.pool.query(
      `with operator as (${operatorNamed('$4::text')})
       update decision_plans set state = 'running', started_at = now(), started_by = case when $5 then (select actor from operator) else $2 end, via = $3
       where id = $1 and state = 'planned' and expires_at > now() and (not $5 or exists (
         select from operator, (${operatorNamed(`case when created_by ~ '^(person|token):' then created_by else 'person:' || created_by end`)}) maker
         where maker.id <> operator.id))`,
      [id, actor, via, byPerson(actor), takesTwo],
    )
  }
  await continuePlan(deps, id)
  const done = await findPlan(deps.pool, id)
  if (done?.state === 'planned' && takesTwo && done.expires_at > new Date()) return { outcome: 'second_person_needed' }
  return !done || done.state === 'planned' ? { outcome: 'not_found' } : { outcome: 'done', plan: done }
}
