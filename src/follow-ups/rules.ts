import type pg from 'pg'
import type { Config, Source } from '../config.ts'
import { inTransaction, isStorageAway, type Tx } from '../db.ts'
import type { Log } from '../log.ts'
import { readReport } from '../providers/catalog/inboxili.ts'
import { requestOf } from '../providers/provider.ts'
import { payloadOf } from '../providers/read-events.ts'
import { acceptForm } from '../sends/address.ts'
import { rematch, settle } from '../sends/settle.ts'
import { type EnqueueSends, triggerSend, type Urgency } from '../sends/trigger.ts'
import { askConfirm, askRule, textOf, type Wanted } from './answers.ts'
import { batchEvents, type Closing, type EventBatches } from './event-batches.ts'
import { noteRefs, refsIn } from './event-refs.ts'
import { metaOf, payloadIfReadable, rulesFor, type StoredEvent } from './stored-event.ts'

export interface ProcessDeps {
  pool: pg.Pool
  config(): Config
  enqueue: EnqueueSends
  log: Log
  /** Those of the process, so that events that are processed at the same time share statements; without them each has its own. */
  batches?: EventBatches | undefined
}

/** Tells whether anything is to happen on an event of this type: a rule, or the settlement. */
export function isWanted({ rules }: Config, source: Source, type: string | null): boolean {
  return source.settles || (type !== null && rules.some((rule) => rule.source === source.name && rule.types.has(type)))
}

/**
 * Processes one stored event: settles with it, or queues the emails that the rules want. `processed_at` is set in the same
 * transaction, so that a job that runs twice does it once. Rejects when it may do better later: a rule failed (what the other
 * rules wanted is queued all the same) or storage is away. In the end the event is processed or visibly failed. Its emails are as
 * urgent as it is.
 */
export async function processEvent(
  given: ProcessDeps,
  id: string,
  isLastTry: boolean,
  urgency: Urgency = 'fresh',
): Promise<void> {
  const deps = { ...given, batches: given.batches ?? batchEvents(given.pool) }
  const event = await deps.batches.findPending(id)
  if (!event) return
  let isToBeRepeated: boolean
  try {
    isToBeRepeated = await processPending(deps, event, isLastTry, urgency)
  } catch (error) {
    if (isStorageAway(error)) throw error
    deps.log.error({ error, event: id }, 'processing failed')
    isToBeRepeated = await fail(deps, event, textOf(error), isLastTry)
  }
  if (isToBeRepeated) throw new Error(`event ${id} is not processed yet; the queue tries again`)
}

async function processPending(
  deps: ProcessDeps & { batches: EventBatches },
  event: StoredEvent,
  isLastTry: boolean,
  urgency: Urgency,
): Promise<boolean> {
  const config = deps.config()
  const source = config.sources.get(event.source)
  if (!source) return fail(deps, event, `source ${event.source} is not configured`, isLastTry)
  if (event.body === null) return fail(deps, event, 'its body was emptied by retention', true)
  const payload = payloadOf(source.provider, requestOf(event.headers, event.body), event.event_id)

  if (source.settles) {
    const report = readReport(payload, event.received_at)
    const isExclusive = config.account === 'exclusive'
    const matchKey = await inTransaction(deps.pool, async (tx) => {
      // Settling locks the recipient and the message, which must come before any row. Done twice it changes nothing.
      const locked = await settle(tx, { event: event.id, ...report }, isExclusive)
      await markProcessed(tx, event, { status: 'processed', error: null })
      await noteRefs(tx, event, payload)
      return locked
    })
    // What is committed by now stands whatever happens here; if it fails, the sweep does it.
    if (matchKey !== null) {
      await rematch(deps.pool, matchKey, isExclusive).catch((error: unknown) =>
        deps.log.warn({ error, event: event.id }, 'matching again failed'),
      )
    }
    deps.log.info({ event: event.id, source: event.source, emails: 0 }, 'event processed')
    return false
  }

  const rules = rulesFor(config, source, event)
  const close = async (closing: Closing, wanted: readonly Wanted[]) => {
    const isToBeRepeated =
      wanted.length > 0 &&
      (await inTransaction(deps.pool, async (tx) => {
        const repeated = await followUp(tx, deps.enqueue, event, closing, wanted, isLastTry, urgency)
        await noteRefs(tx, event, payload)
        return repeated
      }))
    if (wanted.length === 0) await deps.batches.close(event, closing, refsIn(event, payload))
    const failed = wanted.filter((it) => !('send' in it)).length
    const facts = { event: event.id, source: event.source, emails: wanted.length - failed, ...(failed > 0 && { failed }) }
    deps.log.info(facts, isToBeRepeated ? 'event tried' : 'event processed')
    return isToBeRepeated
  }
  if (rules.length === 0) return close({ status: 'ignored', error: null }, [])

  // What follows may await the network, so it comes before the transaction.
  const meta = metaOf(source, event, await deps.batches.isSuperseded(event, source))
  const confirmed = await askConfirm(source, payload, meta)
  if (!confirmed) return close({ status: 'ignored', error: 'not confirmed' }, [])
  if ('error' in confirmed) return fail(deps, event, `confirm: ${confirmed.error}`, isLastTry)
  const wanted = (await Promise.all(rules.map((rule) => askRule(rule, confirmed.payload, meta)))).flat()
  return close({ status: 'processed', error: null }, wanted)
}

