import type { CommandResult } from '../cli.ts'
import { type Config, loadConfig } from '../config.ts'
import { openPool } from '../db.ts'
import { findDatabaseFacts, findWork } from '../ops/health-queries.ts'
import { ConfigError, type Settings } from '../settings.ts'
import { type Check, checkClock, checkDatabase, checkDisk, freeShare } from './doctor-database.ts'
import { checkConfig, checkEmailApi, checkPublicUrl } from './doctor-setup.ts'
import { checkWork } from './doctor-work.ts'
import { jsonOutput, mark, type OutputOptions, tabSeparated } from './output.ts'

const tones = { ok: 'good', attention: 'ask', problem: 'bad' } as const

/** `oncehook doctor`: looks at everything that Oncehook needs, changes nothing and sends nothing. 0 without a problem, else 1. */
export async function doctorCommand(
  settings: Settings & { databaseUrl: string },
  options: OutputOptions,
): Promise<CommandResult> {
  const checks = await examine(settings)
  const isWell = checks.every(({ level }) => level !== 'problem')
  const exitCode = isWell ? 0 : 1
  if (options.json) return { stdout: jsonOutput({ ok: isWell, checks }), stderr: '', exitCode }
  if (options.width === undefined) {
    return { stdout: tabSeparated(checks.map(({ level, check, text }) => [level, check, text])), stderr: '', exitCode }
  }
  const lines = checks.map(({ level, text }) => `${mark(tones[level], text, options)}\n`)
  return { stdout: lines.join(''), stderr: '', exitCode }
}

async function examine(settings: Settings & { databaseUrl: string }): Promise<Check[]> {
  const config = await loadConfig(settings.configPath).catch((error: unknown) => {
    if (error instanceof ConfigError) return error
    throw error
  })
  const [ofDatabase, ofEmailApi] = await Promise.all([examineDatabase(settings), checkEmailApi(settings)])
  return [
    ...ofDatabase,
    ...checkConfig(settings, config),
    ...(config instanceof ConfigError ? [] : checkPublicUrl(settings, config as Config)),
    ...ofEmailApi,
  ]
}

async function examineDatabase({ databaseUrl }: { databaseUrl: string }): Promise<Check[]> {
  const pool = openPool({ url: databaseUrl, name: 'oncehook-doctor', max: 1, statementTimeout: 5_000, connectionTimeout: 5_000 })
  try {
    const before = Date.now()
    const facts = await findDatabaseFacts(pool)
    const checks = [
      ...checkDatabase(facts),
      ...checkClock(facts.now, before, Date.now()),
      ...checkDisk(await freeShare(facts.data_directory)),
    ]
    // Without the tables there is nothing that runs either.
    return checks.some(({ check, level }) => check === 'migrations' && level === 'problem')
      ? checks
      : [...checks, ...checkWork(await findWork(pool))]
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    return [{ check: 'database', level: 'problem', text: `the database does not answer: ${message || code}` }]
  } finally {
    await pool.end()
  }
}
