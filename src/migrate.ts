import { fileURLToPath } from 'node:url'
import { runner } from 'node-pg-migrate'
import type { Db } from './db.ts'

const directory = fileURLToPath(new URL('../migrations', import.meta.url))

/** Brings the database to the newest schema; of several instances at once, one works and the others wait. */
export async function migrate(databaseUrl: string, log: (message: string) => void = () => undefined): Promise<void> {
  await runner({
    databaseUrl,
    dir: directory,
    direction: 'up',
    migrationsTable: 'oncehook_migrations',
    advisoryLockMode: 'wait',
    log: () => undefined,
    logger: { info: log, warn: log, error: log, debug: () => undefined },
  })
}

/** The newest migration that this version of the program needs. */
export const NEWEST_MIGRATION = '0014_redeliveries'

/** True when the database has every migration that this program needs. */
export async function isMigrated(db: Db): Promise<boolean> {
  const { rows } = await db.query<{ there: boolean }>(`select to_regclass('oncehook_migrations') is not null as there`)
  if (!rows[0]?.there) return false
  const { rowCount } = await db.query('select from oncehook_migrations where name = $1', [NEWEST_MIGRATION])
  return rowCount === 1
}
