import type { Tx } from '../db.ts'
import { acceptForm, excludeForm } from './address.ts'
import { moves, type Status } from './lifecycle.ts'
import { differingFields, type Message, messageHash } from './message.ts'
import { dropOtherMarks, type Policy, takeMark, takeUnguarded } from './policies.ts'

/** What somebody has just asked for is taken before what sweeps, resends, replays and repeats bring. */
export type Urgency = 'fresh' | 'backlog'

/** The job of a send; of the backlog unless it says otherwise. */
export interface SendJob {
  key: string
  startAfter?: Date | undefined
  urgency?: Urgency | undefined
  /** The ID of the request that it goes back to, for the log. */
  request?: string | undefined
}

/** Makes the job of a send, in the transaction that makes the send wait. */
export type EnqueueSends = (tx: Tx, jobs: readonly SendJob[]) => Promise<void>

/** The same, with the ID of the request that the sends go back to. */
export const enqueueFor =
  (enqueue: EnqueueSends, request: string | undefined): EnqueueSends =>
  (tx, jobs) =>
    enqueue(
      tx,
      jobs.map((job) => ({ ...job, request })),
    )

/** What a trigger asks for. */
export interface SendRequest {
  key: string
  policy: Policy
  message: Message
  sourceEvent: string | undefined
  /** `event:ID`, `token:NAME` or `person:NAME`. */
  requestedBy: string
  /** `fresh` unless it is known to be of the backlog. */
  urgency?: Urgency | undefined
}

export type Triggered =
  /** Under this key: policy `unguarded` adds a random part to it. */
  | { outcome: 'queued'; key: string }
  /** The key is taken, or the mark of policy `timestamp`: by this send. Its message differs in these fields; of a mark's only `to` counts. */
  | { outcome: 'held'; key: string; status: Status; recipient: string; differs: string[] }
  /** Policy `unguarded`: the recipient has had as many of this kind as may be. */
  | { outcome: 'rate_limited' }

const isSameRecipient = 'lower(email_sends.recipient) = lower(excluded.recipient)'

/**
 * Queues a send together with its job; a key that is held (by a send in any state but `rejected`) stays as it is. It guards
 * nothing yet: the claim does. The caller's transaction makes both or neither.
 */
export async function triggerSend(tx: Tx, enqueue: EnqueueSends, request: SendRequest): Promise<Triggered> {
  const recipient = request.message.to
  const key = request.policy === 'unguarded' ? await takeUnguarded(tx, request.key, recipient) : request.key
  if (key === undefined) return { outcome: 'rate_limited' }
  if (request.policy === 'timestamp') await tx.query('savepoint before_queuing')
  const { rows } = await tx.query<{ version: number }>({
    name: 'trigger-send',
    text: `insert into email_sends (dedupe_key, state, policy, recipient, message, message_sha256, source_event, requested_by, match_key)
      values ($1, 'queued', $2, $3, $4, $5, $6, $7, $9)
      on conflict (dedupe_key) do update set
        state = 'queued', version = email_sends.version + 1, queued_at = clock_timestamp(), send_after = null, last_error = null,
        rate_limited_calls = 0, unreached_calls = 0,
        -- What came of an email to somebody else is nothing of this one.
        message_id = case when ${isSameRecipient} then email_sends.message_id end,
        delivered_at = case when ${isSameRecipient} then email_sends.delivered_at end,
        bounced_at = case when ${isSameRecipient} then email_sends.bounced_at end,
        bounce_kind = case when ${isSameRecipient} then email_sends.bounce_kind end,
        complained_at = case when ${isSameRecipient} then email_sends.complained_at end,
        policy = excluded.policy, recipient = excluded.recipient, match_key = excluded.match_key, message = excluded.message,
        message_sha256 = excluded.message_sha256, source_event = excluded.source_event, requested_by = excluded.requested_by
      where email_sends.state = any ($8) returning version`,
    values: [
      key,
      request.policy,
      request.message.to,
      JSON.stringify(request.message),
      messageHash(request.message),
      request.sourceEvent ?? null,
      request.requestedBy,
      moves.trigger.queued,
      excludeForm(request.message.to),
    ],
  })
  const [queued] = rows
  if (!queued) return heldBy(tx, key, (held) => differingFields(held, request.message))
  // After the row, in the order of those who record: they set the mark's time.
  const marked = request.policy === 'timestamp' ? await takeMark(tx, key, recipient) : undefined
  if (marked !== undefined) {
    await tx.query('rollback to savepoint before_queuing')
    // Its key may have gone on to somebody else after this recipient was sent an email.
    return heldBy(tx, marked, ({ to }) => (acceptForm(to) === acceptForm(recipient) ? [] : ['to']))
  }
  if (queued.version > 1) await dropOtherMarks(tx, key, recipient)
  await enqueue(tx, [{ key, urgency: request.urgency ?? 'fresh' }])
  return { outcome: 'queued', key }
}

/** The send that holds a key or a mark. */
async function heldBy(tx: Tx, key: string, differs: (held: Message) => string[]): Promise<Triggered> {
  // A second statement, as the first one's snapshot may be from before the row that holds the key.
  const { rows } = await tx.query<{ status: Status; recipient: string; message: Message }>(
    'select status, recipient, message from email_sends where dedupe_key = $1',
    [key],
  )
  const holder = rows[0]
  if (!holder) throw new Error('a send that holds its key has vanished: rows of email_sends must never be deleted')
  const { status, recipient, message } = holder
  return { outcome: 'held', key, status, recipient, differs: differs(message) }
}
