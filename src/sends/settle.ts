import type pg from 'pg'
import { type Db, inTransaction, type Tx } from '../db.ts'
import { excludeForm } from './address.ts'
import { moves } from './lifecycle.ts'
import {
  CANDIDATE_AFTER_MS,
  CANDIDATE_BEFORE_MS,
  type Candidate,
  matchReport,
  type Parked,
  RULE_VERSION,
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

/** A report that has found its attempt. */
interface JoinedReport {
  event: string
  kind: string
  occurred_at: Date
  bounce_kind: string | null
  attempt: string
  dedupe_key: string
}

/** How a report found its attempt: by the message ID, by recipient and its own time, by recipient and the time of receipt. */
interface Evidence {
  grade: 'A' | 'B' | 'C'
  candidates: readonly string[]
  facts: Record<string, unknown>
}

/**
 * Settles by a delivery event, before its transaction locks any row: finds the attempt it speaks of, adds the fact to its send, and
 * closes a send that was unknown. An event that can't be told to belong to one is parked, and looked at again whenever something
 * about its recipient changes. Repeats change nothing, and the order of events doesn't matter.
 */
export async function settle(tx: Tx, report: DeliveryReport, isExclusive: boolean): Promise<void> {
  const matchKey = report.recipient === undefined ? null : excludeForm(report.recipient)
  await lockFor(tx, matchKey, report.messageId)
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
}

/**
 * Looks again at the parked events of a recipient, each in a transaction of its own, until none finds its attempt any more. Run
 * after each commit that changed something about the recipient: taking further locks in that transaction would break their order.
 */
export async function rematch(pool: pg.Pool, matchKey: string, isExclusive: boolean): Promise<number> {
  let joined = 0
  for (let last = 1; last > 0; joined += last) {
    last = 0
    const { rows } = await pool.query<{ event: string; message_id: string }>({
      name: 'find-parked',
      text: `select event, message_id from delivery_reports
        where match_key = $1 and attempt is null and message_id is not null order by occurred_at, event limit 100`,
      values: [matchKey],
    })
    for (const { event, message_id } of rows) {
      const isJoined = await inTransaction(pool, async (tx) => {
        await lockFor(tx, matchKey, message_id)
        await joinReports(tx, message_id)
        return matchParked(tx, event, isExclusive)
      })
      if (isJoined) last += 1
    }
  }
  return joined
}

/** Recipients with parked events that an attempt without a message ID may explain. */
export async function findRematchable(db: Db, limit: number): Promise<string[]> {
  const { rows } = await db.query<{ match_key: string }>(
    `select distinct reports.match_key from delivery_reports reports join send_attempts attempts on attempts.match_key = reports.match_key
     where reports.attempt is null and reports.message_id is not null and reports.occurred_at > now() - interval '30 days'
       and attempts.message_id is null and attempts.outcome in ('in_flight', 'unknown', 'accepted') limit $1`,
    [limit],
  )
  return rows.map((row) => row.match_key)
}

/**
 * An event and the recording of its send may run at the same time, each blind to the other's uncommitted row: whoever gets these
 * locks second sees what the first one wrote. The recipient comes first, then the message, both before any row; each is a statement
 * of its own, so that the next one's snapshot is from after it. An event that names no recipient takes that of its attempt.
 */
export async function lockFor(tx: Tx, matchKey: string | null, messageId: string | undefined): Promise<void> {
  const recipient = matchKey ?? (messageId === undefined ? null : await recipientOf(tx, messageId))
  if (recipient !== null) await lock(tx, `recipient:${recipient}`)
  if (messageId !== undefined) await lock(tx, `message:${messageId}`)
}

async function lock(tx: Tx, name: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [name])
}

async function recipientOf(tx: Tx, messageId: string): Promise<string | null> {
  const { rows } = await tx.query<{ match_key: string }>('select match_key from send_attempts where message_id = $1', [messageId])
  return rows[0]?.match_key ?? null
}

