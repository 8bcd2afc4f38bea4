import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { loadConfig, productionProblems } from './config.ts'
import { isStorageAway } from './db.ts'
import type { Log } from './log.ts'
import { isMigrated } from './migrate.ts'
import { ConfigError, loadEnvFile, readSettings, type Settings } from './settings.ts'

/** A process that works. */
export interface Running {
  log: Log
  /** Ends what runs within the grace time, and everything that was opened. */
  stop(): Promise<void>
}

/** Settings with what neither process can do without. */
type Checked = Settings & { databaseUrl: string }

/** The settings of a process that works on a database. Throws ConfigError without one. */
export function requireDatabase(settings: Settings): Checked {
  const { databaseUrl } = settings
  if (!databaseUrl) throw new ConfigError(['DATABASE_URL is not set (npm start brings its own database)'])
  return { ...settings, databaseUrl }
}

/** The configuration, read again on SIGHUP; one that can't be used leaves the one before in force. */
export async function openConfig(settings: Settings, log: Log) {
  const load = async (from: Settings) => {
    const config = await loadConfig(from.configPath)
    const problems = from.production ? productionProblems(from, config) : []
    if (problems.length > 0) throw new ConfigError(problems)
    for (const warning of config.warnings) log.warn(warning)
    return { config, apiKey: from.inboxiliApiKey }
  }
  let current = await load(settings)
  let reloaded = Promise.resolve()
  const reload = () => {
    // One after the other, so that of two the last one decides.
    reloaded = reloaded
      .then(async () => {
        loadEnvFile()
        current = await load(readSettings())
        log.info({ sources: [...current.config.sources.keys()] }, 'configuration read again')
      })
      .catch((error: unknown) => log.error({ error }, 'the new configuration is not used'))
  }
  process.on('SIGHUP', reload)
  return {
    current: () => current.config,
    apiKey: () => current.apiKey,
    /** Last of all: without this listener SIGHUP ends the process. */
    close: () => void process.off('SIGHUP', reload),
  }
}

/** Waits for a database that is still starting, then refuses one that can't keep what is acknowledged. */
export async function untilStorageIsReady(pool: pg.Pool, settings: Settings, log: Log): Promise<void> {
  for (let waited = 0; ; waited += 1) {
    try {
      if (!(await isMigrated(pool))) throw new ConfigError(['the database lacks migrations: run oncehook migrate'])
      const problems = await unsafeSettings(pool)
      if (problems.length > 0 && settings.production) throw new ConfigError(problems)
      return
    } catch (error) {
      if (!isStorageAway(error) || waited >= 60) throw error
      if (waited % 10 === 0) log.warn({ error }, 'waiting for the database')
      await new Promise((done) => setTimeout(done, 1_000))
    }
  }
}

/** Why this database could lose what was acknowledged (I22); empty when it can't. */
async function unsafeSettings(pool: pg.Pool): Promise<string[]> {
  const { rows } = await pool.query<{ problem: string }>(
    `select name || ' is ' || setting || ' in the database, so acknowledged events could be lost' as problem from pg_settings
     where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off'
     union all select 'the database is a read-only replica' where pg_is_in_recovery()`,
  )
  return rows.map((row) => row.problem)
}

/** Why the database can't be worked with now; undefined when it can. */
export async function storageProblem(pool: pg.Pool): Promise<string | undefined> {
  const answer = isMigrated(pool).then(
    (done) => (done ? undefined : 'the database lacks migrations'),
    () => 'the database does not answer',
  )
  // Sooner than whoever asks gives up, even when the database takes connections and says nothing.
  const silence = sleep(STORAGE_ANSWERS_WITHIN_MS, 'the database does not answer', { ref: false })
  return Promise.race([answer, silence])
}

const STORAGE_ANSWERS_WITHIN_MS = 2_000
