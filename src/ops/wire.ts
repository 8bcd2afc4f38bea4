import { z } from 'zod'

// What the answers of the API have in common: a Date on our side is a text on the wire.

/** An instant: a Date here, ISO 8601 in UTC on the wire. */
export const instant = z
  .codec(z.iso.datetime(), z.date(), { decode: (text) => new Date(text), encode: (date) => date.toISOString() })
  .meta({ override: { type: 'string', format: 'date-time' }, example: '2026-11-29T14:36:42.067Z' })

export const nothingOrInstant = instant.nullable()
export const nothingOrText = z.string().nullable()

/** The ID of a row. */
export const rowId = z
  .string()
  .regex(/^\d{1,19}$/)
  .meta({ description: 'ID of a row, as a string of digits', example: '4' })

/** An object that its maker may fill as it likes. */
export const freeObject = z.record(z.string(), z.unknown())

/** One page of a list. */
export const pageOf = <const Name extends string, Row extends z.ZodType>(name: Name, row: Row) =>
  z.strictObject({
    // The computed name would widen to any string.
    ...({ [name]: z.array(row) } as Record<Name, z.ZodArray<Row>>),
    next_cursor: nothingOrText.meta({ description: '`cursor` of the next page; null on the last one' }),
  })

/** The version of what is answered, for the `If-Match` of a decision on it. */
export const etagOf = ({ version }: { version: number }): string => `"${version}"`
