import type pg from 'pg'
import { inTransaction, type Tx } from '../db.ts'
import type { Log } from '../log.ts'
import { addFact, bindMessage, closeUnknown, countUp, type Evidence, joinReports, lockFor } from './join.ts'
import { byPerson, type State, type Status } from './lifecycle.ts'
import { RULE_VERSION } from './match.ts'
import { rematch } from './settle.ts'

// What people say of a report that found no call by itself.

export interface ReportDeps {
  pool: pg.Pool
  isExclusive(): boolean
  log: Log
}

/** By whom, and why. */
interface By {
  reason: string
  actor: string
  via: string
  requestId?: string | undefined
}

/** That a report speaks of a send, as the send was seen. */
export interface AttachRequest extends By {
  /** The row of the report's event. */
  event: string
  version: number
  /** The report names another address, and is this send's all the same. */
  isOtherMailbox?: boolean | undefined
}

export type Attached =
  | { outcome: 'attached'; status: Status; version: number }
  | { outcome: 'not_found' | 'report_not_found' }
  /** The send has changed since it was seen, or is being sent just now. */
  | { outcome: 'stale' | 'not_allowed'; status: Status; version: number }
  /** The report belongs to a send already, or its message to another call. */
  | { outcome: 'report_taken' | 'message_taken' }
  /** It names another recipient, and nobody said that this doesn't matter; or no call of this send may have sent anything. */
  | { outcome: 'other_mailbox' | 'no_call' }

/**
 * Gives a report that found no call to a send, by a person's word and once: a send that needed review is closed by it, a resend that waits
 * is dropped, a closed one keeps its state and gets the fact. Of two that want the same report one wins. Audited.
 */
export async function attachReport(
  { pool, isExclusive, log }: ReportDeps,
  key: string,
  { requestId, ...request }: AttachRequest,
): Promise<Attached> {
  if (key.includes('\0')) return { outcome: 'not_found' }
  const { recipients, ...attached } = await inTransaction(pool, (tx) => attachWithin(tx, key, request))
  log.info({ event: request.event, outcome: attached.outcome, by: request.actor, request: requestId }, 'report attached')
  // What it explains may have kept others from being told; if it fails, the sweep does it.
  for (const recipient of recipients ?? [])
    await rematch(pool, recipient, isExclusive()).catch((error: unknown) => log.warn({ error }, 'matching again failed'))
  return attached
}

interface Report {
  kind: string
  message_id: string | null
  match_key: string | null
  occurred_at: Date
  bounce_kind: string | null
  attempt: string | null
}

async function attachWithin(tx: Tx, key: string, request: AttachRequest): Promise<Attached & { recipients?: Set<string> }> {
  const { rows: keys } = await tx.query<{ match_key: string }>('select match_key from email_sends where dedupe_key = $1', [key])
  if (!keys[0]) return { outcome: 'not_found' }
  const report = await findReport(tx, request.event)
  if (!report) return { outcome: 'report_not_found' }
  const { match_key } = keys[0]
  // Before any row. Whoever else would give this message to a call waits for it, even where its report names another recipient.
  await lockFor(tx, match_key, report.message_id ?? undefined)
  const { rows: sends } = await tx.query<{ state: State; status: Status; version: number }>(
    'select state, status, version from email_sends where dedupe_key = $1 for no key update',
    [key],
  )
  const send = sends[0]
  if (!send) throw new Error('a send has vanished: rows of email_sends must never be deleted')
  const { status, version } = send
  if ((await findReport(tx, request.event))?.attempt !== null) return { outcome: 'report_taken' }
  if (version !== request.version) return { outcome: 'stale', status, version }
  if (send.state === 'claimed' || send.state === 'sending') return { outcome: 'not_allowed', status, version }
  if (report.match_key !== null && report.match_key !== match_key && !request.isOtherMailbox) return { outcome: 'other_mailbox' }
  const call = await findCall(tx, key, report)
  if (typeof call === 'object') return call

  const { rowCount } = await tx.query(
    `update delivery_reports set attempt = $2, parked = null, candidates = null, joined_at = clock_timestamp(), dismissed_at = null, dismissed_by = null
     where event = $1 and attempt is null`,
    [request.event, call],
  )
  if (rowCount !== 1) return { outcome: 'report_taken' }
  // A decision, even where the report has nothing new to say of the send: no other one may be about the same version.
  await countUp(tx, key)
  const person = byPerson(request.actor)
  const evidence: Evidence = {
    event: request.event,
    grade: 'P',
    candidates: [call],
    facts: { reason: request.reason, ...(request.isOtherMailbox && { isOtherMailbox: true }) },
  }
  const fact = { ...report, event: request.event, attempt: call, dedupe_key: key }
  if (report.message_id !== null) await bindMessage(tx, call, report.message_id)
  await addFact(tx, fact, person)
  // Whatever it says of the message, there is one: it was sent.
  const isClosed = await closeUnknown(tx, report.message_id, { ...fact, kind: 'delivered' }, evidence, person)
  if (!isClosed) await keepAttached(tx, key, call, send.state, report, evidence, person)
  if (report.message_id !== null) await joinReports(tx, report.message_id)
  const now = await audit(tx, key, send, request)
  return {
    outcome: 'attached',
    ...now,
    recipients: new Set(report.match_key === null ? [match_key] : [match_key, report.match_key]),
  }
}

