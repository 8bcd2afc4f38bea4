import type pg from 'pg'
import { inTransaction, type Tx } from '../db.ts'
import { joinReports, lockFor } from './join.ts'
import { byPerson, moves, type State, type Status } from './lifecycle.ts'
import { RULE_VERSION } from './match.ts'
import { asksFor, operatorNamed } from './second-person.ts'
import type { EnqueueSends } from './trigger.ts'

/** What a person says of a send whose outcome nobody could tell, or that it is to be looked at again. */
export type Decision = { decision: 'sent'; messageId?: string | undefined } | { decision: 'abandoned' | 'retry' | 'reopen' }

/** A decision by somebody, for a reason, on the send as it was seen. */
export type DecisionRequest = Decision & {
  version: number
  reason: string
  actor: string
  via: string
  /** Of a plan that somebody else carries out: who made it, and gave the reason. */
  plannedBy?: string | undefined
}

export type Decided =
  | { outcome: 'decided'; version: number; matchKey: string }
  /** A retry takes two people, and this one is noted as the first. */
  | { outcome: 'asked' }
  /** They are the first already. */
  | { outcome: 'second_person_needed' }
  /** A retry takes two people, and who asks is none: a program, or nobody that is an operator. */
  | { outcome: 'no_person' }
  | { outcome: 'not_found' }
  /** The send has changed since it was seen, or its state doesn't allow the decision. */
  | { outcome: 'stale' | 'not_allowed'; status: Status; version: number }
  /** The message ID belongs to another send's call, its events to another recipient, or each call of this one has another. */
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
export async function decide(
  pool: pg.Pool,
  enqueue: EnqueueSends,
  key: string,
  request: DecisionRequest,
  takesTwo = false,
): Promise<Decided> {
  return inTransaction(pool, (tx) => decideWithin(tx, enqueue, key, request, takesTwo && request.decision === 'retry'))
}

/** The same within a transaction that has locked no row of a send or a report yet; `takesTwo` if another person must have asked for it. */
export async function decideWithin(
  tx: Tx,
  enqueue: EnqueueSends,
  key: string,
  request: DecisionRequest,
  takesTwo = false,
): Promise<Decided> {
  const seen = await findRow(tx, key)
  if (!seen) return { outcome: 'not_found' }
  const messageId = request.decision === 'sent' ? request.messageId : undefined
  // Before any row, as everybody who binds a message does.
  await lockFor(tx, seen.match_key, messageId)
  const call = messageId === undefined ? undefined : await findCallOf(tx, key, messageId)
  if (messageId !== undefined && call === undefined) return { outcome: 'message_taken' }
  const to = targets[request.decision]
  const { rows } = await tx.query<{ version: number; before: object; operator: string | null }>({
    name: 'decide-send',
    text: `with old as (select * from email_sends where dedupe_key = $1 for no key update), operator as (${operatorNamed('$5::text')})
      update email_sends sends set state = $2, version = sends.version + 1, last_error = case when $2 = 'queued' then null else sends.last_error end,
        message_id = coalesce($6, sends.message_id),
        completed_at = case when $2 = 'sent' then now() when $2 = 'needs_review' then null else sends.completed_at end,
        settled_at = case when $2 in ('sent', 'abandoned') then now() when $2 = 'needs_review' then null else sends.settled_at end,
        settled_by = case when $2 in ('sent', 'abandoned') then $5 when $2 = 'needs_review' then null else sends.settled_by end,
        queued_at = case when $2 = 'queued' then clock_timestamp() else sends.queued_at end, send_after = null,
        rate_limited_calls = 0, unreached_calls = 0
      from old where sends.dedupe_key = old.dedupe_key and old.version = $3 and old.state = any ($4)
        and (not $7 or exists (select from operator, (${asksFor('$1', '$3::int')}) asks where asks.asker <> operator.id))
      returning sends.version, jsonb_build_object('state', old.state, 'version', old.version) as before, (select actor from operator) as operator`,
    values: [key, to, request.version, moves.person[to], byPerson(request.actor), messageId ?? null, takesTwo],
  })
  const decided = rows[0]
  if (!decided) {
    const now = (await findRow(tx, key)) ?? seen
    if (takesTwo && now.version === request.version && now.status === 'needs_review')
      return { outcome: await askFor(tx, key, request) }
    return { outcome: now.version === request.version ? 'not_allowed' : 'stale', status: now.status, version: now.version }
  }
  if (to === 'queued') await enqueue(tx, [{ key }])
  if (to === 'sent' || to === 'abandoned') await keepEvidence(tx, key, call, to, request)
  await tx.query({
    name: 'audit-decision',
    text: `insert into audit_log (actor, via, action, subject, reason, before, after)
      values ($1, $2, $3, 'send:' || $4, $5, $6,
        jsonb_build_object('state', $7::text, 'version', $8::int) || jsonb_strip_nulls(jsonb_build_object('planned_by', $9::text)))`,
    values: [
      (takesTwo && decided.operator) || request.actor,
      request.via,
      request.decision,
      key,
      request.reason,
      decided.before,
      to,
      decided.version,
      request.plannedBy ?? null,
    ],
  })
  if (messageId !== undefined) {
    await tx.query('update send_attempts set message_id = $2 where id = $1 and message_id is null', [call, messageId])
    await joinReports(tx, messageId)
  }
  // Facts of the message's events may have counted it up once more.
  const now = await findRow(tx, key)
  return { outcome: 'decided', version: now?.version ?? decided.version, matchKey: seen.match_key }
}

