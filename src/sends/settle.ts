import type pg from 'pg'
import { type Db, inTransaction, type Tx } from '../db.ts'
import { reached } from '../fault-points.ts'
import { excludeForm } from './address.ts'
import { bindMessage, type Evidence, joinReports, keepEvidence, lockFor } from './join.ts'
import type { State } from './lifecycle.ts'
import {
  CANDIDATE_AFTER_MS,
  CANDIDATE_BEFORE_MS,
  type Candidate,
  matchReport,
  type Parked,
  type Surroundings,
  type UnknownReport,
} from './match.ts'

/** What one Inboxili event says. */
export interface DeliveryReport {
  /** Row of webhook_events. */
  event: string
  kind: string
  messageId?: string
  recipient?: string
  subject?: string
  occurredAt: Date
  /** Whether the event says its time itself; else it is that of its receipt. */
  hasOwnTime: boolean
  bounceKind?: 'hard' | 'soft' | 'unknown'
}

/**
 * Settles by a delivery event, before its transaction locks any row: finds the attempt it speaks of, adds the fact to its send, and
 * closes a send that was unknown. An event that can't be told to belong to one is parked, and looked at again whenever something
 * about its recipient changes. Repeats change nothing. Answers whose parked events are to be looked at again after the commit.
 */
export async function settle(tx: Tx, report: DeliveryReport, isExclusive: boolean): Promise<string | null> {
  const matchKey = report.recipient === undefined ? null : excludeForm(report.recipient)
  const locked = await lockFor(tx, matchKey, report.messageId)
  await reached('settle.locked')
  await tx.query({
    name: 'store-report',
    text: `insert into delivery_reports (event, kind, message_id, recipient, match_key, subject, occurred_at, has_own_time, bounce_kind, parked)
      values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict (event) do nothing`,
    values: [
      report.event,
      report.kind,
      report.messageId ?? null,
      report.recipient ?? null,
      matchKey,
      report.subject ?? null,
      report.occurredAt,
      report.hasOwnTime,
      report.bounceKind ?? null,
      report.messageId === undefined ? ('no message id' satisfies Parked) : ('no recipient' satisfies Parked),
    ],
  })
  if (report.messageId !== undefined) await joinReports(tx, report.messageId)
  await matchParked(tx, report.event, isExclusive)
  return locked
}

/**
 * Parked events that a change may give another answer. Where nothing explained one, and still no attempt could, all stays as it is; so it
 * does where a person has said that one is not ours.
 */
const MAY_CHANGE = `reports.attempt is null and reports.dismissed_at is null and reports.message_id is not null and reports.match_key is not null
  and (reports.parked <> 'foreign' or exists (
    select from send_attempts attempts where attempts.match_key = reports.match_key and attempts.message_id is null
      and outcome in ('in_flight', 'unknown', 'accepted')
      and claimed_at between reports.occurred_at - ${CANDIDATE_BEFORE_MS} * interval '1 ms' and reports.occurred_at + ${CANDIDATE_AFTER_MS} * interval '1 ms'))`

/** So many parked events of one recipient are looked at after a change, the newest first; the sweep looks at more. */
const LOOKED_AT_ONCE = 100

/**
 * Looks again at the parked events of a recipient, until none finds its attempt any more. Run after each commit that changed something
 * about the recipient. What isn't as it stands is judged under the locks, each event in a transaction of its own: taking further locks
 * in that of the change would break their order.
 */
export async function rematch(pool: pg.Pool, matchKey: string, isExclusive: boolean, atMost = LOOKED_AT_ONCE): Promise<number> {
  let joined = 0
  await reached('parked.rescan')
  for (let last = 1; last > 0; joined += last) {
    last = 0
    for (const { event, messageId } of await findOutdated(pool, matchKey, isExclusive, atMost)) {
      last += await inTransaction(pool, async (tx) => {
        await lockFor(tx, matchKey, messageId)
        const known = await joinReports(tx, messageId)
        return known + (await matchParked(tx, event, isExclusive))
      })
    }
  }
  return joined
}

/** Parked events that now have another answer than they had; a look without locks, so only a hint. */
async function findOutdated(db: Db, matchKey: string, isExclusive: boolean, atMost: number): Promise<ParkedReport[]> {
  const { rows } = await db.query<ParkedReport & { parked: Parked; candidates: string[] | null; isKnown: boolean }>({
    name: 'find-parked',
    text: `select ${REPORT}, parked, candidates, exists (select from send_attempts where message_id = reports.message_id) as "isKnown"
      from delivery_reports reports where match_key = $1 and ${MAY_CHANGE} order by occurred_at desc, event desc limit $2`,
    values: [matchKey, atMost],
  })
  const [newest, oldest] = [rows[0], rows.at(-1)]
  if (!newest || !oldest) return []
  const attempts = await findAttempts(db, matchKey, oldest.occurredAt, newest.occurredAt)
  const around = { ...(await findSurroundings(db, matchKey)), isExclusive }
  return rows.filter((report) => {
    const match = matchReport(report, attempts, around)
    return (
      report.isKnown || !('parked' in match) || match.parked !== report.parked || `${match.candidates}` !== `${report.candidates}`
    )
  })
}

/** Recipients, in their order from one on, with parked events that may be told by now. */
export async function findRematchable(db: Db, after: string, limit: number): Promise<string[]> {
  const { rows } = await db.query<{ match_key: string }>(
    `select distinct match_key from delivery_reports reports
     where match_key > $1 and occurred_at > now() - interval '30 days' and ${MAY_CHANGE} order by match_key limit $2`,
    [after, limit],
  )
  return rows.map((row) => row.match_key)
}

