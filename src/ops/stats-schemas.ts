import { z } from 'zod'
import { statuses } from '../sends/lifecycle.ts'
import { instant, nothingOrInstant } from './wire.ts'

// What the API says of the service as a whole.

const level = z.enum(['ok', 'attention', 'problem'])
const href = z.string().meta({ description: "The page's list that makes the figure" })

const cell = z
  .strictObject({
    name: z.enum(['receiving', 'processing', 'sending', 'reports', 'decisions', 'storage']),
    title: z.string(),
    level,
    word: z.string().meta({ description: '`OK`, or what is wrong in a word or two' }),
    lines: z.array(z.strictObject({ text: z.string(), href: href.nullable() })),
  })
  .meta({ id: 'Cell' })

const overviewSchema = z
  .strictObject({
    at: instant,
    level,
    title: z.string(),
    cells: z.array(cell),
    last_24_hours: z.array(z.strictObject({ status: z.enum(statuses), count: z.int(), href })),
    queue: z.strictObject({ waiting: z.int(), per_minute: z.number(), done_at: nothingOrInstant, href }),
    problems: z.array(z.strictObject({ at: instant, text: z.string(), href })),
  })
  .meta({ id: 'Overview' })

const figure = z.number().nullable()
const point = z
  .strictObject({
    at: instant,
    events_per_second: figure,
    ack_p99_ms: figure,
    duplicates_percent: figure,
    unknown_percent: figure,
  })
  .meta({
    id: 'Point',
    description: 'One stretch of time; null is a gap: no process reported, or there is nothing to take a share of',
  })

const seriesSchema = z
  .strictObject({
    range: z.enum(['1h', '24h', '7d']),
    seconds: z.number(),
    points: z.array(point),
    duplicates: z.number(),
    unknown: z.number(),
    calls: z.number(),
  })
  .meta({ id: 'Series' })

export const statsSchema = z.strictObject({ overview: overviewSchema, series: seriesSchema }).meta({ id: 'Stats' })
