import type { Db } from '../db.ts'
import { type AuditRow, listAudit } from './audit-queries.ts'
import { REDELIVERIES } from './event-queries.ts'
import { findEvidence, type SendEvidence } from './evidence.ts'
import type { Send } from './send-queries.ts'
import {
  callLines,
  decidedLine,
  type EventFacts,
  eventLines,
  isOfAudit,
  parkedLine,
  queuedLines,
  reportLine,
  type SecretText,
  type StoryLine,
  settledLine,
} from './story-lines.ts'

// Read-only: what happened to one send, from the provider's bytes to the fact that settled it.

/** What is told of one send. */
export interface SendStory {
  lines: StoryLine[]
  /** What people and programs decided of it, the latest first. */
  audit: AuditRow[]
  /** Only of a send that needs a decision. */
  evidence: SendEvidence | undefined
}

/** What people see first of the audit of a send. */
const MOST_AUDITED = 50

/** All that is told of a send, in the order of the times; what happened at the same time in the order of cause and effect. */
export async function findStory(db: Db, send: Send, secretText: SecretText): Promise<SendStory> {
  const events = await findEventFacts(db, send)
  const { audit } = await listAudit(db, { subject: `send:${send.dedupe_key}`, limit: MOST_AUDITED })
  const evidence = send.status === 'needs_review' ? await findEvidence(db, send.dedupe_key) : undefined
  const lines = [
    ...send.events.flatMap((event) => eventLines(event, events.get(event.id), secretText)),
    ...queuedLines(send),
    ...send.attempts.flatMap((attempt) => callLines(attempt, send.policy)),
    ...send.reports.map((report) => reportLine(report, send.settlements)),
    ...(evidence?.candidates ?? []).map(parkedLine),
    ...send.settlements
      .filter((settlement) => !isOfAudit(settlement, audit))
      .map((settlement) => settledLine(settlement, events)),
    ...audit.toReversed().map(decidedLine),
  ]
  return { lines: lines.sort((a, b) => a.at.getTime() - b.at.getTime()), audit, evidence }
}

/** The events that a send's story speaks of. */
export async function findEventFacts(
  db: Db,
  { events, settlements }: Pick<Send, 'events' | 'settlements'>,
): Promise<Map<string, EventFacts>> {
  const ids = [...events.map(({ id }) => id), ...settlements.flatMap(({ event }) => event ?? [])]
  if (ids.length === 0) return new Map()
  const { rows } = await db.query<EventFacts>({
    name: 'find-event-facts',
    text: `select events.id, events.source, event_id, length(case when body_emptied_at is null then coalesce(events.body, bodies.body) end) as bytes,
        encode(body_sha256, 'hex') as body_sha256, secret_fingerprint, coalesce(again.benign_variants, 0) as benign_variants,
        (select coalesce(sum(times), 0)::int from webhook_conflicts where event = events.id) as conflicts
      from webhook_events events ${REDELIVERIES} left join webhook_bodies bodies on bodies.sha256 = events.body_sha256 where events.id = any ($1::bigint[])`,
    values: [ids],
  })
  return new Map(rows.map((row) => [row.id, row]))
}
