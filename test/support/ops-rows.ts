import { createHash, randomUUID } from 'node:crypto'
import type { Db } from '../../src/db.ts'

// Rows as the service would have left them, put in directly in the wanted state.

type Columns = Record<string, unknown>

async function insert(db: Db, table: string, columns: Columns): Promise<void> {
  const names = Object.keys(columns)
  await db.query(
    `insert into ${table} (${names.join(', ')}) values (${names.map((_, index) => `$${index + 1}`).join(', ')})`,
    Object.values(columns),
  )
}

/** A send; a taken one has the claim that its state needs. */
export async function insertSend(db: Db, key: string, columns: Columns = {}): Promise<void> {
  const { state = 'queued' } = columns
  const isTaken = state === 'claimed' || state === 'sending'
  const message = { to: 'ada@example.com', from_email: 'billing@example.com', subject: 'Your receipt', text_body: 'secret text' }
  await insert(db, 'email_sends', {
    dedupe_key: key,
    match_key: String(columns.recipient ?? 'ada@example.com').toLowerCase(),
    state,
    policy: 'claim',
    recipient: 'ada@example.com',
    message: JSON.stringify(message),
    message_sha256: createHash('sha256').update(key).digest(),
    requested_by: 'token:test',
    ...(isTaken && { claim_token: randomUUID(), claimed_at: new Date() }),
    ...(state === 'sent' && { completed_at: new Date() }),
    ...columns,
  })
}

/** An attempt; answers its id, which is a claim token. */
export async function insertAttempt(db: Db, key: string, columns: Columns = {}): Promise<string> {
  const id = randomUUID()
  const recipient = String(columns.recipient ?? 'ada@example.com')
  await insert(db, 'send_attempts', { id, dedupe_key: key, number: 1, recipient, match_key: recipient.toLowerCase(), ...columns })
  return id
}

/** An event; answers the id of its row. */
export async function insertEvent(db: Db, eventId: string, given: Columns = {}): Promise<string> {
  const { redeliveries, benign_variants = 0, last_redelivered_at = new Date(), ...columns } = given
  const body = Buffer.from(`{"id":${JSON.stringify(eventId)}}`)
  await insert(db, 'webhook_events', {
    source: 'stripe',
    event_id: eventId,
    id_basis: 'provider',
    id_signed: true,
    type: 'invoice.paid',
    body,
    body_sha256: createHash('sha256').update(body).digest(),
    headers: JSON.stringify({ 'content-type': 'application/json' }),
    status: 'processed',
    processed_at: new Date(),
    ...columns,
  })
  const { rows } = await db.query<{ id: string; source: string }>('select id, source from webhook_events where event_id = $1', [
    eventId,
  ])
  const { id: event = '', source } = rows[0] ?? {}
  if (redeliveries)
    await insert(db, 'webhook_redeliveries', { source, event, redeliveries, benign_variants, last_redelivered_at })
  return event
}

export async function insertFollowUp(db: Db, event: string, key: string | null, columns: Columns = {}): Promise<void> {
  await insert(db, 'follow_ups', { event, rule: 'receipts', dedupe_key: key, outcome: 'queued', ...columns })
}

export async function insertReport(db: Db, event: string, columns: Columns): Promise<void> {
  await insert(db, 'delivery_reports', { event, kind: 'delivered', occurred_at: new Date(), ...columns })
}

export async function insertSettlement(db: Db, key: string, attempt: string, columns: Columns = {}): Promise<void> {
  await insert(db, 'settlements', {
    dedupe_key: key,
    attempt,
    grade: 'A',
    rule_version: 1,
    from_state: 'needs_review',
    to_state: 'sent',
    candidates: JSON.stringify([attempt]),
    actor: 'event',
    ...columns,
  })
}