/** Notes that a person wants a resend, under their name as it is kept, where nobody can change it. */
async function askFor(
  tx: Tx,
  key: string,
  { version, actor, via, reason }: DecisionRequest,
): Promise<'asked' | 'second_person_needed' | 'no_person'> {
  const { rows } = await tx.query<{ outcome: 'asked' | 'second_person_needed' | 'no_person' }>(
    `with operator as (${operatorNamed('$6::text')}), asked as (
       insert into audit_log (actor, via, action, subject, reason, after)
       select actor, $3, 'ask_retry', 'send:' || $1, $4, $5 from operator
       where not exists (select from (${asksFor('$1', '$2::int')}) asks where asks.asker = operator.id) returning id
     )
     select case when not exists (select from operator) then 'no_person' when exists (select from asked) then 'asked'
       else 'second_person_needed' end as outcome`,
    [key, version, via, reason, { version }, byPerson(actor)],
  )
  return rows[0]?.outcome ?? 'no_person'
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

/** The call of this send whose message it is, else the latest that may be it. The message is locked, so that nobody takes it meanwhile. */
async function findCallOf(tx: Tx, key: string, messageId: string): Promise<string | undefined> {
  const { rows } = await tx.query<{ id: string }>(
    `select id from send_attempts where dedupe_key = $1
       and (message_id = $2 or (message_id is null and outcome in ('in_flight', 'unknown', 'accepted')
         and not exists (select from send_attempts where message_id = $2)
         and not exists (select from delivery_reports reports where message_id = $2 and reports.match_key <> send_attempts.match_key)))
     order by number desc limit 1`,
    [key, messageId],
  )
  return rows[0]?.id
}

async function keepEvidence(
  tx: Tx,
  key: string,
  call: string | undefined,
  to: State,
  { actor, reason }: DecisionRequest,
): Promise<void> {
  await tx.query({
    name: 'keep-decision',
    text: `insert into settlements (dedupe_key, attempt, grade, rule_version, from_state, to_state, candidates, evidence, actor)
      select $1, id, 'P', $2, 'needs_review', $3, jsonb_build_array(id), jsonb_build_object('reason', $4::text), $5
      from send_attempts where dedupe_key = $1 and ($6::uuid is null or id = $6) order by number desc limit 1`,
    values: [key, RULE_VERSION, to, reason, byPerson(actor), call ?? null],
  })
}
