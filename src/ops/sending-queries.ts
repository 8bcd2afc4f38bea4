import type { Db } from '../db.ts'
import { MOST_COUNTED } from './filters.ts'

// Read-only.

/** Whether sending runs, why not, and whether events that name only a recipient settle by themselves. */
export interface Sending {
  version: number
  paused: boolean
  reason: string | null
  by: string | null
  since: Date | null
  next_probe_at: Date | null
  unknown_in_a_row: number
  matching: 'auto' | 'suggest'
  matching_reason: string | null
  matching_since: Date | null
  /** `MOST_COUNTED` + 1 where there are more, as the next one. */
  waiting: number
  needs_review: number
}

/** How sending stands now, with the sends that wait and those that need a decision. */
export async function findSending(db: Db): Promise<Sending> {
  const { rows } = await db.query<Sending>(
    `select version, held_reason is not null as paused, held_reason as reason, held_by as by, held_at as since, next_probe_at, unknown_in_a_row,
       matching, matching_reason, matching_at as matching_since,
       (select count(*)::int from (select from email_sends where state = 'queued' limit $1) counted) as waiting,
       (select count(*)::int from (select from email_sends where status = 'needs_review' limit $1) counted) as needs_review
     from sending_control`,
    [MOST_COUNTED + 1],
  )
  const [sending] = rows
  if (!sending) throw new Error('the row of sending_control is missing')
  return sending
}
