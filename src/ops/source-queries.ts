import type { Config } from '../config.ts'
import type { Db } from '../db.ts'
import type { Fingerprints } from '../events/fingerprint.ts'
import { EXPLANATIONS } from '../providers/explain.ts'
import { providers } from '../providers/registry.ts'

// Read-only.

/** What the tables don't know of the sources. */
export interface Setup {
  config: Config
  fingerprints: Fingerprints
  publicUrl: string | undefined
  now: Date
}

/** Why requests of the last 24 hours were refused. */
interface Refused {
  cause: string
  explanation: string
  count: number
  /** To the minute. */
  last_at: Date
}

type Advice = 'in use' | 'never used' | 'safe to remove' | 'removed'

/** One secret, by its fingerprint. */
interface Secret {
  /** Its place in the configuration, from 1 for the newest; null when it is not there any more. */
  position: number | null
  fingerprint: string
  verified: number
  first_verified_at: Date | null
  last_verified_at: Date | null
  is_configured: boolean
  advice: Advice
}

/** One source with what it answered; what only its configuration tells is null once it has left that. */
export interface SourceRow {
  name: string
  is_configured: boolean
  provider: string | null
  title: string | null
  mode: 'live' | 'test' | null
  /** Where the provider posts to; a path where PUBLIC_URL doesn't say the rest. */
  url: string
  content_is_signed: boolean | null
  id_is_signed: boolean | null
  confirm: boolean
  warnings: string[]
  last_verified_at: Date | null
  /** Requests, by their answer. */
  last_24_hours: { accepted: number; duplicate: number; quarantined: number; refused: number; other: number }
  /** Events of which other content came under the same ID in the last 24 hours; counted among the newest 1,000 conflicts of all sources. */
  conflicts: number
  refused: Refused[]
  secrets: Secret[]
}

interface AnswersRow {
  source: string
  outcome: string
  cause: string
  count: number
  last_at: Date
}

type SecretRow = { source: string; verified: number; first_verified_at: Date; last_verified_at: Date; fingerprint: string }

const DAY_MS = 24 * 60 * 60_000
/** Providers repeat an old event for days, some of them under the secret of its time. */
const UNUSED_AFTER_MS = 7 * DAY_MS

/** All sources that are configured, and those that are not any more but have answered or verified something. */
export async function listSources(db: Db, setup: Setup): Promise<{ sources: SourceRow[] }> {
  const { rows: answers } = await db.query<AnswersRow>(
    `select source, outcome, cause, sum(count)::float8 as count, max(minute) as last_at
     from source_minutes where minute > $1 group by source, outcome, cause order by count desc, last_at desc, cause`,
    [new Date(setup.now.getTime() - DAY_MS)],
  )
  const { rows: secrets } = await db.query<SecretRow>(
    `select source, fingerprint, verified::float8, first_verified_at, last_verified_at from source_secrets
     order by last_verified_at desc, fingerprint`,
  )
  const { rows: conflicts } = await db.query<{ source: string; count: number }>(
    `select source, count(distinct events.id)::int as count
     from (select event, received_at from webhook_conflicts order by id desc limit 1000) newest join webhook_events events on events.id = event
     where newest.received_at > $1 group by source`,
    [new Date(setup.now.getTime() - DAY_MS)],
  )
  const names = new Set([...setup.config.sources.keys(), ...[...answers, ...secrets].map(({ source }) => source).sort()])
  const of = (name: string) => (row: { source: string }) => row.source === name
  const sources = [...names].map((name) => ({
    ...sourceOf(setup, name, answers.filter(of(name)), secrets.filter(of(name))),
    conflicts: conflicts.find(of(name))?.count ?? 0,
  }))
  return { sources }
}

/** One source of the list. */
export async function findSource(db: Db, setup: Setup, name: string): Promise<SourceRow | undefined> {
  const { sources } = await listSources(db, setup)
  return sources.find((source) => source.name === name)
}

function sourceOf(
  setup: Setup,
  name: string,
  answers: readonly AnswersRow[],
  seen: readonly SecretRow[],
): Omit<SourceRow, 'conflicts'> {
  const source = setup.config.sources.get(name)
  const count = (isCounted: (outcome: string) => boolean) =>
    answers.filter(({ outcome }) => isCounted(outcome)).reduce((sum, row) => sum + row.count, 0)
  const only = (wanted: string) => count((outcome) => outcome === wanted)
  return {
    name,
    is_configured: source !== undefined,
    provider: source?.provider.name ?? null,
    title: (source && providers.get(source.provider.name)?.title) ?? null,
    mode: source?.mode ?? null,
    url: `${setup.publicUrl?.replace(/\/+$/, '') ?? ''}/webhooks/${name}`,
    content_is_signed: source?.provider.contentIsSigned ?? null,
    id_is_signed: source?.provider.idIsSigned ?? null,
    confirm: source?.confirm !== undefined,
    warnings: warningsOf(setup.config, name),
    last_verified_at: seen[0]?.last_verified_at ?? null,
    last_24_hours: {
      accepted: only('accepted'),
      duplicate: only('duplicate'),
      quarantined: only('quarantined'),
      refused: only('refused'),
      other: count((outcome) => !['accepted', 'duplicate', 'quarantined', 'refused'].includes(outcome)),
    },
    refused: answers
      .filter(({ outcome }) => outcome === 'refused')
      .map(({ cause, count, last_at }) => ({ cause, explanation: explanationOf(cause), count, last_at })),
    secrets: secretsOf(source ? setup.fingerprints(source.secrets) : [], seen, setup.now),
  }
}

/** What the configuration warns of at the start, without the name. */
function warningsOf({ warnings }: Config, name: string): string[] {
  const before = `source ${name}: `
  return warnings.filter((warning) => warning.startsWith(before)).map((warning) => warning.slice(before.length))
}

const explanations: Readonly<Record<string, string>> = EXPLANATIONS
/** A cause that an earlier version counted may have no text any more. */
const explanationOf = (cause: string) => explanations[cause] ?? cause.replaceAll('_', ' ')

/** The configured secrets in their order, then those that have gone, last used first. */
function secretsOf(configured: readonly string[], seen: readonly SecretRow[], now: Date): Secret[] {
  const current = configured.map((fingerprint, index) => {
    const row = seen.find((each) => each.fingerprint === fingerprint)
    return {
      position: index + 1,
      fingerprint,
      verified: row?.verified ?? 0,
      first_verified_at: row?.first_verified_at ?? null,
      last_verified_at: row?.last_verified_at ?? null,
      is_configured: true,
    }
  })
  const isGone = ({ fingerprint }: SecretRow) => fingerprint !== '' && !configured.includes(fingerprint)
  return [
    ...current.map((secret, index) => ({ ...secret, advice: adviceOn(secret, current.slice(0, index), now) })),
    ...seen
      .filter(isGone)
      .map(({ source: _, ...row }) => ({ position: null, ...row, is_configured: false, advice: 'removed' as const })),
  ]
}

type Use = Pick<Secret, 'last_verified_at'>

function adviceOn({ last_verified_at: last }: Use, newer: readonly Use[], now: Date): Advice {
  if (last === null) return 'never used'
  const isUnused = now.getTime() - last.getTime() > UNUSED_AFTER_MS
  const isReplaced = newer.some((other) => other.last_verified_at !== null && other.last_verified_at > last)
  return isUnused && isReplaced ? 'safe to remove' : 'in use'
}
