import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { type Db, inTransaction, isStorageAway, type Tx } from '../db.ts'
import type { Log } from '../log.ts'
import { moves, type State } from './lifecycle.ts'
import type { Message } from './message.ts'
import type { CallOutcome } from './outcome.ts'
import type { RateSlot } from './rate-slots.ts'
import { joinReports, lockMessage } from './settle.ts'
import type { EnqueueSends } from './trigger.ts'

export interface SendDeps {
  pool: pg.Pool
  /** Makes the one call and says how it ended; it never throws. */
  call(message: Message): Promise<CallOutcome>
  takeSlot(): Promise<RateSlot>
  holdSlots(seconds: number): Promise<void>
  enqueue: EnqueueSends
  log: Log
  /** Aborted when the process stops: nothing is claimed from then on. It never reaches a call that has begun. */
  stopping: AbortSignal
}

/** A claim: the attempt's ID is the token that guards everything done under it. */
interface Claim {
  key: string
  attempt: string
  message: Message
  /** performance.now() of the claim. */
  at: number
}

const CLAIM_GOOD_FOR_MS = 20_000
const SLOT_GOOD_FOR_MS = 1_000
const CALLS_UNDER_RATE_LIMIT = 5
const REPEAT_FOR_HOURS = 24
const RECORD_TRIES = 3
const LONGEST_WAIT_SECONDS = 300

/**
 * Sends the email of this key, unless somebody else has, does, or it isn't due: at most one call can follow, because the
 * claim is committed before it and only a proof that nothing was sent frees it. Rejects when storage is away; whatever was
 * committed by then is what the sweeps and the next job find.
 */
export async function sendOnce(deps: SendDeps, key: string): Promise<'done' | 'nothing to do'> {
  // A look before the slot, so that a job with nothing to do doesn't use up the budget; the claim decides.
  if (!(await isDue(deps.pool, key))) return 'nothing to do'
  let slot = await deps.takeSlot()
  await pause(slot.waitMs, deps.stopping)
  // The job goes back to the queue, for a process that goes on.
  if (deps.stopping.aborted) throw new Error('stopping: nothing was claimed')

  const claim = await claimSend(deps.pool, key)
  if (!claim) return 'nothing to do'
  // Late calls would bunch up past Inboxili's limit, so a slot that went stale on the way is replaced.
  if (isStale(slot)) {
    slot = await deps.takeSlot()
    await pause(slot.waitMs)
  }
  // Too old, or taken away: the claim never got to `sending`, so the sweep gives the send back.
  if (isTooOld(claim) || !(await startCall(deps.pool, claim))) return 'nothing to do'

  // The commit may have taken long; from here on there is only this check between the claim and the call.
  const outcome = isTooOld(claim) || isStale(slot) ? tooLate : await deps.call(claim.message)
  // Before recording: if the database is away now, this line is the only trace of the message id.
  deps.log.info(
    { attempt: claim.attempt, outcome: outcome.kind, messageId: 'messageId' in outcome ? outcome.messageId : undefined },
    'call ended',
  )
  await record(deps, claim, outcome)
  if (outcome.kind === 'rate_limited' && outcome.retryAfterSeconds !== undefined) {
    await deps.holdSlots(Math.min(outcome.retryAfterSeconds, LONGEST_WAIT_SECONDS)).catch(() => undefined)
  }
  return 'done'
}

const isStale = (slot: RateSlot) => performance.now() - slot.at > SLOT_GOOD_FOR_MS
const isTooOld = (claim: Claim) => performance.now() - claim.at > CLAIM_GOOD_FOR_MS

/** `sending` is committed but nobody called, and nobody will: as sure as a refused connection that nothing was sent. */
const tooLate: CallOutcome = { kind: 'not_sent', code: 'too_late', error: 'too late for the call; nothing was sent' }

async function isDue(db: Db, key: string): Promise<boolean> {
  const { rowCount } = await db.query({
    name: 'is-due',
    text: `select from email_sends where dedupe_key = $1 and state = any ($2) and (state <> 'rejected' or send_after is not null)
      and (send_after is null or send_after <= now())`,
    values: [key, moves.claim.claimed],
  })
  return rowCount === 1
}

/** Takes the key and opens the attempt, in one committed statement. Undefined: it is taken, settled or not due. */
async function claimSend(db: Db, key: string): Promise<Claim | undefined> {
  const attempt = randomUUID()
  const at = performance.now()
  const { rows } = await db.query<{ message: Message }>({
    name: 'claim-send',
    // A rejected send has a send_after only if its job may repeat it; all others wait for the next trigger.
    text: `with claimed as (
        update email_sends set state = 'claimed', version = version + 1, claim_token = $2, claimed_at = now(), sending_at = null, send_after = null
        where dedupe_key = $1 and state = any ($3) and (state <> 'rejected' or send_after is not null)
          and (send_after is null or send_after <= now())
        returning dedupe_key, recipient, message
      ), attempt as (
        insert into send_attempts (id, dedupe_key, recipient, number)
        select $2, dedupe_key, recipient,
          1 + (select coalesce(max(number), 0) from send_attempts earlier where earlier.dedupe_key = claimed.dedupe_key)
        from claimed
      )
      select message from claimed`,
    values: [key, attempt, moves.claim.claimed],
  })
  return rows[0] && { key, attempt, message: rows[0].message, at }
}

/** Commits that the call begins. False: the claim was taken away, and nothing may be called. */
async function startCall(db: Db, claim: Claim): Promise<boolean> {
  const { rowCount } = await db.query({
    name: 'start-call',
    text: `with started as (
        update email_sends set state = 'sending', version = version + 1, sending_at = now()
        where dedupe_key = $1 and claim_token = $2 and state = any ($3) returning claim_token
      )
      update send_attempts set outcome = 'in_flight', called_at = now() from started where send_attempts.id = started.claim_token`,
    values: [claim.key, claim.attempt, moves.claim.sending],
  })
  return rowCount === 1
}

