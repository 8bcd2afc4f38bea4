import { createReadStream } from 'node:fs'
import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { reasonSchema } from '../ops/decide-send.ts'
import { type ReconciledLog, reconcileLog, timesOffText } from '../ops/reconcile-log.ts'
import { countText, type Label, listTimeText } from '../ops/words.ts'
import { CsvError } from '../sends/csv.ts'
import type { LineFinding } from '../sends/reconcile.ts'
import { isZone, type LogField, logFields } from '../sends/sending-log.ts'
import { systemUser } from './environment.ts'
import { jsonOutput, manyText, type OutputOptions, table, tabSeparated, tag, usageError, visible, words } from './output.ts'
import { createProgress } from './progress.ts'
import { type Conversation, INTERRUPTED } from './terminal.ts'

export interface ReconcileOptions extends OutputOptions, Conversation {
  /** `recipient=To,message_id=ID`; what is not given is guessed from the header. */
  columns?: string | undefined
  /** Of the file's times that name none; not that of the output. */
  logZone?: string | undefined
  apply?: boolean | undefined
  dryRun?: boolean | undefined
  reason?: string | undefined
  by?: string | undefined
}

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
  const { logZone = 'UTC', apply = false, say } = options
  const given = givenColumns(options.columns)
  if ('problem' in given) return usageError([{ path: 'columns', message: given.problem }])
  if (!isZone(logZone)) return usageError([{ path: 'zone', message: `there is no time zone "${visible(logZone)}"` }])
  if (apply && options.dryRun) return usageError([{ path: 'apply', message: 'and --dry-run: say which' }])
  const reason = apply ? reasonSchema.safeParse(options.reason ?? '') : undefined
  if (reason?.success === false) return usageError(reason.error.issues.map(({ message }) => ({ path: 'reason', message })))

  const by = reason?.success ? { actor: options.by ?? systemUser(), via: 'cli', reason: reason.data } : undefined
  const progress = createProgress('reconcile', options)
  let [done, all] = [0, 0]
  const reconciled = await reconcileLog({ pool, isExclusive: () => isExclusive }, readFrom(path), {
    columns: given.columns,
    zone: logZone,
    by,
    howToName: (field) => `name it with --columns ${field}=NAME`,
    onRead({ columns, lines }) {
      all = lines
      say(`${columnsText(columns, given.columns)}\n`)
      say(`${manyText(lines, 'line')}; times without a zone are taken as ${logZone}\n`)
    },
    onProgress(so, of) {
      done = so
      // Between two decisions, each of which is a transaction of its own.
      options.interrupted?.throwIfAborted()
      progress.show(so, of)
    },
  })
    .catch((error: unknown) => {
      if (!options.interrupted?.aborted || error !== options.interrupted.reason) throw error
      return undefined
    })
    .finally(progress.clear)
  if (!reconciled) return interruptedAfter(done, all, apply)
  if ('problem' in reconciled)
    return { stdout: '', stderr: `oncehook: ${visible(path)}: ${visible(reconciled.problem)}\n`, exitCode: 2 }

  const { lines: findings, summary } = reconciled
  // The API's object, which leaves out no line here.
  const stdout = options.json ? jsonOutput({ ...reconciled, lines_left_out: 0 }) : findingsText(findings, apply, options)
  const isNews = summary.settles + summary.adds > 0 || reconciled.coverage.absent.length > 0
  const hint = apply ? '' : isNews ? 'Nothing was changed; --apply --reason TEXT does it.\n' : 'Nothing to change.\n'
  const counts = `${countText(summary.settles)} ${apply ? 'settled' : 'to settle'} · ${countText(summary.adds)} with something new · ${countText(summary.known)} known already · ${countText(summary.look)} for a person · ${countText(summary.nothing)} without effect`
  const stderr = words(`${coverageText(reconciled, apply, options)}\n${counts}\n${hint}`, options)
  return { stdout, stderr, exitCode: 0 }
}

/** The file, piece by piece; that it can't be read is the file's fault, and not storage's. */
async function* readFrom(path: string): AsyncGenerator<Uint8Array> {
  try {
    yield* createReadStream(path)
  } catch {
    throw new CsvError("can't be read")
  }
}

function interruptedAfter(done: number, of: number, isApplied: boolean): CommandResult {
  const kept = isApplied ? 'what they settled stays; run it again for the rest' : 'nothing was changed'
  return {
    stdout: '',
    stderr: `Interrupted after ${countText(done)} of ${manyText(of, 'line')}: ${kept}.\n`,
    exitCode: INTERRUPTED,
  }
}

/** `1,310 rows, 28 Nov 00:00 – 29 Nov 00:00 UTC · 11 open sends in range: 8 found → sent · 2 absent → suggested not sent · 1 ambiguous`. */
function coverageText({ lines, coverage }: ReconciledLog, isApplied: boolean, { zone }: OutputOptions): string {
  const { from, until, open, absent, missing, times_off_by_minutes: off } = coverage
  const found = new Set(lines.flatMap(({ outcome, dedupe_key }) => (outcome === 'settles' && dedupe_key) || [])).size
  const ambiguous = Math.max(0, open - found - absent.length)
  const rowsOf = lines.filter(({ outcome }) => outcome === 'look').length
  // Far from now, so that the day is told.
  const at = (time: Date) => listTimeText(time, new Date(8.64e15), zone)
  const range = from && until ? `, ${at(from)} – ${at(until)} ${zone ?? 'UTC'}` : ''
  const parts = [
    `${manyText(lines.length, 'row')}${range}`,
    `${manyText(open, 'open send')} in range: ${countText(found)} found → sent`,
    `${countText(absent.length)} absent → ${isApplied ? 'now ' : ''}suggested not sent`,
    ...(ambiguous > 0 ? [`${countText(ambiguous)} ambiguous${rowsOf > 0 ? ` (${manyText(rowsOf, 'row')})` : ''}`] : []),
    ...(missing > 0 ? [`the file lacks ${manyText(missing, 'email')} that went out, so nothing is taken as absent`] : []),
    ...(off === null ? [] : [timesOffText(off)]),
  ]
  return parts.join(' · ')
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

function columnsText(columns: ReconciledLog['columns'], given: Partial<Record<LogField, string>>): string {
  const texts = logFields.map((field) => {
    const name = columns[field]
    if (name === null) return `${field} = none`
    return `${field} = "${visible(name)}"${given[field] === undefined ? ' (guessed)' : ''}`
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
