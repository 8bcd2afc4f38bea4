import { existsSync, readFileSync } from 'node:fs'
import { userInfo } from 'node:os'
import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { type Config, loadConfig } from '../config.ts'
import { openPool } from '../db.ts'
import { ConfigError, readSettings, type Settings } from '../settings.ts'
import { finish } from './terminal.ts'

// What the commands find around them: the settings, the database, the configuration, a running `oncehook start` in this folder.

/** Runs a command on the database, says what it answers, and ends the connections. */
export async function withDatabase(
  options: { json?: boolean | undefined },
  run: (db: pg.Pool, settings: Settings & { databaseUrl: string }) => Promise<CommandResult>,
  statementTimeout = 10_000,
): Promise<void> {
  const settings = databaseSettings()
  const pool = openPool({ url: settings.databaseUrl, name: 'oncehook-cli', max: 2, statementTimeout })
  try {
    finish(await run(pool, settings), options)
  } finally {
    await pool.end()
  }
}

/** As `withDatabase`, with what the configuration says of the sources. */
export async function withSources(
  options: { json?: boolean | undefined },
  run: (db: pg.Pool, given: { config: Config; publicUrl: string | undefined; databaseUrl: string }) => Promise<CommandResult>,
): Promise<void> {
  useRunning()
  const { configPath, publicUrl } = readSettings()
  const config = await loadConfig(configPath)
  await withDatabase(options, (db, { databaseUrl }) => run(db, { config, publicUrl, databaseUrl }))
}

/** The configuration, for a command that can do without; where that has a consequence it says so, and why there is none. */
export async function tryConfig(consequence?: string): Promise<Config | undefined> {
  useRunning()
  try {
    return await loadConfig(readSettings().configPath)
  } catch (error) {
    if (consequence !== undefined)
      process.stderr.write(`oncehook: ${error instanceof Error ? error.message : error}\n${consequence}`)
    return undefined
  }
}

/** Whether nobody but this service sends with the account. Not known without a configuration: then nothing settles by recipient. */
export async function isExclusive(): Promise<boolean> {
  return (await tryConfig('So nothing is matched by recipient.\n'))?.account === 'exclusive'
}

/** What the configuration says of decisions; without one what is the safer. */
export async function decisionRules(): Promise<{ isExclusive: boolean; takesTwo: boolean }> {
  const config = await tryConfig('So nothing is matched by recipient, and a resend takes two people.\n')
  return { isExclusive: config?.account === 'exclusive', takesTwo: config?.secondPerson ?? true }
}

/** The settings with the database of the environment, else the one of a running `oncehook start` in this folder. */
export function databaseSettings(): Settings & { databaseUrl: string } {
  const settings = readSettings()
  const databaseUrl = settings.databaseUrl ?? readRunning()?.databaseUrl
  if (!databaseUrl) throw new ConfigError(['DATABASE_URL is not set, and no npm start runs in this folder'])
  return { ...settings, databaseUrl }
}

/** Takes over the development secrets of a running `oncehook start`, where the environment has none. */
export function useRunning(): Running | undefined {
  const running = readRunning()
  for (const [name, value] of Object.entries(running?.variables ?? {})) process.env[name] ??= value
  return running
}

interface Running {
  url: string
  databaseUrl: string
  variables: Record<string, string>
}

function readRunning(): Running | undefined {
  const path = '.data/running.json'
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : undefined
}

/** Under whose name a decision is audited when `--by` names nobody. */
export function systemUser(): string {
  try {
    return userInfo().username
  } catch {
    // In a container the process may run under a number that no user has.
    return `uid ${process.getuid?.()}`
  }
}
