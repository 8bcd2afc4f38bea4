import type { Db } from '../db.ts'
import type { Status } from '../sends/lifecycle.ts'

// Read-only.

/** What the service takes for true of a send, with the message that it was to be. */
export interface Belief {
  dedupe_key: string
  status: Status
  queued_at: Date
  message: Record<string, unknown>
}

const MOST_SHOWN = 30

/** The newest sends, for the development panel. */
export async function listBeliefs(db: Db): Promise<Belief[]> {
  const { rows } = await db.query<Belief>(
    'select dedupe_key, status, queued_at, message from email_sends order by queued_at desc, dedupe_key desc limit $1',
    [MOST_SHOWN],
  )
  return rows
}
