import type { Db } from '../db.ts'
import { findProcesses, type ProcessRow } from './processes.ts'

// Read-only.

/** What the database says of itself, whether it has been migrated or not. */
export interface DatabaseFacts {
  version: string
  version_number: number
  settings: { name: string; is_on: boolean }[]
  is_replica: boolean
  now: Date
  /** The newest migration that it has; null without any. */
  migration: string | null
  has_queue: boolean
  extensions: string[]
  connections: number
  max_connections: number
  /** Null where this user may not know. */
  data_directory: string | null
}

/** How it stands with the database itself. */
export async function findDatabaseFacts(db: Db): Promise<DatabaseFacts> {
  const { rows: tables } = await db.query<{ is_there: boolean }>(
    `select to_regclass('oncehook_migrations') is not null as is_there`,
  )
  const { rows } = await db.query<Omit<DatabaseFacts, 'migration'>>(
    `select split_part(current_setting('server_version'), ' ', 1) as version, current_setting('server_version_num')::int as version_number,
       (select jsonb_agg(jsonb_build_object('name', name, 'is_on', setting <> 'off') order by name) from pg_settings
        where name in ('fsync', 'full_page_writes', 'synchronous_commit')) as settings,
       pg_is_in_recovery() as is_replica, clock_timestamp() as now, to_regclass('pgboss.job') is not null as has_queue,
       array(select extname::text from pg_extension order by extname) as extensions,
       (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as connections,
       current_setting('max_connections')::int as max_connections,
       (select setting from pg_settings where name = 'data_directory') as data_directory`,
  )
  const [facts] = rows
  if (!facts) throw new Error('the database says nothing of itself')
  const { rows: newest } = tables[0]?.is_there
    ? await db.query<{ name: string }>('select name from oncehook_migrations order by name desc limit 1')
    : { rows: [] }
  return { ...facts, migration: newest[0]?.name ?? null }
}

/** What runs on a migrated database, and what holds it. */
export interface Work {
  processes: ProcessRow[]
  held_reason: string | null
  held_by: string | null
  matching: 'auto' | 'suggest'
  matching_reason: string | null
  /** Age of the oldest event, and of the oldest send, that is due; null without one. */
  oldest_event_seconds: number | null
  oldest_send_seconds: number | null
}

/** Who works, and since when what is due waits. */
export async function findWork(db: Db): Promise<Work> {
  const { rows } = await db.query<Omit<Work, 'processes'>>(
    `select held_reason, held_by, matching, matching_reason,
       extract(epoch from now() - (select received_at from webhook_events where status = 'pending' order by id limit 1))::float8
         as oldest_event_seconds,
       extract(epoch from now() - (
         select greatest(queued_at, send_after) from email_sends where state = 'queued' and (send_after is null or send_after <= now())
         order by queued_at limit 1))::float8 as oldest_send_seconds
     from sending_control`,
  )
  const [control] = rows
  if (!control) throw new Error('the row of sending_control is missing')
  return { ...control, processes: await findProcesses(db) }
}
