import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { installQueues } from '../src/follow-ups/queue.ts'
import { migrate } from '../src/migrate.ts'
import { startDatabase } from '../src/sandbox/database.ts'

export interface BenchServer {
  /** Folder for what the run writes; it goes with the server. */
  folder: string
  /** The database's first process, until it is restarted: the others are its children. */
  pid: number
  /** Settings that the figures depend on, as the server has them. */
  settings: Record<string, string>
  /** Makes an empty database, with the tables of the service where it is to have them. */
  create(name: string, options?: { migrated: boolean }): Promise<string>
  /** How many files of its log it had to make so far, rather than use again: all commits wait for each. */
  logFilesMade(): Promise<number>
  /** Restarts PostgreSQL as `pg_ctl restart -m fast` does: what is under way is broken off, port and data stay. */
  restart(): Promise<void>
  stop(): Promise<void>
}

/** A PostgreSQL of its own that keeps what it says: each commit is on the disk. */
export async function startServer(sharedBuffers: string): Promise<BenchServer> {
  const folder = mkdtempSync(join(tmpdir(), 'oncehook-bench-'))
  // As root the server runs as another user.
  chmodSync(folder, 0o755)
  const options = {
    directory: join(folder, 'postgres'),
    settings: [
      'max_connections=200',
      `shared_buffers=${sharedBuffers}`,
      'max_wal_size=12GB',
      'min_wal_size=12GB',
      'checkpoint_timeout=15min',
    ],
  }
  let server = await startDatabase(options)
  const names = [
    'server_version',
    'fsync',
    'synchronous_commit',
    'full_page_writes',
    'shared_buffers',
    'max_wal_size',
    'wal_sync_method',
  ]
  const settings: Record<string, string> = {}
  for (const name of names) settings[name] = String(Object.values((await ask(server.url, `show ${name}`))[0] ?? {})[0])
  if (settings.fsync !== 'on' || settings.synchronous_commit !== 'on')
    throw new Error('the database would lose what it acknowledges')
  await recycleWal(server.url)
  const [first] = await ask<{ pid: string }>(server.url, `select split_part(pg_read_file('postmaster.pid'), chr(10), 1) as pid`)
  return {
    folder,
    pid: Number(first?.pid),
    settings,
    async create(name, { migrated } = { migrated: false }) {
      await ask(server.url, `create database ${name}`)
      const url = server.url.replace(/\/oncehook$/, `/${name}`)
      if (migrated) {
        await migrate(url)
        await installQueues(url)
      }
      return url
    },
    async logFilesMade() {
      const [row] = await ask<{ writes: string }>(
        server.url,
        `select sum(writes) as writes from pg_stat_io where object = 'wal' and context = 'init'`,
      )
      return Number(row?.writes)
    },
    async restart() {
      await server.stop()
      server = await startDatabase({ ...options, port: Number(new URL(server.url).port) })
    },
    async stop() {
      await server.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/**
 * Leaves the server files of its log to use again, as one that has been running for a day has: as many as a run needs between two
 * checkpoints. A new one is filled with zeros first, all 16 MB of it, and meanwhile every commit waits some 50 ms.
 */
async function recycleWal(url: string): Promise<void> {
  await ask(url, `select count(pg_logical_emit_message(false, 'filling', repeat('x', 1000000))) from generate_series(1, 12000)`)
  await ask(url, 'checkpoint')
}

/** The rows that one statement answers, on a connection of its own. */
export async function ask<Row extends pg.QueryResultRow>(url: string, text: string, values: unknown[] = []): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query<Row>(text, values)).rows
  } finally {
    await client.end()
  }
}

/** How many of these events the table does not hold. */
export async function countMissing(url: string, table: string, ids: ReadonlySet<string>): Promise<number> {
  const [row] = await ask<{ count: string }>(
    url,
    `select count(*) from unnest($1::text[]) as wanted (id) where not exists (select from ${table} where event_id = wanted.id)`,
    [[...ids]],
  )
  return Number(row?.count)
}

/** Fills the table of events as years of them would, with the indexes as they come. */
export async function prefill(url: string, events: number): Promise<void> {
  const STEP = 100_000
  for (let from = 0; from < events; from += STEP) {
    await ask(
      url,
      `insert into webhook_events (source, event_id, id_basis, id_signed, type, livemode, occurred_at, received_at, status, processed_at, headers,
         secret_index, secret_fingerprint, object_ref, body_sha256, body)
       select 'stripe', 'evt_' || left(md5(number::text), 24), 'provider', true, 'invoice.paid', true, at, at, 'processed', at,
         '{"user-agent": "Stripe/1.0 (+https://stripe.com/docs/webhooks)", "content-type": "application/json; charset=utf-8"}', 0, '00000000',
         'in_' || left(md5('in' || number), 24), sha256(number::text::bytea), convert_to(repeat(md5(number::text), 64), 'UTF8')
       from generate_series($1::int, $2::int) as number
         cross join lateral (select now() - interval '1 second' * ($3::int - number) as at) as time`,
      [from + 1, Math.min(from + STEP, events), events],
    )
  }
  await ask(url, 'vacuum (analyze) webhook_events')
}
