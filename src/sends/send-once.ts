import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { type Db, inTransaction, type Tx } from '../db.ts'
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

/**
 * Sends the email of this key, unless somebody else has, does, or it isn't due: at most one call can follow, because the
 * claim is committed before it and only a proof that nothing was sent frees it. Rejects when storage is away; whatever was
 * committed by then is what the sweeps and the next job find.
 */
export async function sendOnce(deps: SendDeps, key: string): Promise<'done' | 'nothing to do'> {
  // A look before the slot, so that a job with nothing to do doesn't use up the budget; the claim decides.
  if (!(await isDue(deps.pool, key))) return 'nothing to do'
  const slot = await deps.takeSlot()
  await pause(slot.waitMs, deps.stopping)
  // The job goes back to the queue, for a process that goes on.
  if (deps.stopping.aborted) throw new Error('stopping: nothing was claimed')

  const claim = await claimSend(deps.pool, key)
  if (!claim) return 'nothing to do'
  // Late calls would bunch up past Inboxili's limit, so a slot that went stale on the way is replaced.
  if (performance.now() - slot.at > SLOT_GOOD_FOR_MS) await pause((await deps.takeSlot()).waitMs)
  // Too late, or taken away: the claim never got to `sending`, so the sweep gives the send back.
  if (!(await startCall(deps.pool, claim))) return 'nothing to do'

  const outcome = await deps.call(claim.message)
  // Before recording: if the database is away now, this line is the only trace of the message id.
  deps.log.info(
    { attempt: claim.attempt, outcome: outcome.kind, messageId: 'messageId' in outcome ? outcome.messageId : undefined },
    'called',
  )
  if (outcome.kind === 'rate_limited' && outcome.retryAfterSeconds !== undefined) {
    await deps.holdSlots(Math.min(outcome.retryAfterSeconds, 300)).catch(() => undefined)
  }
  await record(deps, claim, outcome)
  return 'done'
}

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
        select $2, dedupe_key, recipient, 1 + (select count(*) from send_attempts earlier where earlier.dedupe_key = claimed.dedupe_key)
        from claimed
      )
      select message from claimed`,
    values: [key, attempt, moves.claim.claimed],
  })
  return rows[0] && { key, attempt, message: rows[0].message, at }
}

/** Commits that the call begins. False: the claim is too old or was taken away, and nothing may be called. */
async function startCall(db: Db, claim: Claim): Promise<boolean> {
  if (performance.now() - claim.at > CLAIM_GOOD_FOR_MS) return false
  const { rowCount } = await db.query({
    name: 'start-call',
    text: `with started as (
        update email_sends set state = 'sending', version = version + 1, sending_at = now()
        where dedupe_key = $1 and claim_token = $2 and state = any ($3) returning claim_token
      )
      update send_attempts set outcome = 'in_flight', called_at = now() from started where send_attempts.id = started.claim_token`,
    values: [claim.key, claim.attempt, moves.claim.sending],
  })
  // The commit may have taken long; from here on there is only this check between the claim and the call.
  return rowCount === 1 && performance.now() - claim.at <= CLAIM_GOOD_FOR_MS
}

/** Records the answer until it is stored: an answer that is lost would leave a person to find out what we knew. */
async function record(deps: SendDeps, claim: Claim, outcome: CallOutcome): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await inTransaction(deps.pool, (tx) => recordOutcome(tx, deps.enqueue, claim, outcome))
      return
    } catch (error) {
      deps.log.error({ error, attempt: claim.attempt, tries }, 'recording failed')
      if (deps.stopping.aborted && tries >= 3) throw error
      await pause(Math.min(250 * 2 ** tries, 5_000))
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

  // One message id belongs to one attempt: an API that hands it out twice must not make us lose the answer.
  const { rowCount: isFirst } = await tx.query({
    name: 'record-attempt',
    text: `update send_attempts set outcome = $2, ended_at = now(), http_status = $3, error = $4,
        message_id = case when exists (select from send_attempts other where other.message_id = $5) then null else $5 end
      where id = $1 and outcome in ('in_flight', 'unknown') and message_id is null`,
    values: [
      claim.attempt,
      attemptOutcomes[outcome.kind],
      'httpStatus' in outcome ? (outcome.httpStatus ?? null) : null,
      errorOf(outcome),
      messageId,
    ],
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
          refused_calls = case when $5::text is null then refused_calls else refused_calls + 1 end,
          send_after = case
            when $5 = 'rate_limited' and $3 = 'queued' then now() + least(coalesce($6::float8, 5 * 2 ^ refused_calls), 300) * (1 + 0.2 * random()) * interval '1 s'
            when $5 = 'not_sent' and queued_at > now() - $7::float8 * interval '1 h'
              then now() + least(5 * 2 ^ least(refused_calls, 10), 900) * (1 + 0.2 * random()) * interval '1 s'
          end
        where dedupe_key = $1 and claim_token = $2 and state = any ($8) and ($3 <> 'queued' or refused_calls + 1 < $9)
        returning send_after`,
      values: [
        claim.key,
        claim.attempt,
        to,
        errorOf(outcome),
        outcome.kind === 'rate_limited' || outcome.kind === 'not_sent' ? outcome.kind : null,
        'retryAfterSeconds' in outcome ? (outcome.retryAfterSeconds ?? null) : null,
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

/** Waits; an abort ends the wait early. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (ms <= 0 || signal?.aborted) return done()
    const finish = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', finish)
      done()
    }
    const timer = setTimeout(finish, ms)
    signal?.addEventListener('abort', finish, { once: true })
  })
}
