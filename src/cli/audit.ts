import type { CommandResult } from '../cli.ts'
import type { Db } from '../db.ts'
import { type AuditRow, listAudit } from '../ops/audit-queries.ts'
import { auditAction, auditWord, nearActions } from '../ops/audit-words.ts'
import { auditFilter, problemsOf } from '../ops/filters.ts'
import { plannerText } from '../ops/story-lines.ts'
import { timeText } from '../ops/words.ts'
import { jsonOutput, listHint, type OutputOptions, table, tabSeparated, usageError } from './output.ts'

export interface ListAuditOptions extends OutputOptions {
  actor?: string | undefined
  action?: string | undefined
  subject?: string | undefined
  since?: string | undefined
  until?: string | undefined
  limit?: number | undefined
  cursor?: string | undefined
}

/** `oncehook audit list`: the same rows as `GET /v1/audit`. */
export async function listAuditCommand(db: Db, options: ListAuditOptions): Promise<CommandResult> {
  const { actor, action: said, subject, since, until, limit, cursor } = options
  const action = said === undefined ? undefined : auditAction(said)
  if (said !== undefined && action === undefined)
    return usageError([{ path: 'action', message: `must be an action, such as ${nearActions(said).join(', ')}` }])
  const filter = auditFilter(() => new Date()).safeParse({
    actor,
    action,
    subject,
    since,
    until,
    limit: limit?.toString(),
    cursor,
  })
  if (!filter.success) return usageError(problemsOf(filter.error))
  const page = await listAudit(db, filter.data)
  const stderr = listHint(page.audit.length, 'change', page.next_cursor, options)
  return { stdout: options.json ? jsonOutput(page) : rowsText(page.audit, options), stderr, exitCode: 0 }
}

function rowsText(rows: readonly AuditRow[], options: OutputOptions): string {
  if (options.width === undefined)
    return tabSeparated(
      rows.map(({ id, at, actor, via, action, subject, reason, before, after }) => [
        id,
        at.toISOString(),
        actor,
        via,
        action,
        subject,
        reason,
        before === null ? null : JSON.stringify(before),
        after === null ? null : JSON.stringify(after),
      ]),
    )
  if (rows.length === 0) return ''
  return table(
    [`WHEN (${options.zone ?? 'UTC'})`, 'WHO', 'VIA', 'WHAT', 'OF', 'WHY'],
    rows.map(({ at, actor, via, action, subject, reason, after }) =>
      [timeText(at, options.zone), actor, via, `${auditWord(action)}${plannerText({ after })}`, subject, reason ?? ''].map(
        (text) => ({
          text,
        }),
      ),
    ),
    [4, 5],
    options,
  )
}
