import { statfs } from 'node:fs/promises'
import { NEWEST_MIGRATION } from '../migrate.ts'
import type { DatabaseFacts } from '../ops/health-queries.ts'
import { countText, durationText } from '../ops/words.ts'

/** One thing that was looked at. */
export interface Check {
  check:
    | 'database'
    | 'durability'
    | 'migrations'
    | 'extensions'
    | 'connections'
    | 'clock'
    | 'disk'
    | 'configuration'
    | 'secrets'
    | 'sources'
    | 'public_url'
    | 'email_api'
    | 'serve'
    | 'worker'
    | 'sending'
    | 'matching'
    | 'queue'
  level: 'ok' | 'attention' | 'problem'
  text: string
}

const OLDEST_POSTGRES = 150_000
const EXTENSIONS = ['pg_trgm']
const CLOCK_ATTENTION_MS = 2_000
const CLOCK_PROBLEM_MS = 30_000

/** The database's version, its durability, its schema and its room for connections. */
export function checkDatabase(facts: DatabaseFacts): Check[] {
  const off = facts.settings.filter(({ is_on }) => !is_on).map(({ name }) => name)
  const missing = EXTENSIONS.filter((name) => !facts.extensions.includes(name))
  const isNewer = facts.migration !== null && facts.migration > NEWEST_MIGRATION
  const isOld = facts.migration === null || facts.migration < NEWEST_MIGRATION
  const isTooOld = facts.version_number < OLDEST_POSTGRES
  return [
    {
      check: 'database',
      level: isTooOld || facts.is_replica ? 'problem' : 'ok',
      text: `database ${facts.version}${isTooOld ? ', but Oncehook needs PostgreSQL 15 or later' : ''}${
        facts.is_replica ? ', a replica that takes no writes' : ''
      }`,
    },
    off.length === 0
      ? { check: 'durability', level: 'ok', text: `${facts.settings.map(({ name }) => name).join(', ')} on` }
      : { check: 'durability', level: 'problem', text: `${off.join(', ')} off: acknowledged events could be lost` },
    {
      check: 'migrations',
      level: isOld || !facts.has_queue ? 'problem' : isNewer ? 'attention' : 'ok',
      text: isOld
        ? 'the database lacks migrations: run oncehook migrate'
        : !facts.has_queue
          ? 'the job queue is not installed: run oncehook migrate'
          : isNewer
            ? `the database has ${facts.migration}, which is newer than this program`
            : 'migrations',
    },
    missing.length === 0
      ? { check: 'extensions', level: 'ok', text: `extensions ${EXTENSIONS.join(', ')}` }
      : { check: 'extensions', level: 'attention', text: `extension ${missing.join(', ')} is missing: searches are slow` },
    {
      check: 'connections',
      level: facts.connections > facts.max_connections * 0.8 ? 'attention' : 'ok',
      text: `${countText(facts.connections)} of ${countText(facts.max_connections)} connections in use`,
    },
  ]
}

/** This machine's clock beside the database's, which was asked between these two moments. */
export function checkClock(database: Date, asked: number, answered: number): Check[] {
  const at = database.getTime()
  const ahead = at < asked ? asked - at : at > answered ? answered - at : 0
  return [skewOf('this clock', ahead) ?? { check: 'clock', level: 'ok', text: 'clock' }]
}

/** What there is to say of a clock that is so far ahead of the database's. */
export function skewOf(whose: string, ahead: number): Check | undefined {
  const apart = Math.abs(ahead)
  if (apart <= CLOCK_ATTENTION_MS) return undefined
  return {
    check: 'clock',
    level: apart > CLOCK_PROBLEM_MS ? 'problem' : 'attention',
    text: `${whose} is ${durationText(apart)} ${ahead > 0 ? 'ahead of' : 'behind'} the database's`,
  }
}

/** The used share of the disk that the database lies on, where it can be seen from here. */
export function checkDisk(free: number | undefined): Check[] {
  if (free === undefined) return []
  const level = free < 0.05 ? 'problem' : free < 0.2 ? 'attention' : 'ok'
  return [{ check: 'disk', level, text: `disk of the database ${Math.round((1 - free) * 100)} % full` }]
}

/** The share that is free where this folder lies; undefined where it can't be seen from here. */
export async function freeShare(directory: string | null): Promise<number | undefined> {
  if (directory === null) return undefined
  const found = await statfs(directory).catch(() => undefined)
  return found && found.blocks > 0 ? found.bavail / found.blocks : undefined
}
