import { z } from 'zod'
import { statuses } from '../sends/lifecycle.ts'
import { verdicts } from '../sends/suggest.ts'
import { instant, nothingOrInstant, nothingOrText, pageOf, rowId } from './wire.ts'

// What the API says of sends that need a decision, of what speaks for one, and of many decisions at once.

const verdict = z.enum(verdicts)
const decision = z.enum(['sent', 'abandoned', 'retry'])

const suggestionSchema = z
  .strictObject({
    verdict,
    grade: z.enum(['A', 'B', 'C']).nullable(),
    event: rowId.nullable(),
    message_id: nothingOrText,
    candidates: z.int(),
    rule_version: z.int(),
    explanation: z.string(),
  })
  .meta({ id: 'Suggestion', description: 'What speaks for one decision; a hint for people, nothing acts on it' })

const reviewRow = z
  .strictObject({
    dedupe_key: z.string(),
    version: z.int(),
    recipient: z.string(),
    subject: nothingOrText,
    policy: z.string(),
    queued_at: instant,
    last_error: nothingOrText,
    asked_by: nothingOrText.meta({ description: 'Who wants it sent again, which waits for another person' }),
    asked_at: nothingOrInstant,
    suggestion: suggestionSchema,
  })
  .meta({ id: 'ReviewRow' })

export const reviewPageSchema = pageOf('sends', reviewRow).meta({ id: 'ReviewPage' })

export const evidenceSchema = z
  .strictObject({
    dedupe_key: z.string(),
    status: z.enum(statuses),
    version: z.int(),
    recipient: z.string(),
    queued_at: instant,
    last_error: nothingOrText,
    lines: z.array(
      z.strictObject({
        at: instant,
        kind: z.enum(['request', 'end', 'report', 'parked', 'sending_log', 'asked']),
        text: z.string(),
      }),
    ),
    suggestion: suggestionSchema.nullable(),
    around: z
      .strictObject({ sends: z.int(), delivered: z.int(), parked_reports: z.int() })
      .meta({ description: 'Of the same recipient, from 24 h before the last call to 24 h after it' }),
    candidates: z.array(
      z.strictObject({
        event: rowId,
        source: z.string(),
        event_id: z.string(),
        kind: z.string(),
        message_id: nothingOrText,
        recipient: nothingOrText,
        occurred_at: instant,
        has_own_time: z.boolean(),
        parked: z.string(),
        seconds_after_call: z.int().nullable(),
        dismissed_at: nothingOrInstant,
      }),
    ),
  })
  .meta({ id: 'Evidence' })

const reportSchema = z
  .strictObject({
    event: rowId,
    source: z.string(),
    event_id: z.string(),
    kind: z.string(),
    bounce_kind: nothingOrText,
    message_id: nothingOrText,
    recipient: nothingOrText,
    subject: nothingOrText,
    occurred_at: instant,
    has_own_time: z.boolean(),
    received_at: instant,
    parked: z.string().meta({ description: 'Why it found no call' }),
    dismissed_at: nothingOrInstant,
    dismissed_by: nothingOrText,
    candidates: z.array(
      z.strictObject({
        dedupe_key: z.string(),
        status: z.enum(statuses),
        version: z.int(),
        attempt: z.int(),
        seconds_after_call: z.int(),
      }),
    ),
  })
  .meta({ id: 'UnmatchedReport' })

export const reportPageSchema = pageOf('reports', reportSchema).meta({ id: 'UnmatchedReportPage' })

export const dismissedSchema = z.strictObject({ outcome: z.literal('dismissed') }).meta({ id: 'Dismissed' })

export const decisionPlanSchema = z
  .strictObject({
    plan: z.uuid(),
    id: z.uuid(),
    state: z.enum(['planned', 'running', 'done']),
    decision,
    reason: z.string(),
    will_change: z.int(),
    decided: z.int(),
    skipped: z.int(),
    has_more: z.boolean().meta({ description: 'More sends matched than one plan takes' }),
    created_at: instant,
    created_by: z.string(),
    expires_at: instant,
    started_at: nothingOrInstant,
    started_by: nothingOrText,
    ended_at: nothingOrInstant,
    sends: z.array(
      z.strictObject({
        dedupe_key: z.string(),
        version: z.int().nullable(),
        recipient: nothingOrText,
        suggestion: verdict.nullable(),
        result: z.enum(['will_change', 'decided', 'skipped']),
        skipped: nothingOrText.meta({ description: 'Why nothing is decided about it' }),
      }),
    ),
  })
  .meta({ id: 'DecisionPlan' })

const outcome = z.enum(['settles', 'adds', 'known', 'look', 'nothing'])

export const reconciledSchema = z
  .strictObject({
    file_sha256: z.string(),
    applied: z.boolean().meta({ description: 'Whether it was done; else it is what would be' }),
    columns: z.strictObject({
      recipient: nothingOrText,
      message_id: nothingOrText,
      status: nothingOrText,
      time: nothingOrText,
      subject: nothingOrText,
    }),
    summary: z.strictObject({ settles: z.int(), adds: z.int(), known: z.int(), look: z.int(), nothing: z.int() }),
    coverage: z
      .strictObject({
        from: nothingOrInstant,
        until: nothingOrInstant,
        times_off_by_minutes: z.int().nullable().meta({
          description: 'By how much its times differ from ours, less than 0 where they are early; then none of them is used',
        }),
        known: z.int(),
        missing: z.int(),
        open: z.int(),
        absent: z.array(z.string()),
      })
      .meta({
        description:
          'What the file covers, and the open sends that it lacks; those say something only if nothing known is missing',
      }),
    lines: z.array(
      z.strictObject({
        line: z.int(),
        line_sha256: z.string(),
        outcome,
        reason: nothingOrText,
        dedupe_key: nothingOrText,
      }),
    ),
    lines_left_out: z.int(),
  })
  .meta({ id: 'Reconciled' })