/** Looks for the attempt of a parked event by its recipient; binds its message to it, or says why not. Says how many events that joined. */
async function matchParked(tx: Tx, event: string, isExclusive: boolean): Promise<number> {
  const report = await findParked(tx, event)
  if (!report) return 0
  const attempts = await findAttempts(tx, report.matchKey, report.occurredAt, report.occurredAt)
  const around = { ...(await findSurroundings(tx, report.matchKey)), isExclusive }
  let match = matchReport(report, attempts, around)
  if ('candidate' in match) {
    // Held from here on, so that no resend of it is claimed between the look and the settling.
    const state = await holdSend(tx, match.candidate.attempt)
    match = matchReport(report, [{ ...match.candidate, state }], around)
  }
  if ('parked' in match) {
    await park(tx, event, match.parked, match.candidates)
    return 0
  }
  const { attempt, claimedAt, outcome } = match.candidate
  await bindMessage(tx, attempt, report.messageId)
  const evidence: Evidence = {
    event,
    grade: report.hasOwnTime ? 'B' : 'C',
    candidates: [attempt],
    facts: {
      secondsAfterClaim: (report.occurredAt.getTime() - claimedAt.getTime()) / 1000,
      outcome,
      isExclusive,
      isBreakerClosed: around.isBreakerClosed,
    },
  }
  // That it was sent is known; the evidence is of whose message it is.
  if (outcome === 'accepted') await keepEvidence(tx, attempt, evidence)
  return joinReports(tx, report.messageId, evidence)
}

/** A parked event whose recipient is known. */
type ParkedReport = UnknownReport & { event: string; matchKey: string; hasOwnTime: boolean }

const REPORT = `event, kind, message_id as "messageId", recipient, match_key as "matchKey", occurred_at as "occurredAt", subject,
  has_own_time as "hasOwnTime"`

async function findParked(tx: Tx, event: string): Promise<ParkedReport | undefined> {
  const { rows } = await tx.query<ParkedReport>({
    name: 'find-parked-report',
    text: `select ${REPORT} from delivery_reports
      where event = $1 and attempt is null and dismissed_at is null and message_id is not null and match_key is not null`,
    values: [event],
  })
  return rows[0]
}

/** The attempts that events of between these times may speak of. A thousand and more are ambiguous, whichever they are. */
export async function findAttempts(db: Db, matchKey: string, from: Date, to: Date): Promise<Candidate[]> {
  const { rows } = await db.query<Candidate>({
    name: 'find-candidates',
    text: `select attempts.id as attempt, attempts.recipient, attempts.claimed_at as "claimedAt", outcome, state, message ->> 'subject' as subject
      from send_attempts attempts join email_sends using (dedupe_key)
      where attempts.match_key = $1 and attempts.message_id is null and outcome in ('in_flight', 'unknown', 'accepted')
        and attempts.claimed_at between $2 and $3
      order by attempts.claimed_at desc limit 1000`,
    values: [matchKey, new Date(from.getTime() - CANDIDATE_BEFORE_MS), new Date(to.getTime() + CANDIDATE_AFTER_MS)],
  })
  return rows
}

async function holdSend(tx: Tx, attempt: string): Promise<State> {
  const { rows } = await tx.query<{ state: State }>(
    'select state from email_sends where dedupe_key = (select dedupe_key from send_attempts where id = $1) for no key update',
    [attempt],
  )
  if (!rows[0]) throw new Error('a send with an attempt has vanished: rows of email_sends must never be deleted')
  return rows[0].state
}

/** What else is known of the recipient and the account. */
export async function findSurroundings(db: Db, matchKey: string): Promise<Omit<Surroundings, 'isExclusive'>> {
  const { rows: others } = await db.query<{ messageId: string; occurredAt: Date }>({
    name: 'find-other-messages',
    text: `select message_id as "messageId", max(occurred_at) as "occurredAt" from delivery_reports
      where match_key = $1 and attempt is null and message_id is not null group by message_id`,
    values: [matchKey],
  })
  const { rows } = await db.query<{ matching: string }>('select matching from sending_control')
  return { others, isBreakerClosed: rows[0]?.matching === 'auto' }
}

/** Keeps an event with the reason. The first time that nothing of ours explains one, matching by recipient stops until a person looks. */
async function park(tx: Tx, event: string, reason: Parked, candidates: readonly string[]): Promise<void> {
  const { rows } = await tx.query<{ is_new: boolean }>({
    name: 'park-report',
    text: `update delivery_reports reports set parked = $2, candidates = $3 from delivery_reports old
      where reports.event = $1 and old.event = $1 and reports.attempt is null
        and (reports.parked is distinct from $2 or reports.candidates is distinct from $3)
      returning old.parked is distinct from $2 as is_new`,
    values: [event, reason, candidates],
  })
  if (reason !== 'foreign' || !rows[0]?.is_new) return
  await tx.query({
    name: 'open-breaker',
    text: `update sending_control set matching = 'suggest', matching_at = now(), version = version + 1,
        matching_reason = 'event ' || $1::bigint || ' speaks of an email that nothing here explains'
      where matching = 'auto' and exists (
        select from delivery_reports where event = $1 and occurred_at > now() - interval '7 days')`,
    values: [event],
  })
}

/** Message ids whose events lie parked although their attempt is known by now; each is joined in a transaction of its own. */
export async function findJoinable(db: Db, limit: number): Promise<string[]> {
  const { rows } = await db.query<{ message_id: string }>(
    `select distinct reports.message_id from delivery_reports reports join send_attempts attempts using (message_id)
     where reports.attempt is null limit $1`,
    [limit],
  )
  return rows.map((row) => row.message_id)
}
