import { z } from 'zod'
import { states, statuses } from '../sends/lifecycle.ts'
import { freeObject, instant, nothingOrInstant, nothingOrText, pageOf, rowId } from './wire.ts'

// What the API says of sends.

export const sendRowSchema = z
  .strictObject({
    dedupe_key: z.string(),
    status: z.enum(statuses),
    state: z.enum(states),
    needs_review: z.boolean(),
    version: z.int().meta({ description: 'Counts up with each change; a decision says which one it saw' }),
    policy: z.string(),
    recipient: z.string(),
    subject: nothingOrText,
    source_event: rowId.nullable(),
    requested_by: z.string(),
    queued_at: instant,
    send_after: nothingOrInstant,
    claimed_at: nothingOrInstant,
    sending_at: nothingOrInstant,
    message_id: nothingOrText.meta({ description: "Inboxili's ID" }),
    completed_at: nothingOrInstant,
    delivered_at: nothingOrInstant,
    bounced_at: nothingOrInstant,
    bounce_kind: nothingOrText,
    complained_at: nothingOrInstant,
    settled_at: nothingOrInstant,
    settled_by: nothingOrText,
    last_error: nothingOrText,
    eta: nothingOrInstant.meta({ description: 'About when it is called; null unless it waits and sending runs' }),
  })
  .meta({ id: 'SendRow' })

const attempt = z
  .strictObject({
    number: z.int(),
    outcome: z.string(),
    recipient: z.string(),
    claimed_at: instant,
    called_at: nothingOrInstant,
    ended_at: nothingOrInstant,
    http_status: z.int().nullable(),
    error: nothingOrText,
    message_id: nothingOrText,
  })
  .meta({ id: 'Attempt', description: 'One call that was made or claimed' })

const sendEvent = z
  .strictObject({
    id: rowId,
    source: z.string(),
    event_id: z.string(),
    type: nothingOrText,
    livemode: z.boolean().nullable(),
    occurred_at: nothingOrInstant,
    received_at: instant,
    redeliveries: z.int(),
    rule: z.string(),
    outcome: z.string(),
    error: nothingOrText,
    at: instant,
  })
  .meta({ id: 'SendEvent', description: 'An event that asked for the send, and what came of that' })

const report = z
  .strictObject({
    event: rowId,
    source: z.string(),
    event_id: z.string(),
    kind: z.string(),
    message_id: nothingOrText,
    recipient: nothingOrText,
    bounce_kind: nothingOrText,
    occurred_at: instant,
    received_at: instant,
    attempt: z.int(),
  })
  .meta({ id: 'Report', description: 'A delivery event that speaks of the send' })

const settlement = z
  .strictObject({
    id: rowId,
    attempt: z.int(),
    event: rowId.nullable(),
    grade: z.string(),
    rule_version: z.int(),
    from_state: z.string(),
    to_state: z.string(),
    candidates: z.array(z.strictObject({ dedupe_key: z.string(), attempt: z.int() })),
    evidence: freeObject.nullable(),
    event_at: nothingOrInstant,
    actor: z.string(),
    at: instant,
  })
  .meta({ id: 'Settlement', description: 'What closed an unknown outcome, or told whose message it is' })

const moment = z
  .strictObject({
    at: instant,
    kind: z.enum(['received', 'dedupe', 'follow_up', 'queued', 'claimed', 'call', 'answer', 'report', 'settled']),
    text: z.string(),
  })
  .meta({ id: 'Moment' })

const message = z
  .strictObject({
    to: z.string(),
    from_email: z.string(),
    from_name: z.string().optional(),
    subject: z.string().optional(),
    html_body: z.string().optional(),
    text_body: z.string().optional(),
    template_id: z.string().optional(),
    template_data: freeObject.optional(),
  })
  .meta({ id: 'StoredMessage', description: 'The email that Inboxili is asked to send' })

export const sendSchema = sendRowSchema
  .extend({
    message,
    attempts: z.array(attempt),
    events: z.array(sendEvent),
    reports: z.array(report),
    settlements: z.array(settlement),
    explanation: nothingOrText.meta({ description: 'Why several events made this one email; null where only one asked' }),
    timeline: z.array(moment),
  })
  .meta({ id: 'Send' })

export const sendPageSchema = pageOf('sends', sendRowSchema).meta({ id: 'SendPage' })
