import { z } from 'zod'
import { statuses } from '../sends/lifecycle.ts'
import { policies } from '../sends/policies.ts'

// What the API's query strings and the CLI's options may ask for: checked here once, trusted inside.

export const eventStatuses = ['pending', 'processed', 'ignored', 'failed', 'quarantined'] as const
export type EventStatus = (typeof eventStatuses)[number]

const MAX_ID = 9_223_372_036_854_775_807n
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 }

/** PostgreSQL's texts hold neither NUL nor half a character. */
const isStorable = (value: string): boolean => value.isWellFormed() && !value.includes('\0')
const UNSTORABLE = 'must not contain NUL or half a character'

export const text = z.string().min(1).max(1_000).refine(isStorable, UNSTORABLE)

/** A send's key in a body. */
export const givenKey = z.string().min(1).max(512).refine(isStorable, UNSTORABLE)

export const limit = z
  .string()
  .regex(/^\d{1,9}$/, 'must be a whole number')
  .transform(Number)
  .pipe(z.number().min(1).max(200))
  .default(50)
  .meta({
    description: 'Rows of a page, 1 to 200',
    override: ({ jsonSchema }) => {
      Object.assign(jsonSchema, { type: 'integer', minimum: 1, maximum: 200, default: 50 })
      delete jsonSchema.pattern
    },
  })

