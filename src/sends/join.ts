import type { Tx } from '../db.ts'
import { moves } from './lifecycle.ts'
import { RULE_VERSION } from './match.ts'

/** What is known of an attempt's email: an event says it, or a line of the sending log that a person has read in. */
export interface Fact {
  event: string | null
  kind: string
  occurred_at: Date
  bounce_kind: string | null
  attempt: string
  dedupe_key: string
}

/**
 * How a report found its attempt: by the message ID, by recipient and its own time, by recipient and the time of receipt. What a
 * person says, or has read in, is P however it fits: nobody has signed it.
 */
export interface Evidence {
  /** The event that was judged. */
  event?: string
  grade: 'A' | 'B' | 'C' | 'P'
  candidates: readonly string[]
  facts: Record<string, unknown>
}

/**
 * An event and the recording of its send may run at the same time, each blind to the other's uncommitted row: whoever gets these
 * locks second sees what the first one wrote. The recipient comes first, then the message, both before any row; each is a statement
 * of its own, so that the next one's snapshot is from after it. Answers the recipient that is locked.
 */
export async function lockFor(tx: Tx, matchKey: string | null, messageId: string | undefined): Promise<string | null> {
  if (matchKey !== null) await lock(tx, `recipient:${matchKey}`)
  if (messageId === undefined) return matchKey
  if (matchKey === null) await tx.query('savepoint before_message')
  await lock(tx, `message:${messageId}`)
  if (matchKey !== null) return matchKey

  // Nobody names the recipient. While the message is locked no attempt can get it; if one has it already, its recipient comes first.
  const recipient = await recipientOf(tx, messageId)
  if (recipient === null) return null
  await tx.query('rollback to savepoint before_message')
  return lockFor(tx, recipient, messageId)
}

async function lock(tx: Tx, name: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [name])
}

async function recipientOf(tx: Tx, messageId: string): Promise<string | null> {
  const { rows } = await tx.query<{ match_key: string }>('select match_key from send_attempts where message_id = $1', [messageId])
  return rows[0]?.match_key ?? null
}

/** Gives the parked events of this message to its attempt, and their facts to the send. The message must be locked. Says how many. */
export async function joinReports(tx: Tx, messageId: string, evidence?: Evidence): Promise<number> {
  const { rows } = await tx.query<Fact>({
    name: 'join-reports',
    text: `update delivery_reports set attempt = known.id, parked = null, candidates = null, joined_at = clock_timestamp() from send_attempts known
      where known.message_id = $1 and delivery_reports.message_id = $1 and attempt is null
      returning event, kind, occurred_at, bounce_kind, attempt, dedupe_key`,
    values: [messageId],
  })
  // The event that was judged closes the send; without one the earliest does.
  const rank = ({ event, occurred_at }: Fact) => (event === evidence?.event ? 0 : occurred_at.getTime())
  for (const report of rows.sort((a, b) => rank(a) - rank(b))) {
    await addFact(tx, report)
    await closeUnknown(tx, messageId, report, evidence ?? { grade: 'A', candidates: [report.attempt], facts: {} })
  }
  return rows.length
}

/** What is said of a call counts for its send only if that is still to the same recipient: a free key may have taken another email. */
const isOwnCall = (attempt: string) =>
  `exists (select from send_attempts own where own.id = ${attempt} and lower(own.recipient) = lower(email_sends.recipient))`

/** Whether it was known of an attempt that it sent the email, but for this event, when its send was last asked for. */
const wasKnown = (event: string) => `(attempts.outcome = 'accepted' and attempts.ended_at < queued_at or exists (
  select from delivery_reports earlier where earlier.attempt = attempts.id and earlier.kind in ('delivered', 'bounced')
    and earlier.joined_at < queued_at and earlier.event is distinct from ${event}::bigint))`

/**
 * Closes those of these sends of which a call has proved to have sent the email since they were last asked for, by its late answer, a
 * delivery event or the sending log: nothing is repeated, and the key is not free. Run wherever a call ends without being accepted, or
 * is given up. Answers which.
 */
export async function closeProven(tx: Tx, keys: readonly string[]): Promise<string[]> {
  const { rows } = await tx.query<{ dedupe_key: string }>({
    name: 'close-proven',
    text: `with proven as (
        select distinct on (dedupe_key) dedupe_key, state, attempts.id as attempt, attempts.message_id, reports.event
        from email_sends join send_attempts attempts using (dedupe_key)
          left join delivery_reports reports on reports.attempt = attempts.id and kind in ('delivered', 'bounced') and joined_at >= queued_at
        where dedupe_key = any ($1) and state = any ($2) and lower(attempts.recipient) = lower(email_sends.recipient)
          and not ${wasKnown('null')}
          and (attempts.outcome = 'accepted' or reports.event is not null or exists (
            select from settlements where settlements.attempt = attempts.id and evidence ->> 'says' in ('delivered', 'bounced') and at >= queued_at))
        order by dedupe_key, number, reports.event
      ), closed as (
        update email_sends sends set state = 'sent', version = version + 1, send_after = null, message_id = proven.message_id,
          completed_at = now(), settled_at = now(), settled_by = coalesce('event:' || proven.event, 'answer')
        from proven where sends.dedupe_key = proven.dedupe_key and sends.state = any ($2)
        returning sends.dedupe_key, proven.attempt, proven.event, proven.state as from_state
      )
      insert into settlements (dedupe_key, attempt, event, grade, rule_version, from_state, to_state, candidates, actor)
      select dedupe_key, attempt, event, 'A', $3, from_state, 'sent', jsonb_build_array(attempt), case when event is null then 'answer' else 'event' end
      from closed returning dedupe_key`,
    values: [keys, moves.event.sent, RULE_VERSION],
  })
  return rows.map((row) => row.dedupe_key)
}

