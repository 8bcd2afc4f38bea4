import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { userInfo } from 'node:os'
import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { reasonSchema } from '../ops/decision-routes.ts'
import type { Label } from '../ops/words.ts'
import { CsvError, readCsv } from '../sends/csv.ts'
import { type LineFinding, reconcile } from '../sends/reconcile.ts'
import {
  type Columns,
  chooseColumns,
  type LogField,
  type LogLine,
  logFields,
  offsetMs,
  readLogLine,
} from '../sends/sending-log.ts'
import { jsonOutput, type OutputOptions, table, tabSeparated, tag, usageError, visible, words } from './output.ts'

export interface ReconcileOptions extends OutputOptions {
  /** `recipient=To,message_id=ID`; what is not given is guessed from the header. */
  columns?: string | undefined
  zone?: string | undefined
  apply?: boolean | undefined
  dryRun?: boolean | undefined
  reason?: string | undefined
  by?: string | undefined
  /** Says something while the command runs. */
  say(text: string): void
  /** Whether a person watches. */
  isWatched?: boolean | undefined
}

const MOST_LINES = 200_000

/**
 * `oncehook reconcile FILE.csv`: settles from the sending log that the Inboxili dashboard exports. Says what each line would do, and
 * does it only with `--apply`. The whole file is read and found well-formed before anything is done.
 */
export async function reconcileCommand(
  pool: pg.Pool,
  path: string,
  isExclusive: boolean,
  options: ReconcileOptions,
): Promise<CommandResult> {
  const { zone = 'UTC', apply = false, say } = options
  const given = givenColumns(options.columns)
  if ('problem' in given) return usageError([{ path: 'columns', message: given.problem }])
  if (!isZone(zone)) return usageError([{ path: 'zone', message: `there is no time zone "${zone}"` }])
  if (apply && options.dryRun) return usageError([{ path: 'apply', message: 'and --dry-run: say which' }])
  const reason = apply ? reasonSchema.safeParse(options.reason ?? '') : undefined
  if (reason?.success === false) return usageError(reason.error.issues.map(({ message }) => ({ path: 'reason', message })))

  const log = await readLog(path, given.columns, zone).catch((error: unknown) => {
    if (error instanceof CsvError) return { problem: error.message }
    if (typeof (error as NodeJS.ErrnoException).code === 'string') return { problem: "can't be read" }
    throw error
  })
  if ('problem' in log) return { stdout: '', stderr: `oncehook: ${visible(path)}: ${visible(log.problem)}\n`, exitCode: 2 }

  say(`${columnsText(log.header, log.columns, given.columns)}\n`)
  say(`${log.lines.length} lines; times without a zone are taken as ${zone}\n`)
  const bar = createBar(options)
  const by = reason?.success ? { actor: options.by ?? userInfo().username, via: 'cli', reason: reason.data } : undefined
  const findings = await reconcile({ pool, fileSha256: log.sha256, isExclusive, by, onProgress: bar.show }, log.lines).finally(
    bar.clear,
  )

  const count = (...outcomes: string[]) => findings.filter(({ outcome }) => outcomes.includes(outcome)).length
  const summary = {
    settles: count('settles'),
    adds: count('adds'),
    known: count('known'),
    look: count('look'),
    nothing: count('nothing'),
  }
  const stdout = options.json
    ? jsonOutput({ file_sha256: log.sha256, applied: apply, columns: namesOf(log.header, log.columns), summary, lines: findings })
    : findingsText(findings, apply, options)
  const hint =
    !apply && summary.settles + summary.adds > 0
      ? 'Nothing was changed; --apply --reason TEXT does it.'
      : apply
        ? ''
        : 'Nothing to change.'
  const stderr = words(
    `${summary.settles} ${apply ? 'settled' : 'to settle'} · ${summary.adds} with something new · ${summary.known} known already · ${summary.look} for a person · ${summary.nothing} without effect\n${hint && `${hint}\n`}`,
    options,
  )
  return { stdout, stderr, exitCode: 0 }
}

function givenColumns(text: string | undefined): { columns: Partial<Record<LogField, string>> } | { problem: string } {
  const columns: Partial<Record<LogField, string>> = {}
  for (const pair of text === undefined ? [] : text.split(',')) {
    const [, name = '', column = ''] = /^\s*([^=]+?)\s*=\s*(.+?)\s*$/.exec(pair) ?? []
    const field = logFields.find((each) => each === name)
    if (!field) return { problem: `write FIELD=COLUMN,…; the fields are ${logFields.join(', ')}` }
    if (columns[field] !== undefined) return { problem: `${field} is given twice` }
    columns[field] = column
  }
  return { columns }
}