/** Gives the parked events of this message to its attempt, and their facts to the send. The message must be locked. */
export async function joinReports(tx: Tx, messageId: string, evidence?: Evidence): Promise<void> {
  const { rows } = await tx.query<JoinedReport>({
    name: 'join-reports',
    text: `update delivery_reports set attempt = known.id, parked = null, candidates = null from send_attempts known
      where known.message_id = $1 and delivery_reports.message_id = $1 and attempt is null
      returning event, kind, occurred_at, bounce_kind, attempt, dedupe_key`,
    values: [messageId],
  })
  for (const report of rows) {
    await addFact(tx, report)
    await closeUnknown(tx, messageId, report, evidence ?? { grade: 'A', candidates: [report.attempt], facts: {} })
  }
}

/** Looks for the attempt of a parked event by its recipient; binds its message to it, or says why not. True when it was bound. */
async function matchParked(tx: Tx, event: string, isExclusive: boolean): Promise<boolean> {
  const report = await findParked(tx, event)
  if (!report) return false
  const candidates = await findCandidates(tx, report)
  const { others, isBreakerClosed } = await findSurroundings(tx, report)
  const match = matchReport(report, candidates, { others, isExclusive, isBreakerClosed })
  const ids = candidates.map(({ attempt }) => attempt)
  if ('parked' in match) {
    await park(tx, event, match.parked, ids)
    return false
  }
  const bound = candidates.find(({ attempt }) => attempt === match.attempt) as Candidate // it is one of them
  await tx.query({
    name: 'bind-message',
    text: `update send_attempts set message_id = $2 where id = $1 and message_id is null`,
    values: [bound.attempt, report.messageId],
  })
  await tx.query({
    name: 'bind-message-to-send',
    text: `update email_sends set message_id = $2, version = version + 1 where claim_token = $1 and message_id is null and state = 'sent'`,
    values: [bound.attempt, report.messageId],
  })
  const secondsAfterClaim = (report.occurredAt.getTime() - bound.claimedAt.getTime()) / 1000
  const evidence: Evidence = {
    grade: report.hasOwnTime ? 'B' : 'C',
    candidates: ids,
    facts: { secondsAfterClaim, outcome: bound.outcome, isExclusive, isBreakerClosed },
  }
  // That it was sent is known; the evidence is of whose message it is.
  if (bound.outcome === 'accepted') await keepEvidence(tx, event, report, bound, evidence)
  await joinReports(tx, report.messageId, evidence)
  return true
}

async function keepEvidence(tx: Tx, event: string, report: UnknownReport, bound: Candidate, evidence: Evidence): Promise<void> {
  await tx.query({
    name: 'keep-evidence',
    text: `insert into settlements (dedupe_key, attempt, event, grade, rule_version, from_state, to_state, candidates, evidence, event_at, actor)
      select dedupe_key, id, $2::bigint, $3, $4, $5, $5, $6, $7, $8, 'event' from send_attempts where id = $1`,
    values: [
      bound.attempt,
      event,
      evidence.grade,
      RULE_VERSION,
      bound.state,
      JSON.stringify(evidence.candidates),
      JSON.stringify(evidence.facts),
      report.occurredAt,
    ],
  })
}

async function findParked(
  tx: Tx,
  event: string,
): Promise<(UnknownReport & { matchKey: string; hasOwnTime: boolean }) | undefined> {
  const { rows } = await tx.query<UnknownReport & { matchKey: string; hasOwnTime: boolean }>({
    name: 'find-parked-report',
    text: `select kind, message_id as "messageId", recipient, match_key as "matchKey", occurred_at as "occurredAt", subject,
        has_own_time as "hasOwnTime"
      from delivery_reports where event = $1 and attempt is null and message_id is not null and match_key is not null`,
    values: [event],
  })
  return rows[0]
}

