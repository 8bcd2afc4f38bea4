import { z } from 'zod'
import { statuses } from '../sends/lifecycle.ts'
import { eventStatuses } from './filters.ts'
import { instant, nothingOrInstant, nothingOrText, pageOf, rowId } from './wire.ts'

// What the API says of events.

export const eventRowSchema = z
  .strictObject({
    id: rowId,
    source: z.string(),
    event_id: z.string().meta({ description: "The provider's own ID" }),
    id_basis: z.string(),
    type: nothingOrText,
    livemode: z.boolean().nullable(),
    status: z.enum(eventStatuses),
    occurred_at: nothingOrInstant,
    received_at: instant,
    processed_at: nothingOrInstant,
    error: nothingOrText,
    redeliveries: z.int(),
    last_redelivered_at: nothingOrInstant,
    benign_variants: z.int(),
    body_sha256: z.string(),
    body_emptied_at: nothingOrInstant,
    object_ref: nothingOrText.meta({ description: "ID of the provider's object that it is about" }),
  })
  .meta({ id: 'EventRow' })

const followUp = z
  .strictObject({
    rule: z.string(),
    outcome: z.string(),
    error: nothingOrText,
    at: instant,
    dedupe_key: nothingOrText,
    status: z.enum(statuses).nullable(),
    recipient: nothingOrText,
  })
  .meta({ id: 'FollowUp', description: 'A send that the event asked for' })

const conflict = z
  .strictObject({ id: rowId, body_sha256: z.string(), received_at: instant, times: z.int() })
  .meta({ id: 'Conflict', description: 'The same event ID with other content' })

const eventReport = z
  .strictObject({
    kind: z.string(),
    message_id: nothingOrText,
    recipient: nothingOrText,
    bounce_kind: nothingOrText,
    occurred_at: instant,
    parked: nothingOrText.meta({ description: 'Why it has no send' }),
    dedupe_key: nothingOrText,
  })
  .meta({ id: 'EventReport', description: 'What a delivery event says of a send' })

const objectHistory = z
  .strictObject({
    ref: z.string(),
    events: z.array(
      eventRowSchema
        .pick({ id: true, event_id: true, type: true, occurred_at: true, received_at: true, status: true })
        .meta({ id: 'ObjectEvent' }),
    ),
  })
  .meta({ id: 'ObjectHistory', description: 'The object that an event is about; its newest event tells its state' })

export const eventSchema = eventRowSchema
  .extend({
    headers: z.record(z.string(), z.string()),
    secret_index: z.int().nullable(),
    secret_fingerprint: nothingOrText,
    body_bytes: z.int().nullable(),
    sends: z.array(followUp),
    conflicts: z.array(conflict),
    report: eventReport.nullable(),
    object: objectHistory.nullable(),
  })
  .meta({ id: 'Event' })

export const eventPageSchema = pageOf('events', eventRowSchema).meta({ id: 'EventPage' })

const recorded = z.strictObject({ id: z.string(), type: nothingOrText, status: z.enum(['accepted', 'duplicate', 'quarantined']) })

export const replayedSchema = z
  .discriminatedUnion('outcome', [
    z.strictObject({ outcome: z.literal('queued') }),
    z.strictObject({ outcome: z.literal('read'), events: z.array(recorded) }),
    z.strictObject({ outcome: z.literal('still_unusable') }),
  ])
  .meta({ id: 'Replayed' })
