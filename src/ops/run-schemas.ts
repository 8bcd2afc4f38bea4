import { z } from 'zod'
import { freeObject, instant, nothingOrInstant, nothingOrText, pageOf } from './wire.ts'

// What the API says of sending and of replays of many events.

const counts = z.record(z.string(), z.int())
const forecast: z.ZodType<object> = z
  .strictObject({
    events: counts.meta({ description: 'Each event once' }),
    emails: z
      .strictObject({ would_send: z.int(), key_taken: z.int(), held: counts })
      .meta({ description: 'Each email once, by its key' }),
  })
  .meta({ id: 'Forecast', description: 'What a replay would do' })

export const runSchema = z
  .strictObject({
    id: z.uuid(),
    state: z.enum(['planned', 'running', 'stopped', 'done']),
    filter: freeObject,
    events: z.int(),
    next_since: nothingOrInstant,
    forecast: forecast.nullable(),
    done: z.int(),
    queued: z.int(),
    read_anew: z.int(),
    statuses: counts,
    created_at: instant,
    created_by: z.string(),
    expires_at: instant,
    started_at: nothingOrInstant,
    started_by: nothingOrText,
    ended_at: nothingOrInstant,
    stopped_by: nothingOrText,
  })
  .meta({ id: 'Run' })

export const runPageSchema = pageOf('runs', runSchema).meta({ id: 'RunPage' })

export const planSchema = runSchema.extend({ plan: z.uuid() }).meta({ id: 'Plan' })

const upToMost = z.int().meta({ description: '10,001 where there are more than 10,000' })

export const sendingSchema = z
  .strictObject({
    version: z.int(),
    paused: z.boolean(),
    reason: nothingOrText,
    by: nothingOrText,
    since: nothingOrInstant,
    next_probe_at: nothingOrInstant,
    unknown_in_a_row: z.int(),
    matching: z.enum(['auto', 'suggest']),
    matching_reason: nothingOrText,
    matching_since: nothingOrInstant,
    waiting: upToMost,
    needs_review: upToMost,
  })
  .meta({ id: 'Sending' })
