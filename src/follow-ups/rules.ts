import type pg from 'pg'
import { z } from 'zod'
import { type Config, type EventMeta, type FollowUpEmail, type FollowUpRule, KeyError, type Source } from '../config.ts'
import { inTransaction, type Tx } from '../db.ts'
import type { Log } from '../log.ts'
import { readReport } from '../providers/inboxili.ts'
import { requestOf } from '../providers/provider.ts'
import { payloadOf } from '../providers/read-events.ts'
import { messageSchema } from '../sends/message.ts'
import { settle } from '../sends/settle.ts'
import { type EnqueueSends, type SendRequest, triggerSend } from '../sends/trigger.ts'

export interface ProcessDeps {
  pool: pg.Pool
  config(): Config
  enqueue: EnqueueSends
  log: Log
}

interface StoredEvent {
  id: string
  source: string
  event_id: string
  type: string | null
  livemode: boolean | null
  occurred_at: Date | null
  received_at: Date
  headers: Record<string, string>
  body: Buffer | null
}

/** One email that a rule wants, or why it has none. */
type Wanted =
  | { rule: string; send: Omit<SendRequest, 'sourceEvent' | 'requestedBy'> }
  | { rule: string; error: string; isFinal: boolean }

/** Tells whether anything is to happen on an event of this type: a rule, or the settlement. */
export function isWanted({ rules }: Config, source: Source, type: string | null): boolean {
  return source.settles || (type !== null && rules.some((rule) => rule.source === source.name && rule.types.has(type)))
}

/**
 * Processes one stored event: settles with it, or queues the emails that the rules want. `processed_at` is set in the same
 * transaction, so that a job that runs twice does it once. Rejects when a rule failed and may do better later; what the other
 * rules wanted is queued all the same.
 */
export async function processEvent(deps: ProcessDeps, id: string, isLastTry: boolean): Promise<void> {
  const event = await findPending(deps.pool, id)
  if (!event) return
  const config = deps.config()
  const source = config.sources.get(event.source)
  if (!source) return fail(deps, event, `source ${event.source} is not configured`, isLastTry)
  if (event.body === null) return fail(deps, event, 'its body was emptied by retention', true)
  const payload = payloadOf(source.provider, requestOf(event.headers, event.body), event.event_id)

  if (source.settles) {
    const report = readReport(payload, event.received_at)
    await inTransaction(deps.pool, async (tx) => {
      if (await markProcessed(tx, event, 'processed')) await settle(tx, { event: event.id, ...report })
    })
    return
  }

  const isOtherMode = event.livemode !== null && event.livemode !== (source.mode === 'live')
  const rules = isOtherMode
    ? []
    : config.rules.filter((rule) => rule.source === source.name && event.type !== null && rule.types.has(event.type))
  // Rules may await the network, so they run before the transaction.
  const wanted = (await Promise.all(rules.map((rule) => askRule(rule, payload, event)))).flat()
  const errors = await inTransaction(deps.pool, (tx) => followUp(tx, deps.enqueue, event, rules.length === 0, wanted, isLastTry))
  if (errors.some((error) => !error.isFinal) && !isLastTry)
    throw new Error(`follow-ups of event ${event.id} failed; the queue tries again`)
}

async function findPending(pool: pg.Pool, id: string): Promise<StoredEvent | undefined> {
  const { rows } = await pool.query<StoredEvent>({
    name: 'find-pending-event',
    text: `select id, source, event_id, type, livemode, occurred_at, events.received_at, headers, coalesce(events.body, bodies.body) as body
      from webhook_events events left join webhook_bodies bodies on bodies.sha256 = events.body_sha256
      where id = $1 and status = 'pending' and processed_at is null`,
    values: [id],
  })
  return rows[0]
}

async function askRule(rule: FollowUpRule, payload: unknown, event: StoredEvent): Promise<Wanted[]> {
  const meta: EventMeta = {
    source: event.source,
    eventId: event.event_id,
    type: event.type,
    occurredAt: event.occurred_at,
    receivedAt: event.received_at,
    livemode: event.livemode,
  }
  try {
    const emails = (await rule.email(payload, meta)) ?? []
    return [emails].flat().map((email) => readEmail(rule.name, email as FollowUpEmail))
  } catch (error) {
    return [{ rule: rule.name, error: textOf(error), isFinal: error instanceof KeyError }]
  }
}