async function findCandidates(tx: Tx, { matchKey, occurredAt }: { matchKey: string; occurredAt: Date }): Promise<Candidate[]> {
  const { rows } = await tx.query<Candidate>({
    name: 'find-candidates',
    text: `select attempts.id as attempt, attempts.recipient, attempts.claimed_at as "claimedAt", outcome, state, message ->> 'subject' as subject
      from send_attempts attempts join email_sends using (dedupe_key)
      where match_key = $1 and attempts.message_id is null and outcome in ('in_flight', 'unknown', 'accepted')
        and attempts.claimed_at between $2 and $3
      order by attempts.claimed_at, attempts.id`,
    values: [matchKey, new Date(occurredAt.getTime() - CANDIDATE_BEFORE_MS), new Date(occurredAt.getTime() + CANDIDATE_AFTER_MS)],
  })
  return rows
}

async function findSurroundings(tx: Tx, { matchKey, messageId }: { matchKey: string; messageId: string }) {
  const { rows: others } = await tx.query<{ messageId: string; occurredAt: Date }>({
    name: 'find-other-messages',
    text: `select message_id as "messageId", max(occurred_at) as "occurredAt" from delivery_reports
      where match_key = $1 and attempt is null and message_id <> $2 group by message_id`,
    values: [matchKey, messageId],
  })
  const { rows } = await tx.query<{ matching: string }>('select matching from sending_control')
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

/** Facts only grow: each keeps its earliest time, and a stronger kind of bounce replaces a weaker one together with its time. */
async function addFact(tx: Tx, { event, kind, dedupe_key, occurred_at, bounce_kind }: JoinedReport): Promise<void> {
  if (kind === 'delivered' || kind === 'complained') {
    const column = `${kind}_at`
    await tx.query({
      name: `add-fact-${kind}`,
      text: `update email_sends set ${column} = $2, version = version + 1 where dedupe_key = $1 and (${column} is null or ${column} > $2)`,
      values: [dedupe_key, occurred_at],
    })
  }
  if (kind === 'bounced') {
    const rank = (value: string) => `array_position('{soft,unknown,hard}'::text[], ${value})`
    await tx.query({
      name: 'add-fact-bounced',
      text: `update email_sends set bounce_kind = $3, bounced_at = $2, version = version + 1
        where dedupe_key = $1 and (bounce_kind is null or ${rank('bounce_kind')} < ${rank('$3')} or (bounce_kind = $3 and bounced_at > $2))`,
      values: [dedupe_key, occurred_at, bounce_kind ?? 'unknown'],
    })
  }
  if (kind === 'delivered' || kind === 'bounced') {
    await tx.query({
      name: 'mark-settled',
      text: `update email_sends set settled_at = now(), settled_by = $2 where dedupe_key = $1 and state = 'sent' and settled_at is null`,
      values: [dedupe_key, `event:${event}`],
    })
  }
}

/** A send whose outcome was unknown has gone out when its own message was delivered or bounced. */
async function closeUnknown(tx: Tx, messageId: string, report: JoinedReport, evidence: Evidence): Promise<void> {
  if (report.kind !== 'delivered' && report.kind !== 'bounced') return
  await tx.query({
    name: 'close-unknown',
    text: `with open as (
        select dedupe_key, state from email_sends where dedupe_key = $1 and state = any ($6) for no key update
      ), closed as (
        update email_sends set state = 'sent', version = version + 1, message_id = $2, send_after = null,
          completed_at = now(), settled_at = now(), settled_by = 'event:' || $4::bigint
        from open where email_sends.dedupe_key = open.dedupe_key and email_sends.state = any ($6)
        returning open.state as from_state
      )
      insert into settlements (dedupe_key, attempt, event, grade, rule_version, from_state, to_state, candidates, evidence, event_at, actor)
      select $1, $3::uuid, $4::bigint, $8, $5, from_state, 'sent', $9, $10, $7, 'event' from closed`,
    values: [
      report.dedupe_key,
      messageId,
      report.attempt,
      report.event,
      RULE_VERSION,
      moves.event.sent,
      report.occurred_at,
      evidence.grade,
      JSON.stringify(evidence.candidates),
      JSON.stringify(evidence.facts),
    ],
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
