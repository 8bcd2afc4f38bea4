import type { Db, Tx } from '../db.ts'
import { moves } from './lifecycle.ts'

/** Counts up when the rule by which events find their send changes; stored with each settlement. */
const RULE_VERSION = 1

/** What one Inboxili event says. */
export interface DeliveryReport {
  /** Row of webhook_events. */
  event: string
  kind: string
  messageId?: string
  recipient?: string
  occurredAt: Date
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

/**
 * Settles by a delivery event, before its transaction locks any row: finds the attempt whose message it speaks of, adds the fact to its send, and closes a send that
 * was unknown. An event that comes before its send is recorded is parked, and joined by the recording. Repeats change nothing,
 * and the order of events doesn't matter.
 */
export async function settle(tx: Tx, report: DeliveryReport): Promise<void> {
  if (report.messageId !== undefined) await lockMessage(tx, report.messageId)
  await tx.query({
    name: 'store-report',
    text: `insert into delivery_reports (event, kind, message_id, recipient, occurred_at, bounce_kind, parked)
      values ($1, $2, $3, $4, $5, $6, $7) on conflict (event) do nothing`,
    values: [
      report.event,
      report.kind,
      report.messageId ?? null,
      report.recipient ?? null,
      report.occurredAt,
      report.bounceKind ?? null,
      report.messageId === undefined ? 'no message id' : 'no send has this message id',
    ],
  })
  if (report.messageId !== undefined) await joinReports(tx, report.messageId)
}

/**
 * An event and the recording of its send may run at the same time, each blind to the other's uncommitted row. Whoever gets
 * this lock second sees what the first one wrote. A statement of its own, so that the next one's snapshot is from after it.
 */
export async function lockMessage(tx: Tx, messageId: string): Promise<void> {
  await tx.query(`select pg_advisory_xact_lock(hashtextextended('message:' || $1, 0))`, [messageId])
}

/** Gives the parked events of this message to its attempt, and their facts to the send. The message must be locked. */
export async function joinReports(tx: Tx, messageId: string): Promise<void> {
  const { rows } = await tx.query<JoinedReport>({
    name: 'join-reports',
    text: `update delivery_reports set attempt = known.id, parked = null from send_attempts known
      where known.message_id = $1 and delivery_reports.message_id = $1 and attempt is null
      returning event, kind, occurred_at, bounce_kind, attempt, dedupe_key`,
    values: [messageId],
  })
  for (const report of rows) {
    await addFact(tx, report)
    await closeUnknown(tx, messageId, report)
  }
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
async function closeUnknown(tx: Tx, messageId: string, report: JoinedReport): Promise<void> {
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
      insert into settlements (dedupe_key, attempt, event, grade, rule_version, from_state, to_state, candidates, event_at, actor)
      select $1, $3::uuid, $4::bigint, 'A', $5, from_state, 'sent', jsonb_build_array($3::uuid), $7, 'event' from closed`,
    values: [report.dedupe_key, messageId, report.attempt, report.event, RULE_VERSION, moves.event.sent, report.occurred_at],
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
