import { z } from 'zod'
import type { Db } from '../db.ts'
import { encodeCursor } from './filters.ts'

/** The lists that a view can be of. */
export const viewScreens = ['sends', 'events', 'review', 'audit'] as const

/** A name for a filter of a list; everybody has it. */
export interface ViewRow {
  id: string
  screen: (typeof viewScreens)[number]
  name: string
  /** The query string of the list, without its question mark. */
  query: string
  created_at: Date
  created_by: string
}

const isPlain = (text: string) => text.isWellFormed() && !/[\p{Cc}\p{Cf}]/u.test(text)

export const newViewSchema = z.strictObject({
  screen: z.enum(viewScreens),
  name: z
    .string()
    .trim()
    .min(1)
    .max(100)
    .refine(isPlain, 'must not contain control characters')
    .meta({ override: { pattern: '\\S' } }),
  query: z
    .string()
    .max(4_000)
    .refine((query) => isPlain(query) && !query.startsWith('?'), 'must be a query string, without its question mark')
    .meta({ description: "The list's query string, without its question mark", override: { pattern: '^([^?]|$)' } }),
})

const COLUMNS = 'id, screen, name, query, created_at, created_by'

/** Keeps a view; undefined when its list has another one of this name. Audited. */
export async function createView(
  db: Db,
  { screen, name, query }: z.output<typeof newViewSchema>,
  { actor, via }: { actor: string; via: string },
): Promise<ViewRow | undefined> {
  const { rows } = await db.query<ViewRow>(
    `with created as (
       insert into saved_views (screen, name, query, created_by) values ($1, $2, $3, $4)
       on conflict on constraint saved_views_once do nothing returning ${COLUMNS}
     ), audited as (
       insert into audit_log (actor, via, action, subject, after)
       select $4, $5, 'create_view', 'view:' || id, jsonb_build_object('screen', screen, 'name', name, 'query', query) from created
     )
     select * from created`,
    [screen, name, query, actor, via],
  )
  return rows[0]
}

/** Removes a view, once; false when there is none. Audited. */
export async function deleteView(db: Db, id: string, { actor, via }: { actor: string; via: string }): Promise<boolean> {
  const { rowCount } = await db.query(
    `with deleted as (delete from saved_views where id = $1 returning ${COLUMNS})
     insert into audit_log (actor, via, action, subject, before)
     select $2, $3, 'delete_view', 'view:' || id, jsonb_build_object('screen', screen, 'name', name, 'query', query) from deleted`,
    [id, actor, via],
  )
  return rowCount === 1
}

/** Views, the oldest first; of one list or of all. */
export async function listViews(
  db: Db,
  { screen, limit, cursor }: { screen?: ViewRow['screen'] | undefined; limit: number; cursor?: [string] | undefined },
): Promise<{ views: ViewRow[]; next_cursor: string | null }> {
  const { rows } = await db.query<ViewRow>(
    `select ${COLUMNS} from saved_views where ($1::text is null or screen = $1) and ($2::bigint is null or id > $2) order by id limit $3`,
    [screen ?? null, cursor?.[0] ?? null, limit + 1],
  )
  const views = rows.slice(0, limit)
  const last = rows.length > limit ? views.at(-1) : undefined
  return { views, next_cursor: last ? encodeCursor([last.id]) : null }
}
