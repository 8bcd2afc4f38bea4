import { createHash } from 'node:crypto'
import { z } from 'zod'

// A line break or NUL in a subject or a name could become a header of its own; U+2028 and U+2029 break lines too.
const lineBreaks = /[\p{Cc}\u2028\u2029]+/gu
const header = (limit: number) =>
  // Well-formed last: the cut may go through the middle of a character.
  z.string().transform((text) => text.replace(lineBreaks, ' ').trim().slice(0, limit).toWellFormed())
const bodyText = z.string().max(1_000_000).transform(storable)

// The length is looked at before any pattern, and the patterns have no nested repetition: linear on hostile input.
const address = z
  .string()
  .trim()
  .max(254, { error: 'longer than 254 characters', abort: true })
  .regex(/^[^\s@<>(),;:"\\[\]\p{Cc}]{1,64}@[^\s@<>(),;:"\\[\]\p{Cc}]{1,189}$/u, 'not an email address')
  .refine((text) => text.isWellFormed(), 'not an email address')

/** PostgreSQL takes neither NUL nor a lone surrogate in its JSON. */
function storable(text: string): string {
  return text.toWellFormed().replaceAll('\0', '')
}

type Json = z.output<ReturnType<typeof z.json>>

/** Each one is looked at several times on the way, beside requests that wait for their answer. */
export const MOST_TEMPLATE_VALUES = 2_000
const MAX_DEPTH = 200

/** What keeps template data from being read; found before anything is done to its values one by one. */
function problemOf(data: unknown): string | undefined {
  let seen = 0
  let level = [data]
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MAX_DEPTH) return 'is nested too deeply'
    const next: unknown[] = []
    for (const value of level) {
      // JSON has it as written, we as a double: another number would be sent, and taken for the same message.
      if (Number.isInteger(value) && !Number.isSafeInteger(value))
        return 'has an integer beyond 2^53, which would lose digits: write it as a string'
      if (value === null || typeof value !== 'object') continue
      const inner: unknown[] = Object.values(value)
      seen += inner.length
      if (seen > MOST_TEMPLATE_VALUES) return `has more than ${MOST_TEMPLATE_VALUES.toLocaleString('en')} values`
      for (const one of inner) next.push(one)
    }
    level = next
  }
  return undefined
}

function cleanJson(value: Json): Json {
  if (typeof value === 'string') return storable(value)
  if (Array.isArray(value)) return value.map(cleanJson)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [storable(name), cleanJson(inner)]))
}

const templateData = z
  .unknown()
  .superRefine((data, context) => {
    const message = problemOf(data)
    if (message !== undefined) context.addIssue({ code: 'custom', message, continue: false })
  })
  .pipe(z.record(z.string(), z.json()))
  .transform((data) => cleanJson(data) as typeof data) // an object stays one
  .meta({
    description: `At most ${MOST_TEMPLATE_VALUES.toLocaleString('en')} values, each object, list and what is in them counted. Numbers are doubles; an integer beyond 2^53 is refused: write it as a string`,
    override: ({ jsonSchema }) => Object.assign(jsonSchema, { type: 'object', additionalProperties: true }),
  })

/** The email that Inboxili is asked to send: its own published fields, cleaned of what could become a header. */
export const messageSchema = z
  .strictObject({
    to: address,
    from_email: address,
    from_name: header(200).optional(),
    subject: header(500).optional(),
    html_body: bodyText.optional(),
    text_body: bodyText.optional(),
    template_id: z.string().min(1).max(200).transform(storable).optional(),
    template_data: templateData.optional(),
  })
  .refine((message) => message.template_id !== undefined || message.html_body !== undefined || message.text_body !== undefined, {
    message: 'needs template_id, html_body or text_body',
  })
  .meta({
    id: 'Message',
    override: { anyOf: ['template_id', 'html_body', 'text_body'].map((field) => ({ required: [field] })) },
  })

export type Message = z.infer<typeof messageSchema>

/** A stable hash of a message: the same fields in another order are the same message. */
export function messageHash(message: Message): Buffer {
  return createHash('sha256').update(stableJson(message)).digest()
}

/** The names of the top-level fields in which two messages differ. */
export function differingFields(one: Message, other: Message): string[] {
  const fields = new Set([...Object.keys(one), ...Object.keys(other)]) as Set<keyof Message>
  return [...fields].filter((field) => stableJson(one[field]) !== stableJson(other[field])).sort()
}

function stableJson(value: unknown): string {
  return (
    JSON.stringify(value, (_, inner: unknown) =>
      inner !== null && typeof inner === 'object' && !Array.isArray(inner)
        ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
        : inner,
    ) ?? 'undefined'
  )
}