function isZone(zone: string): boolean {
  try {
    offsetMs(0, zone)
    return true
  } catch {
    return false
  }
}

interface SendingLog {
  sha256: string
  header: string[]
  columns: Columns
  lines: LogLine[]
}

async function readLog(
  path: string,
  given: Partial<Record<LogField, string>>,
  zone: string,
): Promise<SendingLog | { problem: string }> {
  const hash = createHash('sha256')
  async function* hashed() {
    for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
      hash.update(chunk)
      yield chunk
    }
  }
  let header: string[] | undefined
  let columns: Columns = {}
  const lines: LogLine[] = []
  for await (const record of readCsv(hashed())) {
    if (header) lines.push(readLogLine(record, columns, zone))
    else {
      const chosen = chooseColumns(record.cells, given)
      if ('problems' in chosen) return { problem: chosen.problems.join('; ') }
      header = record.cells
      columns = chosen.columns
    }
    if (lines.length > MOST_LINES) return { problem: `more than ${MOST_LINES} lines: split it` }
  }
  return header ? { sha256: hash.digest('hex'), header, columns, lines } : { problem: 'is empty' }
}

const namesOf = (header: readonly string[], columns: Columns) =>
  Object.fromEntries(logFields.map((field) => [field, header[columns[field] ?? -1] ?? null]))

function columnsText(header: readonly string[], columns: Columns, given: Partial<Record<LogField, string>>): string {
  const texts = logFields.map((field) => {
    const place = columns[field]
    if (place === undefined) return `${field} = none`
    return `${field} = "${visible(header[place] ?? '')}"${given[field] === undefined ? ' (guessed)' : ''}`
  })
  return `Columns: ${texts.join(', ')}`
}

const labels = {
  settles: { word: 'Sent', icon: '→', ascii: '>', tone: 'good' },
  adds: { word: 'New', icon: '+', ascii: '+', tone: 'busy' },
  known: { word: 'Known', icon: '✓', ascii: '=', tone: 'quiet' },
  look: { word: 'Look', icon: '?', ascii: '?', tone: 'ask' },
  nothing: { word: 'Nothing', icon: '–', ascii: '-', tone: 'quiet' },
} as const satisfies Record<LineFinding['outcome'], Label>

const texts = (isDone: boolean): Record<LineFinding['outcome'], string> => ({
  settles: isDone ? 'was unknown, is sent' : 'is unknown, would be sent',
  adds: isDone ? 'was added' : 'would be added',
  known: '',
  look: '',
  nothing: '',
})

function findingsText(findings: readonly LineFinding[], isDone: boolean, options: OutputOptions): string {
  const why = ({ outcome, reason }: LineFinding) => reason ?? texts(isDone)[outcome]
  if (options.width === undefined)
    return tabSeparated(
      findings.map((finding) => [String(finding.line), finding.outcome, finding.dedupe_key, why(finding), finding.line_sha256]),
    )
  if (findings.length === 0) return ''
  const rows = findings.map((finding) => [
    { text: String(finding.line) },
    tag(labels[finding.outcome], options),
    { text: finding.dedupe_key ?? '' },
    { text: why(finding) },
  ])
  return table(['LINE', 'WHAT', 'KEY', 'WHY'], rows, [2, 3], options)
}

const BAR_WIDTH = 20
const SHOWN_EVERY_MS = 100

/** A bar that is written over itself, for people only. */
function createBar({ say, isWatched, unicode }: ReconcileOptions) {
  let last = Number.NEGATIVE_INFINITY
  let isShown = false
  return {
    show(done: number, of: number): void {
      if (!isWatched || performance.now() - last < SHOWN_EVERY_MS) return
      last = performance.now()
      isShown = true
      const full = Math.round((done / of) * BAR_WIDTH)
      const [black, white] = unicode ? ['█', '░'] : ['#', '.']
      say(`\rreconcile  ${black.repeat(full)}${white.repeat(BAR_WIDTH - full)}  ${done}/${of}`)
    },
    clear(): void {
      if (isShown) say('\r\u001b[K')
    },
  }
}