/** Facts only grow: each keeps its earliest time, and a stronger kind of bounce replaces a weaker one together with its time. */
export async function addFact(
  tx: Tx,
  { event, kind, attempt, dedupe_key, occurred_at, bounce_kind }: Fact,
  person?: string,
): Promise<void> {
  if (kind === 'delivered' || kind === 'complained') {
    const column = `${kind}_at`
    await tx.query({
      name: `add-fact-${kind}`,
      text: `update email_sends set ${column} = $2, version = version + 1 where dedupe_key = $1 and (${column} is null or ${column} > $2)
        and ${isOwnCall('$3')}`,
      values: [dedupe_key, occurred_at, attempt],
    })
  }
  if (kind === 'bounced') {
    const rank = (value: string) => `array_position('{soft,unknown,hard}'::text[], ${value})`
    await tx.query({
      name: 'add-fact-bounced',
      text: `update email_sends set bounce_kind = $3, bounced_at = $2, version = version + 1
        where dedupe_key = $1 and (bounce_kind is null or ${rank('bounce_kind')} < ${rank('$3')} or (bounce_kind = $3 and bounced_at > $2))
          and ${isOwnCall('$4')}`,
      values: [dedupe_key, occurred_at, bounce_kind ?? 'unknown', attempt],
    })
  }
  if (kind === 'delivered' || kind === 'bounced') {
    await tx.query({
      name: 'mark-settled',
      text: `update email_sends set settled_at = now(), settled_by = $2 where dedupe_key = $1 and state = 'sent' and settled_at is null
        and ${isOwnCall('$3')}`,
      values: [dedupe_key, person ?? `event:${event}`, attempt],
    })
  }
}

/**
 * A send whose outcome was unknown has gone out when its own message was delivered or bounced, and a resend of it is not needed. Not one
 * that was asked for knowing it: a person who sends a bounced email again has read that bounce. True if that closed it.
 */
export async function closeUnknown(
  tx: Tx,
  messageId: string | null,
  report: Omit<Fact, 'occurred_at'> & { occurred_at: Date | null },
  evidence: Evidence,
  person?: string,
): Promise<boolean> {
  if (report.kind !== 'delivered' && report.kind !== 'bounced') return false
  const { rowCount } = await tx.query({
    name: 'close-unknown',
    text: `with open as (
        select dedupe_key, state from email_sends where dedupe_key = $1 and state = any ($6) and ${isOwnCall('$3')}
          and (state = 'needs_review' or not exists (
            select from send_attempts attempts where attempts.id = $3 and ${wasKnown('$4')}))
        for no key update
      ), closed as (
        update email_sends set state = 'sent', version = version + 1, message_id = coalesce($2, message_id), send_after = null,
          completed_at = now(), settled_at = now(), settled_by = coalesce($11, 'event:' || $4::bigint)
        from open where email_sends.dedupe_key = open.dedupe_key and email_sends.state = any ($6)
        returning open.state as from_state
      )
      insert into settlements (dedupe_key, attempt, event, grade, rule_version, from_state, to_state, candidates, evidence, event_at, actor)
      select $1, $3::uuid, $4::bigint, $8, $5, from_state, 'sent', $9, $10, $7, coalesce($11, 'event') from closed`,
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
      person ?? null,
    ],
  })
  return rowCount === 1
}

/** Gives an attempt the message that is its own, and the send, if it is known to be sent by that very call. */
export async function bindMessage(tx: Tx, attempt: string, messageId: string): Promise<void> {
  await tx.query({
    name: 'bind-message',
    text: `update send_attempts set message_id = $2 where id = $1 and message_id is null`,
    values: [attempt, messageId],
  })
  await tx.query({
    name: 'bind-message-to-send',
    text: `update email_sends set message_id = $2, version = version + 1 where claim_token = $1 and message_id is null and state = 'sent'`,
    values: [attempt, messageId],
  })
}

/** Makes a send one version newer for a decision about it that may change nothing else. */
export async function countUp(tx: Tx, key: string): Promise<void> {
  await tx.query('update email_sends set version = version + 1 where dedupe_key = $1', [key])
}

/** Notes whose message it is of a call that was known to be accepted; its send stays as it is. */
export async function keepEvidence(tx: Tx, attempt: string, evidence: Evidence): Promise<void> {
  await tx.query({
    name: 'keep-evidence',
    text: `insert into settlements (dedupe_key, attempt, event, grade, rule_version, from_state, to_state, candidates, evidence, event_at, actor)
      select dedupe_key, attempts.id, event, $3, $4, state, state, $5, $6, occurred_at, 'event'
      from send_attempts attempts join email_sends using (dedupe_key), delivery_reports
      where attempts.id = $1 and event = $2`,
    values: [
      attempt,
      evidence.event,
      evidence.grade,
      RULE_VERSION,
      JSON.stringify(evidence.candidates),
      JSON.stringify(evidence.facts),
    ],
  })
}
