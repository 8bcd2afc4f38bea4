import type { Tx } from '../db.ts'
import { closeProven, joinReports, lockFor } from './join.ts'
import { moves, type State } from './lifecycle.ts'
import type { CallOutcome } from './outcome.ts'
import { closeUnguarded } from './policies.ts'
import type { EnqueueSends } from './trigger.ts'

/** Which attempt of which send was called; the attempt's ID is the claim token. */
export interface Called {
  key: string
  attempt: string
  /** Under which the recipient is locked. */
  matchKey: string
}

const CALLS_UNDER_RATE_LIMIT = 5
const REPEAT_FOR_HOURS = 24
const LONGEST_RATE_LIMIT_WAIT_SECONDS = 300
const LONGEST_UNREACHED_WAIT_SECONDS = 900

/** What became of an answer: it moved its send; somebody had decided, and it is kept with its attempt; it stood there already. */
export type Recorded = 'moved' | 'kept' | 'repeated'

/** Writes what the call said, once. */
export async function recordOutcome(tx: Tx, enqueue: EnqueueSends, called: Called, outcome: CallOutcome): Promise<Recorded> {
  const messageId = 'messageId' in outcome ? (outcome.messageId ?? null) : null
  await lockFor(tx, called.matchKey, messageId ?? undefined)
  if (!(await closeAttempt(tx, called, outcome, messageId))) return 'repeated'

  const moved = await moveSend(tx, called, outcome)
  const isProven = moved !== undefined && moved.state !== 'sent' && (await closeProven(tx, [called.key])).length > 0
  if (moved?.state === 'needs_review' && !isProven) await closeUnguarded(tx, [called.key])
  const repeatSeconds = moved && !isProven ? secondsUntilRepeat(outcome, moved) : undefined
  if (repeatSeconds !== undefined) await repeatLater(tx, enqueue, called, repeatSeconds)
  if (messageId !== null) await joinReports(tx, messageId)
  return moved ? 'moved' : 'kept'
}

async function closeAttempt(tx: Tx, called: Called, outcome: CallOutcome, messageId: string | null): Promise<boolean> {
  // The send is locked before its attempt, in the order of the sweeps. The sweep's "unknown" gives way to the answer.
  // One message id belongs to one attempt: an API that hands it out twice must not make us lose the answer. An attempt that an
  // event has given its message keeps that.
  const { rowCount } = await tx.query({
    name: 'record-attempt',
    text: `with send as (select dedupe_key from email_sends where dedupe_key = $1 for no key update)
      update send_attempts set outcome = $3, ended_at = clock_timestamp(), http_status = $4, error = $5,
        message_id = coalesce(send_attempts.message_id,
          case when not exists (select from send_attempts other where other.message_id = $6) then $6 end)
      from send
      where send_attempts.dedupe_key = send.dedupe_key and id = $2
        and (outcome = 'in_flight' or (outcome = 'unknown' and ($3 <> 'unknown' or (message_id is null and $6::text is not null))))`,
    values: [called.key, called.attempt, attemptOutcomes[outcome.kind], httpStatusOf(outcome), errorOf(outcome), messageId],
  })
  return rowCount === 1
}

const attemptOutcomes = {
  accepted: 'accepted',
  refused: 'refused',
  rate_limited: 'refused',
  not_sent: 'refused',
  unknown: 'unknown',
} as const satisfies Record<CallOutcome['kind'], string>

/** Where an answer takes its send, best first: a 429 queues again unless it was the last that we bear, or the row left `sending`. */
const targets = {
  accepted: ['sent'],
  refused: ['rejected'],
  rate_limited: ['queued', 'rejected'],
  not_sent: ['rejected'],
  unknown: ['needs_review'],
} as const satisfies Record<CallOutcome['kind'], readonly State[]>

/** The send after its move, with its calls in a row, this one included, that provably sent nothing. */
interface Moved {
  state: State
  rate_limited_calls: number
  unreached_calls: number
  /** Hours since the first call of this trigger. */
  hours: number
}

async function moveSend(tx: Tx, { key, attempt }: Called, outcome: CallOutcome): Promise<Moved | undefined> {
  for (const to of targets[outcome.kind]) {
    const { rows } = await tx.query<Moved>({
      name: 'record-send',
      text: `update email_sends set state = $3, version = version + 1, last_error = $4, send_after = null,
          message_id = case when $3 = 'sent' then (select message_id from send_attempts where id = $2)
            else coalesce((select message_id from send_attempts where id = $2), message_id) end,
          completed_at = case when $3 = 'sent' then now() else completed_at end,
          rate_limited_calls = rate_limited_calls + ($5::text = 'rate_limited')::int,
          unreached_calls = unreached_calls + ($5::text = 'not_sent')::int
        where dedupe_key = $1 and state = any ($6) and ($3 <> 'queued' or rate_limited_calls + 1 < $7)
          and (claim_token = $2 or $3 = 'sent' and state in ('queued', 'rejected') and exists (
            select from send_attempts own where own.id = $2 and lower(own.recipient) = lower(email_sends.recipient)))
        returning state, rate_limited_calls, unreached_calls, (select extract(epoch from now() - min(claimed_at)) / 3600
          from send_attempts where dedupe_key = $1 and claimed_at >= queued_at)::float8 as hours`,
      values: [key, attempt, to, errorOf(outcome), outcome.kind, moves.answer[to], CALLS_UNDER_RATE_LIMIT],
    })
    if (rows[0]) return rows[0]
  }
  return undefined
}

/** When the send's own job may call again: only after a proof that nothing was sent, and only if it may pass by itself. */
function secondsUntilRepeat(
  outcome: CallOutcome,
  { state, rate_limited_calls, unreached_calls, hours }: Moved,
): number | undefined {
  if (outcome.kind === 'rate_limited' && state === 'queued') {
    const backoff = 2 ** (rate_limited_calls - 1)
    // A floor under Retry-After: "0" five times is no answer to a limit.
    return Math.min(Math.max(outcome.retryAfterSeconds ?? 5 * backoff, backoff), LONGEST_RATE_LIMIT_WAIT_SECONDS)
  }
  if (outcome.kind === 'not_sent' && hours < REPEAT_FOR_HOURS) {
    return Math.min(5 * 2 ** Math.min(unreached_calls - 1, 10), LONGEST_UNREACHED_WAIT_SECONDS)
  }
  return undefined
}

async function repeatLater(tx: Tx, enqueue: EnqueueSends, { key, attempt }: Called, seconds: number): Promise<void> {
  // From the call's end on, with jitter, and in whole milliseconds as the job's own time: a job must not find itself too early.
  const { rows } = await tx.query<{ send_after: Date }>({
    name: 'repeat-later',
    text: `update email_sends
      set send_after = date_trunc('milliseconds', ended_at + $2::float8 * (1 + 0.2 * random()) * interval '1 s')
      from send_attempts where id = $3 and email_sends.dedupe_key = $1 returning send_after`,
    values: [key, seconds, attempt],
  })
  if (rows[0]) await enqueue(tx, [{ key, startAfter: rows[0].send_after }])
}

const errorOf = (outcome: CallOutcome): string | null => ('error' in outcome ? outcome.error : null)

function httpStatusOf(outcome: CallOutcome): number | null {
  if (outcome.kind === 'rate_limited') return 429
  return 'httpStatus' in outcome ? (outcome.httpStatus ?? null) : null
}
