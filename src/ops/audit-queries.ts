import type { z } from 'zod'
import type { Db } from '../db.ts'
import { type auditFilter, encodeCursor } from './filters.ts'

export interface AuditRow {
  id: string
  at: Date
  /** `person:NAME`, `token:NAME`, `system`, or the name that the command line was given. */
  actor: string
  /** `page`, `api`, `cli`, or `oncehook` for what happened by itself. */
  via: string
  action: string
  /** What was changed: `send:KEY`, `event:ID`, `person:NAME`, `token:ID` … */
  subject: string
  reason: string | null
  before: unknown
  after: unknown
}

export interface AuditPage {
  audit: AuditRow[]
  next_cursor: string | null
}

/** What people and programs have changed, the latest first. */
export async function listAudit(
  db: Db,
  { actor, action, subject, since, until, limit, cursor }: z.output<ReturnType<typeof auditFilter>>,
): Promise<AuditPage> {
  const { rows } = await db.query<AuditRow & { place: string }>(
    `select id, at, actor, via, action, subject, reason, before, after,
       to_char(at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as place
     from audit_log
     where ($1::timestamptz is null or (at, id) < ($1, $2::bigint)) and ($3::text is null or actor = $3)
       and ($4::text is null or action = $4) and ($5::text is null or subject = $5)
       and ($6::timestamptz is null or at >= $6) and ($7::timestamptz is null or at < $7)
     order by at desc, id desc limit $8`,
    [
      cursor?.[0] ?? null,
      cursor?.[1] ?? null,
      actor ?? null,
      action ?? null,
      subject ?? null,
      since ?? null,
      until ?? null,
      limit + 1,
    ],
  )
  const last = rows.length > limit ? rows[limit - 1] : undefined
  return {
    audit: rows.slice(0, limit).map(({ place: _, ...row }) => row),
    next_cursor: last ? encodeCursor([last.place, last.id]) : null,
  }
}
