import type { CommandResult } from '../cli.ts'
import type { Config } from '../config.ts'
import type { Db } from '../db.ts'
import { createFingerprints, readFingerprintKey } from '../events/fingerprint.ts'
import { findSource, listSources, type Setup, type SourceRow } from '../ops/source-queries.ts'
import { ageText, countText, shareText, zonedTimeText } from '../ops/words.ts'
import {
  type Cell,
  jsonOutput,
  listHint,
  manyText,
  type OutputOptions,
  painted,
  table,
  tabSeparated,
  visible,
  words,
} from './output.ts'

interface Given {
  config: Config
  publicUrl: string | undefined
}

/** `oncehook sources list`: the same sources as `GET /v1/sources`. */
export async function listSourcesCommand(db: Db, given: Given, options: OutputOptions): Promise<CommandResult> {
  const page = await listSources(db, await setupOf(db, given))
  const stderr = listHint(page.sources.length, 'source', null, options)
  return { stdout: options.json ? jsonOutput(page) : rowsText(page.sources, options), stderr, exitCode: 0 }
}

/** `oncehook sources show NAME`: the same source as `GET /v1/sources/:name`. */
export async function showSourceCommand(db: Db, given: Given, name: string, options: OutputOptions): Promise<CommandResult> {
  const source = await findSource(db, await setupOf(db, given), name)
  if (!source) return { stdout: '', stderr: `oncehook: no source has the name ${visible(name)}\n`, exitCode: 1 }
  return { stdout: options.json ? jsonOutput(source) : sourceText(source, options), stderr: '', exitCode: 0 }
}

async function setupOf(db: Db, given: Given): Promise<Setup> {
  return { ...given, fingerprints: createFingerprints(await readFingerprintKey(db)), now: new Date() }
}

function rowsText(sources: readonly SourceRow[], options: OutputOptions): string {
  if (options.width === undefined) {
    return tabSeparated(
      sources.map(({ name, provider, last_verified_at, last_24_hours, secrets }) => [
        name,
        provider,
        last_verified_at?.toISOString() ?? null,
        ...Object.values(last_24_hours).map(String),
        secretsText(secrets),
      ]),
    )
  }
  if (sources.length === 0) return ''
  const now = new Date()
  const rows = sources.map(({ name, provider, last_verified_at, last_24_hours, secrets }): Cell[] => {
    const { refused, ...counts } = last_24_hours
    const all = Object.values(counts).reduce((sum, count) => sum + count, refused)
    return [
      { text: name },
      { text: words(provider ?? '–', options) },
      { text: last_verified_at === null ? 'never' : `${ageText(last_verified_at, now)} ago` },
      ...Object.values(counts).map((count): Cell => ({ text: countText(count), isFigure: true })),
      { text: refused === 0 ? '0' : words(shareText(refused, all), options), ...(refused > 0 && { tone: 'bad' }) },
      { text: secretsText(secrets) },
    ]
  })
  const headers = ['SOURCE', 'PROVIDER', 'VERIFIED', 'NEW', 'AGAIN', 'QUARANTINED', 'OTHER', 'REFUSED', 'SECRETS']
  return table(headers, rows, [8, 1, 0], options)
}

const secretsText = (secrets: SourceRow['secrets']) =>
  secrets
    .filter(({ is_configured }) => is_configured)
    .map(({ position, advice }) => `${position} ${advice}`)
    .join(', ')

function sourceText(source: SourceRow, options: OutputOptions): string {
  const say = (text: string) => words(text, options)
  const at = (time: Date | null) => zonedTimeText(time, options.zone)
  const { name, is_configured, title, mode, url, warnings, last_24_hours, refused, secrets } = source
  const counts = Object.entries(last_24_hours).map(([outcome, count]) => `${countText(count)} ${outcome}`)
  return [
    [name, ...(is_configured ? [title, `${mode} mode`, url] : ['not configured any more'])].join('   '),
    ...warnings.map((warning) => painted({ text: say(visible(`Warning: ${warning}`)), tone: 'ask' }, options)),
    say(source.last_verified_at === null ? 'Never verified' : `Last verified ${at(source.last_verified_at)}`),
    say(`Last 24 hours: ${[...counts, manyText(source.conflicts, 'conflict')].join(' · ')}`),
    ...refused.map(({ cause, explanation, count, last_at }) =>
      say(visible(`  refused ${manyText(count, 'time')}, last about ${at(last_at)}: ${cause}: ${explanation}`)),
    ),
    ...secrets.map(({ position, fingerprint, advice, verified, last_verified_at }) => {
      const last = last_verified_at === null ? '' : `, last ${at(last_verified_at)}`
      return say(`  secret ${position ?? '–'}  ${fingerprint}  ${advice}: verified ${manyText(verified, 'time')}${last}`)
    }),
    '',
  ].join('\n')
}