const emailSchema = z.strictObject({
  key: z.string().min(1).max(512),
  policy: z.literal('claim').default('claim'),
  message: messageSchema,
})

function readEmail(rule: string, email: FollowUpEmail): Wanted {
  const { key, policy, ...message } = email ?? {}
  const parsed = emailSchema.safeParse({ key, ...(policy !== undefined && { policy }), message: withoutUndefined(message) })
  if (parsed.success) return { rule, send: parsed.data }
  const [issue] = parsed.error.issues
  return {
    rule,
    error: `the email is not usable: ${issue?.path.filter((it) => it !== 'message').join('.')}: ${issue?.message}`,
    isFinal: true,
  }
}

const withoutUndefined = (fields: object) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null))

/** Queues what the rules want and closes the event, unless another worker has by now. Answers what went wrong. */
async function followUp(
  tx: Tx,
  enqueue: EnqueueSends,
  event: StoredEvent,
  isIgnored: boolean,
  wanted: readonly Wanted[],
  isLastTry: boolean,
): Promise<{ error: string; isFinal: boolean }[]> {
  // First, as it locks the event's row: two workers with one job go through here one after the other.
  if (!(await markProcessed(tx, event, isIgnored ? 'ignored' : 'processed'))) return []

  const errors: { rule: string; error: string; isFinal: boolean }[] = []
  const sends = wanted.flatMap((it) => ('send' in it ? [it] : []))
  for (const failed of wanted) {
    if ('send' in failed) continue
    errors.push(failed)
    await noteFollowUp(tx, event, failed.rule, null, 'failed', failed.error)
  }
  // In the order of their keys, so that two events that ask for the same ones don't deadlock.
  for (const { rule, send } of sends.sort((a, b) => (a.send.key < b.send.key ? -1 : 1))) {
    const triggered = await triggerSend(tx, enqueue, { ...send, sourceEvent: event.id, requestedBy: `event:${event.id}` })
    if (triggered.outcome === 'held' && triggered.recipient !== send.message.to) {
      const error = `key_taken: ${send.key} belongs to a send to another recipient`
      errors.push({ rule, error, isFinal: true })
      await noteFollowUp(tx, event, rule, send.key, 'key_taken', error)
    } else {
      await noteFollowUp(tx, event, rule, send.key, triggered.outcome, null)
    }
  }

  if (errors.length > 0) {
    const isFinal = isLastTry || errors.every((error) => error.isFinal)
    await tx.query('update webhook_events set status = $2, processed_at = null, error = $3 where id = $1', [
      event.id,
      isFinal ? 'failed' : 'pending',
      errors
        .map(({ rule, error }) => `${rule}: ${error}`)
        .join('; ')
        .slice(0, 2_000),
    ])
  }
  return errors
}

/** The event's own truth, whatever its job says: false when another worker was first. */
async function markProcessed(tx: Tx, event: StoredEvent, status: 'processed' | 'ignored'): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'mark-processed',
    text: `update webhook_events set status = $2, processed_at = now(), error = null
      where id = $1 and status = 'pending' and processed_at is null`,
    values: [event.id, status],
  })
  return rowCount === 1
}

async function noteFollowUp(
  tx: Tx,
  event: StoredEvent,
  rule: string,
  key: string | null,
  outcome: string,
  error: string | null,
): Promise<void> {
  // A replay that finds the key taken doesn't unmake that this event was the one that queued the send.
  await tx.query({
    name: 'note-follow-up',
    text: `insert into follow_ups (event, rule, dedupe_key, outcome, error) values ($1, $2, $3, $4, $5)
      on conflict on constraint follow_ups_once do update set outcome = excluded.outcome, error = excluded.error, at = now()
      where follow_ups.outcome <> 'queued' or excluded.outcome = 'queued'`,
    values: [event.id, rule, key, outcome, error],
  })
}

/** The event can't be processed as things are: visible at once, and tried again by the queue unless this was the last try. */
async function fail(deps: ProcessDeps, event: StoredEvent, error: string, isFinal: boolean): Promise<void> {
  await deps.pool.query(
    `update webhook_events set status = $2, error = $3 where id = $1 and status = 'pending' and processed_at is null`,
    [event.id, isFinal ? 'failed' : 'pending', error],
  )
  if (!isFinal) throw new Error(error)
}

const textOf = (error: unknown) =>
  (error instanceof Error ? `${error.name}: ${error.message}` : String(error)).replaceAll('\0', '').slice(0, 500)
