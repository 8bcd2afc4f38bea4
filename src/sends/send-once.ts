import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { type Db, inTransaction, isStorageAway } from '../db.ts'
import { reached } from '../fault-points.ts'
import type { Log } from '../log.ts'
import { askLeave, BY_ITSELF, noteOutcome, noticeRestore } from './hold.ts'
import { moves } from './lifecycle.ts'
import type { Message } from './message.ts'
import type { CallOutcome } from './outcome.ts'
import type { RateSlot } from './rate-slots.ts'
import { type Called, recordOutcome } from './record.ts'
import { rematch } from './settle.ts'
import type { EnqueueSends } from './trigger.ts'

export interface SendDeps {
  pool: pg.Pool
  /** Makes the one call and says how it ended; it never throws. */
  call(message: Message): Promise<CallOutcome>
  takeSlot(): Promise<RateSlot>
  holdSlots(seconds: number): Promise<void>
  enqueue: EnqueueSends
  /** While sending is held, one send is tried so often. */
  probeEveryMs: number
  /** Nobody but this service sends with the account. */
  isExclusive(): boolean
  log: Log
  /** Aborted when the process stops: nothing is claimed from then on. It never reaches a call that has begun. */
  stopping: AbortSignal
}

/** A claim: the attempt's ID is the token that guards everything done under it. */
interface Claim extends Called {
  message: Message
  /** It was made although sending is held, to see whether all is well again. */
  isProbe: boolean
  /** performance.now() of the claim. */
  at: number
}

const CLAIM_GOOD_FOR_MS = 20_000
const SLOT_GOOD_FOR_MS = 1_000
const RECORD_TRIES = 3
const LONGEST_HOLD_SECONDS = 300

/**
 * Sends the email of this key, unless somebody else has, does, or it isn't due: at most one call can follow, because the
 * claim is committed before it and only a proof that nothing was sent frees it. Rejects when storage is away; whatever was
 * committed by then is what the sweeps and the next job find.
 */
export async function sendOnce(deps: SendDeps, key: string): Promise<'done' | 'nothing to do'> {
  // A look before the slot, so that a job with nothing to do doesn't use up the budget; the claim decides.
  if (!(await isDue(deps.pool, key))) return 'nothing to do'
  if (await noticeRestore(deps.pool)) deps.log.error({}, 'the database was restored: sending is held until a person has looked')
  const leave = await askLeave(deps.pool, deps.probeEveryMs)
  // The sweep makes a new job when it goes on, or when a probe is due.
  if (leave === 'held') return 'nothing to do'
  let slot = await deps.takeSlot()
  await pause(slot.waitMs, deps.stopping)
  // The job goes back to the queue, for a process that goes on.
  if (deps.stopping.aborted) throw new Error('stopping: nothing was claimed')

  await reached('send.before_claim')
  const claim = await claimSend(deps.pool, key, leave === 'probe')
  if (!claim) return 'nothing to do'
  await reached('send.claimed')
  // Late calls would bunch up past Inboxili's limit, so a slot that went stale on the way is replaced.
  if (isStale(slot)) {
    slot = await deps.takeSlot()
    await pause(slot.waitMs)
  }
  // Too old, or taken away: the claim never got to `sending`, so the sweep gives the send back.
  if (isTooOld(claim) || !(await startCall(deps.pool, claim))) return 'nothing to do'

  // The commit may have taken long; from here on there is only this check between the claim and the call.
  const outcome = isTooOld(claim) || isStale(slot) ? tooLate : await deps.call(claim.message)
  await reached('send.response_received')
  // Before recording: if the database is away now, this line is the only trace of the message id.
  deps.log.info(
    { attempt: claim.attempt, outcome: outcome.kind, messageId: 'messageId' in outcome ? outcome.messageId : undefined },
    'call ended',
  )
  await record(deps, claim, outcome)
  await reached('send.recorded')
  // Events of this recipient may have waited for this; if it fails, the sweep does it.
  await rematch(deps.pool, claim.matchKey, deps.isExclusive()).catch((error: unknown) =>
    deps.log.warn({ error, attempt: claim.attempt }, 'matching again failed'),
  )
  if (outcome.kind === 'rate_limited' && outcome.retryAfterSeconds !== undefined) {
    await deps.holdSlots(Math.min(outcome.retryAfterSeconds, LONGEST_HOLD_SECONDS)).catch(() => undefined)
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
async function claimSend(db: Db, key: string, isProbe: boolean): Promise<Claim | undefined> {
  const attempt = randomUUID()
  const at = performance.now()
  const { rows } = await db.query<{ message: Message; match_key: string }>({
    name: 'claim-send',
    // A rejected send has a send_after only if its job may repeat it; all others wait for the next trigger.
    text: `with claimed as (
        update email_sends set state = 'claimed', version = version + 1, claim_token = $2, claimed_at = now(), sending_at = null, send_after = null
        where dedupe_key = $1 and state = any ($3) and (state <> 'rejected' or send_after is not null)
          and (send_after is null or send_after <= now())
          and not exists (select from sending_control where held_reason is not null and not ($4 and held_by = $5))
        returning dedupe_key, recipient, match_key, message
      ), attempt as (
        insert into send_attempts (id, dedupe_key, recipient, match_key, number)
        select $2, dedupe_key, recipient, match_key,
          1 + (select coalesce(max(number), 0) from send_attempts earlier where earlier.dedupe_key = claimed.dedupe_key)
        from claimed
      )
      select message, match_key from claimed`,
    values: [key, attempt, moves.claim.claimed, isProbe, BY_ITSELF],
  })
  return rows[0] && { key, attempt, message: rows[0].message, matchKey: rows[0].match_key, isProbe, at }
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
      const { recorded, isTurn } = await inTransaction(deps.pool, async (tx) => {
        // After a commit in doubt it may be recorded already, and then it is counted too.
        const recorded = await recordOutcome(tx, deps.enqueue, claim, outcome)
        return {
          recorded,
          isTurn: recorded !== 'repeated' && (await noteOutcome(tx, outcome, claim.isProbe, deps.probeEveryMs)),
        }
      })
      deps.log.info({ attempt: claim.attempt, outcome: outcome.kind, recorded }, 'answer recorded')
      if (isTurn && outcome.kind === 'accepted') deps.log.info({ attempt: claim.attempt }, 'sending goes on')
      else if (isTurn) deps.log.error({ attempt: claim.attempt, outcome: outcome.kind }, 'sending is held')
      return
    } catch (error) {
      deps.log.error({ error, attempt: claim.attempt, tries }, 'recording failed')
      // A bug doesn't pass by waiting: then the sweep puts the send in front of a person.
      if (tries >= RECORD_TRIES && (deps.stopping.aborted || !isStorageAway(error))) throw error
      await pause(Math.min(50 * 2 ** tries, 5_000))
    }
  }
}

/** Waits; an abort ends the wait early. */
async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (ms > 0) await sleep(ms, undefined, { ...(signal && { signal }) }).catch(() => undefined)
}