/** Queues what the rules want and closes the event, unless another worker has by now. Answers whether it is to be tried again. */
async function followUp(
  tx: Tx,
  enqueue: EnqueueSends,
  event: StoredEvent,
  closing: Closing,
  wanted: readonly Wanted[],
  isLastTry: boolean,
  urgency: Urgency,
): Promise<boolean> {
  // First, as it locks the event's row: two workers with one job go through here one after the other.
  if (!(await markProcessed(tx, event, closing))) return false
  // What went wrong in an earlier try is said again below if it still does.
  await tx.query({
    name: 'forget-failures',
    text: `delete from follow_ups where event = $1 and outcome in ('failed', 'key_taken')`,
    values: [event.id],
  })

  const errors: { rule: string; error: string; isFinal: boolean }[] = []
  const sends = wanted.flatMap((it) => ('send' in it ? [it] : []))
  for (const failed of wanted) {
    if ('send' in failed) continue
    errors.push(failed)
    await noteFollowUp(tx, event, failed.rule, null, 'failed', failed.error)
  }
  // In the order of their keys, so that two events that ask for the same ones don't deadlock.
  for (const { rule, send } of sends.sort((a, b) => (a.send.key < b.send.key ? -1 : 1))) {
    const triggered = await triggerSend(tx, enqueue, {
      ...send,
      sourceEvent: event.id,
      requestedBy: `event:${event.id}`,
      urgency,
    })
    if (triggered.outcome === 'rate_limited') throw new Error('a rule asked for an unguarded send, which no schema lets through')
    if (triggered.outcome === 'held' && acceptForm(triggered.recipient) !== acceptForm(send.message.to)) {
      const error = `key_taken: ${send.key} belongs to a send to another recipient`
      errors.push({ rule, error, isFinal: true })
      await noteFollowUp(tx, event, rule, send.key, 'key_taken', error)
    } else {
      // The mark of policy `timestamp` may be held by a send under another key.
      await noteFollowUp(tx, event, rule, triggered.key, triggered.outcome, null)
    }
  }

  if (errors.length === 0) return false
  const isFinal = isLastTry || errors.every((error) => error.isFinal)
  await tx.query('update webhook_events set status = $2, processed_at = null, error = $3 where id = $1', [
    event.id,
    isFinal ? 'failed' : 'pending',
    errors
      .map(({ rule, error }) => `${rule}: ${error}`)
      .join('; ')
      .slice(0, 2_000),
  ])
  return !isFinal
}

/** The event's own truth, whatever its job says: false when another worker was first. */
async function markProcessed(tx: Tx, event: StoredEvent, { status, error }: Closing): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'mark-processed',
    text: `update webhook_events set status = $2, processed_at = now(), error = $3
      where id = $1 and status = 'pending' and processed_at is null`,
    values: [event.id, status, error],
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

/**
 * The event can't be processed as things are: visible at once, and found by what it names. Answers whether it is to be tried again.
 */
async function fail(deps: ProcessDeps, event: StoredEvent, error: string, isFinal: boolean): Promise<boolean> {
  const payload = payloadIfReadable(deps.config(), event)
  await inTransaction(deps.pool, async (tx) => {
    await tx.query(
      `update webhook_events set status = $2, error = $3 where id = $1 and status = 'pending' and processed_at is null`,
      [event.id, isFinal ? 'failed' : 'pending', error],
    )
    await noteRefs(tx, event, payload)
  })
  return !isFinal
}