/** A comma list of known words. */
const listOf = <const Word extends string>(words: readonly Word[]) =>
  z
    .string()
    .transform((value, context) => {
      const parsed = z.array(z.enum(words)).safeParse(value.split(',').map((word) => word.trim()))
      if (parsed.success) return parsed.data
      context.addIssue({ code: 'custom', message: `must be a comma list of ${words.join(', ')}` })
      return z.NEVER
    })
    .meta({ description: `Comma list of ${words.map((word) => `\`${word}\``).join(', ')}` })

/** A day that no calendar has is one of the next month to JavaScript. */
const isDay = (day: string) => new Date(day).toISOString().startsWith(day)

const INSTANT = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?$/

/** Both, for programs. */
const SINCE_PATTERN =
  '^([0-9]{1,5}[mhd]|[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[+ -][0-9]{2}:[0-9]{2})?)?)$'

/** `30m`, `24h` or `7d` before now, or an instant, in UTC unless it says otherwise. */
const since = (now: () => Date) =>
  z
    .string()
    .meta({
      description:
        'Minutes, hours or days before now (`30m`, `24h`, `7d`), or an ISO 8601 day or time, in UTC where it names no zone',
      example: '24h',
      override: { pattern: SINCE_PATTERN },
    })
    .transform((value, context) => {
      const [, count, unit] = /^(\d{1,5})([mhd])$/.exec(value) ?? []
      if (count && unit) return new Date(now().getTime() - Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS])
      // A plus sign that wasn't encoded in a query string arrives as a blank.
      const [instant, time, , , zone] = INSTANT.exec(value.replace(' ', '+')) ?? []
      const date = new Date(instant === undefined ? Number.NaN : time && !zone ? `${instant}Z` : instant)
      if (instant !== undefined && !Number.isNaN(date.getTime()) && isDay(instant.slice(0, 10))) return date
      context.addIssue({ code: 'custom', message: 'must be an ISO 8601 time, or like 30m, 24h or 7d' })
      return z.NEVER
    })

const decodeCursor = (value: string): unknown => {
  try {
    return JSON.parse(Buffer.from(value, 'base64url').toString('utf8'))
  } catch {
    return undefined
  }
}

/** "n match" stops counting beyond so many. */
export const MOST_COUNTED = 10_000

/** The place that a cursor of ours stands for. */
export const placeOf = (cursor: string): unknown => decodeCursor(cursor)

/** Where a page ends, as a text that means nothing to its reader. */
export function encodeCursor(place: readonly string[]): string {
  return Buffer.from(JSON.stringify(place)).toString('base64url')
}

export const cursor = <Place extends z.ZodType>(place: Place) =>
  z
    .string()
    .max(4_000)
    .meta({ description: '`next_cursor` of the page before' })
    .transform((value, context): z.output<Place> => {
      const parsed = place.safeParse(decodeCursor(value))
      if (parsed.success) return parsed.data
      context.addIssue({ code: 'custom', message: 'is not a cursor of this list' })
      return z.NEVER
    })

/** The ID of a row in a path. */
export const rowIdSchema = z
  .string()
  .refine((id) => readRowId(id) !== undefined, 'must be the ID of a row, as a string of digits')
  .meta({ example: '4', override: { pattern: '^[0-9]{1,19}$' } })

/** A send's key in a path. */
export const sendKey = z
  .string()
  .refine(isStorable)
  .meta({ description: 'The key, percent-encoded', example: 'invoice:INV-1042:paid' })

/** An event's row in a path. */
export const eventRow = rowIdSchema.meta({ description: "The event's row, not the provider's ID", example: '4' })

/** A row's number; undefined when no row can have it. */
export function readRowId(value: string): string | undefined {
  return /^\d{1,19}$/.test(value) && BigInt(value) <= MAX_ID ? value : undefined
}

/** A run's ID; undefined when none can have it. */
export function readRunId(value: string | undefined): string | undefined {
  return z.uuid().safeParse(value).data
}

export const microseconds = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)
  // A day that no calendar has is none to PostgreSQL, and one of the next month to JavaScript.
  .refine((value) => {
    const date = new Date(value)
    return date.getUTCFullYear() > 0 && date.toISOString().startsWith(value.slice(0, 10))
  })

const rowId = z.string().refine((value) => readRowId(value) !== undefined)

export const sendFilter = (now: () => Date) =>
  z.strictObject({
    status: listOf(statuses).optional(),
    recipient: text.optional(),
    q: text
      .optional()
      .meta({ description: 'A key or a part of one, a recipient, a message ID, an event ID, or what an event names' }),
    since: since(now).optional(),
    until: since(now).optional(),
    unknown_since: since(now)
      .optional()
      .meta({
        description: 'Of a call since then whose outcome nobody knew, whatever has become known of it; times as in `since`',
        example: '1h',
        override: { pattern: SINCE_PATTERN },
      }),
    policy: z.enum(policies).optional(),
    source: text.optional(),
    limit,
    cursor: cursor(z.tuple([microseconds, text])).optional(),
  })
export type SendFilter = z.output<ReturnType<typeof sendFilter>> & {
  /** `q` is not looked for among addresses, for who may not see them. */
  withoutAddresses?: boolean | undefined
}

export const eventFilter = (now: () => Date) =>
  z.strictObject({
    source: text.optional(),
    event_id: text.optional().meta({ description: "The provider's own ID" }),
    ref: text.optional().meta({ description: "What the event names: an object's ID, a number, an address" }),
    type: text.optional(),
    status: listOf(eventStatuses).optional(),
    mode: z.enum(['live', 'test']).optional().meta({ description: "What the provider says; what it doesn't say counts as live" }),
    has: z.enum(['conflict', 'redelivery']).optional(),
    since: since(now).optional(),
    until: since(now).optional(),
    limit,
    cursor: cursor(z.tuple([rowId])).optional(),
  })
export type EventFilter = z.output<ReturnType<typeof eventFilter>>

export const auditFilter = (now: () => Date) =>
  z.strictObject({
    actor: text.optional().meta({ description: '`token:NAME`, `person:NAME`, or a name that the command line was given' }),
    action: text.optional(),
    subject: text.optional().meta({ description: '`send:KEY`, `event:ID`, `run:ID`, `token:ID`, `person:NAME` …' }),
    since: since(now).optional(),
    until: since(now).optional(),
    limit,
    cursor: cursor(z.tuple([microseconds, rowId])).optional(),
  })

/** Pages of people, and of tokens. */
export const rowFilter = z.strictObject({ limit, cursor: cursor(z.tuple([rowId])).optional() })

/** Which events a replay takes. What waits for a person's look is left out unless the filter names it; what is pending waits anyway. */
export const replayFilter = (now: () => Date) =>
  z
    .strictObject({
      source: text.optional(),
      type: text.optional(),
      status: z
        .array(z.enum(['processed', 'ignored', 'failed', 'quarantined']))
        .min(1)
        .max(4)
        .optional(),
      since: since(now).optional(),
      until: since(now).optional(),
      event_ids: z.array(text).min(1).max(1_000).optional(),
    })
    .refine((filter) => Object.values(filter).some((value) => value !== undefined), 'must name something')
    .transform((filter) => ({ ...filter, status: filter.status ?? ['processed', 'ignored', 'failed'] }))

/** What is wrong with an input, by place; the input's own values are not repeated. */
export function problemsOf(error: z.ZodError): { path: string; message: string }[] {
  return error.issues.flatMap((issue) => problemsOfIssue(issue)).slice(0, 20)
}

function problemsOfIssue(issue: z.core.$ZodIssue, within: readonly PropertyKey[] = []): { path: string; message: string }[] {
  const path = [...within, ...issue.path]
  const at = (path: readonly PropertyKey[]) => path.map(String).join('.').slice(0, 200)
  if (issue.code === 'unrecognized_keys') return issue.keys.map((key) => ({ path: at([...path, key]), message: 'unknown field' }))
  if (issue.code !== 'invalid_union') return [{ path: at(path), message: issue.message }]
  // Of several forms that it may have, the one that it comes closest to.
  const forms = issue.errors.map((issues) => issues.flatMap((inner) => problemsOfIssue(inner, path)))
  const [closest] = forms.toSorted((one, other) => one.length - other.length)
  if (closest) return closest
  const words = 'options' in issue && Array.isArray(issue.options) ? issue.options.map(String).join(', ') : undefined
  return [{ path: at(path), message: words === undefined ? issue.message : `must be one of ${words}` }]
}