async function findReport(tx: Tx, event: string): Promise<Report | undefined> {
  const { rows } = await tx.query<Report>(
    'select kind, message_id, match_key, occurred_at, bounce_kind, attempt from delivery_reports where event = $1',
    [event],
  )
  return rows[0]
}

/** The latest call before the report that may have sent, and whose message this may be. The message is locked. */
async function findCall(tx: Tx, key: string, { message_id, occurred_at }: Report): Promise<string | Attached> {
  const { rows } = await tx.query<{ id: string }>(
    `select id from send_attempts calls where dedupe_key = $1 and outcome in ('unknown', 'accepted')
       and ($2::text is null or message_id = $2 or (message_id is null and not exists (select from send_attempts where message_id = $2)))
     order by claimed_at <= $3::timestamptz + interval '2 min' desc, number desc limit 1`,
    [key, message_id, occurred_at],
  )
  if (rows[0]) return rows[0].id
  const { rowCount } = await tx.query('select from send_attempts where message_id = $1', [message_id])
  return { outcome: rowCount === 0 ? 'no_call' : 'message_taken' }
}

async function keepAttached(
  tx: Tx,
  key: string,
  call: string,
  state: State,
  { occurred_at }: Report,
  { event, grade, candidates, facts }: Evidence,
  person: string,
): Promise<void> {
  await tx.query({
    name: 'keep-attached',
    text: `insert into settlements (dedupe_key, attempt, event, grade, rule_version, from_state, to_state, candidates, evidence, event_at, actor)
      values ($1, $2, $3, $4, $5, $6, $6, $7, $8, $9, $10)`,
    values: [
      key,
      call,
      event,
      grade,
      RULE_VERSION,
      state,
      JSON.stringify(candidates),
      JSON.stringify(facts),
      occurred_at,
      person,
    ],
  })
}

async function audit(
  tx: Tx,
  key: string,
  before: { state: State; version: number },
  { actor, via, reason, event }: AttachRequest,
): Promise<{ status: Status; version: number }> {
  const { rows } = await tx.query<{ status: Status; version: number }>(
    `with now as (select state, status, version from email_sends where dedupe_key = $3),
     audited as (
       insert into audit_log (actor, via, action, subject, reason, before, after)
       select $1, $2, 'attach', 'send:' || $3, $4, jsonb_build_object('state', $5::text, 'version', $6::int),
         jsonb_build_object('state', state, 'version', version, 'event', $7::bigint)
       from now
     ) select status, version from now`,
    [actor, via, key, reason, before.state, before.version, event],
  )
  const [now] = rows
  if (!now) throw new Error('a send has vanished: rows of email_sends must never be deleted')
  return now
}

/** Says that a report is none of ours: it leaves the list, and matches nothing by its recipient any more. Attaching it takes that back. Audited once. */
export async function dismissReport(
  { pool, log }: Pick<ReportDeps, 'pool' | 'log'>,
  event: string,
  { reason, actor, via, requestId }: By,
): Promise<{ outcome: 'dismissed' | 'not_found' | 'report_taken' }> {
  const outcome = await inTransaction(pool, async (tx) => {
    const report = await findReport(tx, event)
    if (!report) return 'not_found'
    await lockFor(tx, report.match_key, report.message_id ?? undefined)
    const { rowCount } = await tx.query(
      `with dismissed as (
         update delivery_reports set dismissed_at = now(), dismissed_by = $5
         where event = $1::bigint and attempt is null and dismissed_at is null returning parked
       )
       insert into audit_log (actor, via, action, subject, reason, before)
       select $2, $3, 'not ours', 'event:' || $1::bigint, $4, jsonb_build_object('parked', parked) from dismissed`,
      [event, actor, via, reason, byPerson(actor)],
    )
    return rowCount === 1 || (await findReport(tx, event))?.attempt === null ? 'dismissed' : 'report_taken'
  })
  log.info({ event, outcome, by: actor, request: requestId }, 'report dismissed')
  return { outcome }
}
