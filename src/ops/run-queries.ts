import type { Db } from '../db.ts'
import type { Run } from '../events/runs.ts'

// Read-only.

const MOST_SHOWN = 50

/** The newest replays; plans that nobody carried out go after their time. What their events are by now is asked of each alone. */
export async function listRuns(db: Db): Promise<Run[]> {
  const { rows } = await db.query<Run>(
    `select id, state, filter, cardinality(events) as events, next_since, null as forecast, done, queued, read_anew, '{}'::jsonb as statuses,
       created_at, created_by, expires_at, started_at, started_by, ended_at, stopped_by
     from runs order by created_at desc limit $1`,
    [MOST_SHOWN],
  )
  return rows
}

/** What has become of the emails that a run asked for. */
export interface RunEmails {
  sent: number
  waiting: number
  refused: number
  needs_review: number
}

/** The sends that events of this run have asked for since it started, by how they stand. */
export async function countRunEmails(db: Db, id: string): Promise<RunEmails> {
  const { rows } = await db.query<RunEmails>(
    `select count(*) filter (where state = 'sent')::int as sent,
       count(*) filter (where state in ('queued', 'claimed', 'sending'))::int as waiting,
       count(*) filter (where state = 'rejected')::int as refused,
       count(*) filter (where state = 'needs_review')::int as needs_review
     from email_sends where dedupe_key in (
       select dedupe_key from runs join follow_ups on event = any (runs.events[1 : runs.done])
       where runs.id = $1 and outcome = 'queued' and follow_ups.at >= started_at)`,
    [id],
  )
  return rows[0] ?? { sent: 0, waiting: 0, refused: 0, needs_review: 0 }
}
