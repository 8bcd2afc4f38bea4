import type pg from 'pg'
import type { z } from 'zod'
import { auditRowSchema } from './account-schemas.ts'
import { listAudit } from './audit-queries.ts'
import { listEvents } from './event-queries.ts'
import { eventRowSchema } from './event-schemas.ts'
import { type auditFilter, type EventFilter, placeOf, type SendFilter } from './filters.ts'
import type { Mask } from './personal-data.ts'
import { listSends } from './send-queries.ts'
import { sendRowSchema } from './send-schemas.ts'

/** A list that can be had as CSV, with the filter of its screen. */
export type Export =
  | { list: 'sends'; filter: SendFilter }
  | { list: 'events'; filter: EventFilter }
  | { list: 'audit'; filter: z.output<ReturnType<typeof auditFilter>> }

interface Page {
  rows: readonly object[]
  next_cursor: string | null
}

/** Rows that one statement brings; the next one waits until its reader has taken them. */
const ROWS_AT_ONCE = 200

/** The whole list as CSV, from the filter's cursor on, made page by page as it is read. That somebody has it is audited first. */
export async function exportCsv(
  { pool, reads }: { pool: pg.Pool; reads: pg.Pool },
  wanted: Export,
  { actor, via, mask }: { actor: string; via: string; mask: Mask },
): Promise<AsyncGenerator<string>> {
  const { cursor: _cursor, limit: _limit, ...filter } = wanted.filter
  await pool.query(`insert into audit_log (actor, via, action, subject, after) values ($1, $2, 'export', $3, $4)`, [
    actor,
    via,
    wanted.list,
    JSON.stringify(filter),
  ])
  const { columns, findPage } = sourceOf(reads, wanted, mask)
  return csvOf(columns, findPage, mask)
}

function sourceOf(
  reads: pg.Pool,
  { list, filter }: Export,
  mask: Mask,
): { columns: string[]; findPage(next: string | null): Promise<Page> } {
  switch (list) {
    case 'sends':
      return {
        columns: Object.keys(sendRowSchema.omit({ eta: true }).shape),
        async findPage(next) {
          const { sends, next_cursor } = await listSends(reads, { ...pageAt(filter, next), withoutAddresses: mask.isOn })
          return { rows: sends, next_cursor }
        },
      }
    case 'events':
      return {
        columns: Object.keys(eventRowSchema.shape),
        async findPage(next) {
          const { events, next_cursor } = await listEvents(reads, pageAt(filter, next))
          return { rows: events, next_cursor }
        },
      }
    case 'audit':
      return {
        columns: Object.keys(auditRowSchema.shape),
        async findPage(next) {
          const { audit, next_cursor } = await listAudit(reads, pageAt(filter, next))
          return { rows: audit, next_cursor }
        },
      }
  }
}

/** The filter for the page that begins there; its first one begins where the filter says. */
function pageAt<Filter extends { limit: number }>(filter: Filter, next: string | null): Filter {
  return { ...filter, limit: ROWS_AT_ONCE, ...(next !== null && { cursor: placeOf(next) }) }
}

async function* csvOf(
  columns: readonly string[],
  findPage: (next: string | null) => Promise<Page>,
  mask: Mask,
): AsyncGenerator<string> {
  yield `\uFEFF${lineOf(columns)}`
  let next: string | null = null
  do {
    const page: Page = await findPage(next)
    const rows = page.rows.map((row): Record<string, unknown> => ({ ...mask.apply(row) }))
    yield rows.map((row) => lineOf(columns.map((column) => row[column]))).join('')
    next = page.next_cursor
  } while (next !== null)
}

const lineOf = (cells: readonly unknown[]) => `${cells.map(cellOf).join(',')}\r\n`

/** One cell (RFC 4180). What a spreadsheet would take for a formula gets a leading apostrophe. */
function cellOf(value: unknown): string {
  if (value === null || value === undefined) return ''
  const text = value instanceof Date ? value.toISOString() : typeof value === 'object' ? JSON.stringify(value) : String(value)
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
