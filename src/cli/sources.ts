import type { CommandResult } from '../cli.ts'
import type { Config } from '../config.ts'
import type { Db } from '../db.ts'
import { createFingerprints, readFingerprintKey } from '../events/fingerprint.ts'
import { findSource, listSources, type Setup, type SourceRow } from '../ops/source-queries.ts'
import { timeText } from '../ops/words.ts'
import { type Cell, jsonOutput, listHint, type OutputOptions, painted, table, tabSeparated, visible, words } from './output.ts'

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
  const rows = sources.map(({ name, provider, last_verified_at, last_24_hours, secrets }): Cell[] => [
    { text: name },
    { text: words(provider ?? '–', options) },
    { text: words(timeText(last_verified_at), options) },
    ...Object.entries(last_24_hours).map(
      ([outcome, count]): Cell => ({ text: String(count), ...(outcome === 'refused' && count > 0 && { tone: 'bad' }) }),
    ),
    { text: secretsText(secrets) },
  ])
  const counts = ['ACCEPTED', 'DUPLICATE', 'QUARANTINED', 'REFUSED', 'OTHER']
  return table(['SOURCE', 'PROVIDER', 'LAST VERIFIED (UTC)', ...counts, 'SECRETS'], rows, [8, 0, 1], options)
}

const secretsText = (secrets: SourceRow['secrets']) =>
  secrets
    .filter(({ is_configured }) => is_configured)
    .map(({ position, advice }) => `${position} ${advice}`)
    .join(', ')

function sourceText(source: SourceRow, options: OutputOptions): string {
  const say = (text: string) => words(text, options)
  const { name, is_configured, title, mode, url, warnings, last_24_hours, refused, secrets } = source
  const counts = Object.entries(last_24_hours).map(([outcome, count]) => `${count} ${outcome}`)
  return [
    [name, ...(is_configured ? [title, `${mode} mode`, url] : ['not configured any more'])].join('   '),
    ...warnings.map((warning) => painted({ text: say(visible(`Warning: ${warning}`)), tone: 'ask' }, options)),
    say(source.last_verified_at === null ? 'Never verified' : `Last verified ${timeText(source.last_verified_at)} UTC`),
    say(`Last 24 hours: ${counts.join(' · ')}`),
    ...refused.map(({ cause, explanation, count, last_at }) =>
      say(visible(`  refused ${count} times, last about ${timeText(last_at)} UTC: ${cause}: ${explanation}`)),
    ),
    ...secrets.map(({ position, fingerprint, advice, verified, last_verified_at }) => {
      const last = last_verified_at === null ? '' : `, last ${timeText(last_verified_at)} UTC`
      return say(`  secret ${position ?? '–'}  ${fingerprint}  ${advice}: verified ${verified} times${last}`)
    }),
    '',
  ].join('\n')
}