/** Records the answer until it is stored: an answer that is lost would leave a person to find out what we knew. */
async function record(deps: SendDeps, claim: Claim, outcome: CallOutcome): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await inTransaction(deps.pool, (tx) => recordOutcome(tx, deps.enqueue, claim, outcome))
      return
    } catch (error) {
      deps.log.error({ error, attempt: claim.attempt, tries }, 'recording failed')
      // A bug doesn't pass by waiting: then the sweep puts the send in front of a person.
      if (tries >= RECORD_TRIES && (deps.stopping.aborted || !isStorageAway(error))) throw error
      await pause(Math.min(50 * 2 ** tries, 5_000))
    }
  }
}

/**
 * Writes what the call said, once. True when it moved the send; false when somebody decided meanwhile or it stands already,
 * and the answer is kept with its attempt only.
 */
export async function recordOutcome(
  tx: Tx,
  enqueue: EnqueueSends,
  claim: Pick<Claim, 'key' | 'attempt'>,
  outcome: CallOutcome,
): Promise<boolean> {
  const messageId = 'messageId' in outcome ? (outcome.messageId ?? null) : null
  if (messageId !== null) await lockMessage(tx, messageId)

  // The send is locked before its attempt, in the order of the sweeps. The sweep's "unknown" gives way to the answer.
  // One message id belongs to one attempt: an API that hands it out twice must not make us lose the answer.
  const { rowCount: isFirst } = await tx.query({
    name: 'record-attempt',
    text: `with send as (select dedupe_key from email_sends where dedupe_key = $1 for no key update)
      update send_attempts set outcome = $3, ended_at = now(), http_status = $4, error = $5,
        message_id = case when not exists (select from send_attempts other where other.message_id = $6) then $6 end
      from send
      where send_attempts.dedupe_key = send.dedupe_key and id = $2 and message_id is null
        and (outcome = 'in_flight' or (outcome = 'unknown' and ($3 <> 'unknown' or $6::text is not null)))`,
    values: [claim.key, claim.attempt, attemptOutcomes[outcome.kind], httpStatusOf(outcome), errorOf(outcome), messageId],
  })
  if (isFirst !== 1) return false

  const move = await moveSend(tx, claim, outcome)
  if (move?.send_after) await enqueue(tx, [{ key: claim.key, startAfter: move.send_after }])
  if (messageId !== null) await joinReports(tx, messageId)
  return move !== undefined
}

const attemptOutcomes = {
  accepted: 'accepted',
  refused: 'refused',
  rate_limited: 'refused',
  not_sent: 'refused',
  unknown: 'unknown',
} as const satisfies Record<CallOutcome['kind'], string>

/** Moves the send on; undefined when somebody decided meanwhile. A floor under Retry-After: "0" five times is no answer to a limit. */
async function moveSend(
  tx: Tx,
  claim: Pick<Claim, 'key' | 'attempt'>,
  outcome: CallOutcome,
): Promise<{ send_after: Date | null } | undefined> {
  for (const to of targets[outcome.kind]) {
    const { rows } = await tx.query<{ send_after: Date | null }>({
      name: 'record-send',
      text: `update email_sends set state = $3, version = version + 1, last_error = $4,
          message_id = coalesce(message_id, (select message_id from send_attempts where id = $2)),
          completed_at = case when $3 = 'sent' then now() else completed_at end,
          rate_limited_calls = rate_limited_calls + ($5::text = 'rate_limited')::int,
          unreached_calls = unreached_calls + ($5::text = 'not_sent')::int,
          send_after = date_trunc('milliseconds', now() + (1 + 0.2 * random()) * interval '1 s' * case
            when $3 = 'queued' then least(greatest($6::float8, case when $6::float8 is null then 5 else 1 end * 2 ^ rate_limited_calls), $7)
            when $5 = 'not_sent' and not exists (
                select from send_attempts earlier where earlier.dedupe_key = $1
                  and earlier.claimed_at between queued_at and now() - $8::float8 * interval '1 h')
              then least(5 * 2 ^ least(unreached_calls, 10), 900)
          end)
        where dedupe_key = $1 and claim_token = $2 and state = any ($9) and ($3 <> 'queued' or rate_limited_calls + 1 < $10)
        returning send_after`,
      values: [
        claim.key,
        claim.attempt,
        to,
        errorOf(outcome),
        outcome.kind,
        'retryAfterSeconds' in outcome ? (outcome.retryAfterSeconds ?? null) : null,
        LONGEST_WAIT_SECONDS,
        REPEAT_FOR_HOURS,
        moves.answer[to],
        CALLS_UNDER_RATE_LIMIT,
      ],
    })
    if (rows[0]) return rows[0]
  }
  return undefined
}

/** Where an answer takes its send, best first: a 429 queues again unless it was the last that we bear, or the row left `sending`. */
const targets = {
  accepted: ['sent'],
  refused: ['rejected'],
  rate_limited: ['queued', 'rejected'],
  not_sent: ['rejected'],
  unknown: ['needs_review'],
} as const satisfies Record<CallOutcome['kind'], readonly State[]>

const errorOf = (outcome: CallOutcome): string | null => ('error' in outcome ? outcome.error : null)

function httpStatusOf(outcome: CallOutcome): number | null {
  if (outcome.kind === 'rate_limited') return 429
  return 'httpStatus' in outcome ? (outcome.httpStatus ?? null) : null
}

/** Waits; an abort ends the wait early. */
async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (ms > 0) await sleep(ms, undefined, { ...(signal && { signal }) }).catch(() => undefined)
}
