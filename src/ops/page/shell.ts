import type { Db } from '../../db.ts'

// Read-only.

/** Counts stop here: nobody reads further. */
const MOST_COUNTED = 1_000

/** What every page says around its own content. */
export interface Shell {
  /** Sends that need a decision, up to a thousand. */
  needsReview: number
  held: { reason: string; by: string | null; since: Date } | null
  matching: 'auto' | 'suggest'
  databaseTime: Date
  notice: Notice | null
}

/** What a form's answer says on the page that it leads to. */
export interface Notice {
  text: string
  /** A page where it can be taken back or looked at. */
  link?: { href: string; label: string }
}

/** What the frame of a page shows; the notice only to the person whose form it was. */
export async function findShell(db: Db, person: string, form: string | undefined): Promise<Shell> {
  const { rows } = await db.query<{
    needs_review: number
    held_reason: string | null
    held_by: string | null
    held_at: Date | null
    matching: 'auto' | 'suggest'
    now: Date
    notice: Notice | null
  }>({
    name: 'find-shell',
    text: `select (select count(*)::int from (select from email_sends where status = 'needs_review' limit $1) as open) as needs_review,
        held_reason, held_by, held_at, matching, now() as now,
        (select notice from form_submissions where id = $2 and person = $3) as notice
      from sending_control`,
    values: [MOST_COUNTED, form ?? null, person],
  })
  const [row] = rows
  if (!row) throw new Error('the row of sending_control is missing')
  return {
    needsReview: row.needs_review,
    held:
      row.held_reason !== null && row.held_at !== null ? { reason: row.held_reason, by: row.held_by, since: row.held_at } : null,
    matching: row.matching,
    databaseTime: row.now,
    notice: row.notice,
  }
}
