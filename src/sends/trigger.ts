import type { Tx } from '../db.ts'
import { moves, type Status } from './lifecycle.ts'
import { differingFields, type Message, messageHash } from './message.ts'

/** Makes the job of a send, in the transaction that makes the send wait. */
export type EnqueueSends = (tx: Tx, jobs: readonly { key: string; startAfter?: Date | undefined }[]) => Promise<void>

/** What a trigger asks for. */
export interface SendRequest {
  key: string
  policy: 'claim'
  message: Message
  sourceEvent: string | undefined
  /** `event:ID`, `token:NAME` or `person:NAME`. */
  requestedBy: string
}

export type Triggered =
  | { outcome: 'queued' }
  /** The key is taken: by a send in this state, whose message differs in these fields. */
  | { outcome: 'held'; status: Status; recipient: string; differs: string[] }

/**
 * Queues a send together with its job; a key that is held (by a send in any state but `rejected`) stays as it is. It guards
 * nothing yet: the claim does. The caller's transaction makes both or neither.
 */
export async function triggerSend(tx: Tx, enqueue: EnqueueSends, request: SendRequest): Promise<Triggered> {
  const { rowCount } = await tx.query({
    name: 'trigger-send',
    text: `insert into email_sends (dedupe_key, state, policy, recipient, message, message_sha256, source_event, requested_by)
      values ($1, 'queued', $2, $3, $4, $5, $6, $7)
      on conflict (dedupe_key) do update set
        state = 'queued', version = email_sends.version + 1, queued_at = now(), send_after = null, last_error = null,
        rate_limited_calls = 0, unreached_calls = 0,
        policy = excluded.policy, recipient = excluded.recipient, message = excluded.message,
        message_sha256 = excluded.message_sha256, source_event = excluded.source_event, requested_by = excluded.requested_by
      where email_sends.state = any ($8)`,
    values: [
      request.key,
      request.policy,
      request.message.to,
      JSON.stringify(request.message),
      messageHash(request.message),
      request.sourceEvent ?? null,
      request.requestedBy,
      moves.trigger.queued,
    ],
  })
  if (rowCount === 1) {
    await enqueue(tx, [{ key: request.key }])
    return { outcome: 'queued' }
  }

  // A second statement, as the first one's snapshot may be from before the row that holds the key.
  const { rows } = await tx.query<{ status: Status; recipient: string; message: Message }>(
    'select status, recipient, message from email_sends where dedupe_key = $1',
    [request.key],
  )
  const holder = rows[0]
  if (!holder) throw new Error('a send that holds its key has vanished: rows of email_sends must never be deleted')
  const { status, recipient, message } = holder
  return { outcome: 'held', status, recipient, differs: differingFields(message, request.message) }
}
