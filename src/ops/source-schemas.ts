import { z } from 'zod'
import { instant, nothingOrInstant, nothingOrText } from './wire.ts'

// What the API says of sources.

const secret = z
  .strictObject({
    position: z.int().nullable(),
    fingerprint: z.string(),
    verified: z.number(),
    first_verified_at: nothingOrInstant,
    last_verified_at: nothingOrInstant,
    is_configured: z.boolean(),
    advice: z.enum(['in use', 'never used', 'safe to remove', 'removed']),
  })
  .meta({ id: 'Secret', description: 'A secret, by its fingerprint' })

const refused = z
  .strictObject({ cause: z.string(), explanation: z.string(), count: z.number(), last_at: instant })
  .meta({ id: 'Refused', description: 'Why requests of the last 24 hours were refused' })

export const sourceSchema = z
  .strictObject({
    name: z.string(),
    is_configured: z.boolean(),
    provider: nothingOrText,
    title: nothingOrText,
    mode: z.enum(['live', 'test']).nullable(),
    url: z.string(),
    content_is_signed: z.boolean().nullable(),
    id_is_signed: z.boolean().nullable(),
    confirm: z.boolean(),
    warnings: z.array(z.string()),
    last_verified_at: nothingOrInstant,
    last_24_hours: z.strictObject({
      accepted: z.number(),
      duplicate: z.number(),
      quarantined: z.number(),
      refused: z.number(),
      other: z.number(),
    }),
    conflicts: z.number().meta({ description: 'Events of which other content came under the same ID in the last 24 hours' }),
    refused: z.array(refused),
    secrets: z.array(secret),
  })
  .meta({ id: 'Source' })

export const sourceListSchema = z.strictObject({ sources: z.array(sourceSchema) }).meta({ id: 'SourceList' })
