import type { Db } from '../db.ts'
import type { Run } from '../events/runs.ts'
import { encodeCursor } from './filters.ts'

// Read-only.

const MOST_SHOWN = 50

/** The newest replays, as many as the page shows. */
export async function listRuns(db: Db): Promise<Run[]> {
  return (await listRunPage(db, { limit: MOST_SHOWN })).runs
}

/** Replays, newest first; plans that nobody carried out go after their time. What their events are by now is asked of each alone. */
export async function listRunPage(
  db: Db,
  { limit, cursor }: { limit: number; cursor?: [string, string] | undefined },
): Promise<{ runs: Run[]; next_cursor: string | null }> {
  const { rows } = await db.query<Run & { place: string }>(
    `select id, state, filter, cardinality(events) as events, next_since, null as forecast, done, queued, read_anew, '{}'::jsonb as statuses,
       created_at, created_by, expires_at, started_at, started_by, ended_at, stopped_by,
       to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as place
     from runs where ($1::timestamptz is null or (created_at, id) < ($1, $2::uuid)) order by created_at desc, id desc limit $3`,
    [cursor?.[0] ?? null, cursor?.[1] ?? null, limit + 1],
  )
  const runs = rows.slice(0, limit)
  const last = rows.length > limit ? runs.at(-1) : undefined
  return {
    runs: runs.map(({ place: _, ...run }) => run),
    next_cursor: last ? encodeCursor([last.place, last.id]) : null,
  }
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
