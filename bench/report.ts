import { cpus, totalmem } from 'node:os'
import { type Cell, type LadderResult, type Scenario, scenarioName, scenarios } from './ladder.ts'
import { type Summary, summary } from './statistics.ts'

type Figure = 'rate' | 'cpu' | 'p99'

/** A target of the design: one candidate's figure over another's, in one scenario or each of several. */
interface Target {
  label: string
  figure: Figure
  /** Candidate and scenario above and below the line. */
  over: string
  at: readonly Scenario[]
  overAt?: Scenario
  /** At least where it is a rate, at most where it is a cost. */
  none: number | undefined
  all: number | undefined
}

const fresh = (...connections: number[]): Scenario[] => connections.map((count) => ({ kind: 'new', connections: count }))

const targets: readonly Target[] = [
  { label: 'events/s ÷ ceiling', figure: 'rate', over: 'ceiling', at: fresh(64), none: 0.5, all: 0.44 },
  { label: 'events/s ÷ naive', figure: 'rate', over: 'naive', at: fresh(64, 256), none: 1.7, all: 1.4 },
  { label: 'events/s ÷ naive+job', figure: 'rate', over: 'naive+job', at: fresh(64), none: undefined, all: 4 },
  { label: 'CPU of app + PostgreSQL ÷ naive', figure: 'cpu', over: 'naive', at: fresh(64), none: 0.55, all: 0.65 },
  { label: 'p99 ÷ naive', figure: 'p99', over: 'naive', at: fresh(64, 256), none: 0.6, all: 0.7 },
  { label: 'events/s ÷ naive', figure: 'rate', over: 'naive', at: fresh(1), none: 0.9, all: 0.8 },
  {
    label: 'duplicates ÷ new events',
    figure: 'rate',
    over: 'itself',
    at: [{ kind: 'duplicates', connections: 64 }],
    overAt: { kind: 'new', connections: 64 },
    none: 1.1,
    all: 1.3,
  },
  {
    label: '64 kB bodies, events/s ÷ naive',
    figure: 'rate',
    over: 'naive',
    at: [{ kind: 'large', connections: 64 }],
    none: 1,
    all: 0.9,
  },
  { label: 'filled ÷ empty, events/s', figure: 'rate', over: 'empty', at: fresh(64), none: 0.9, all: 0.9 },
]

const NONE = 'oncehook, no job'
const ALL = 'oncehook, all jobs'

/** The report of a run in markdown: what it ran on, the ratios beside their targets, and every figure. */
export function ladderReport(
  { cells, counts, settings, logFilesMade }: LadderResult,
  options: { rounds: number; seconds: number; prefill: number },
): string {
  const figures = scenarios.filter((scenario) => cells.some((cell) => scenarioName(cell) === scenarioName(scenario)))
  return [
    '# Bench of the ack path',
    '',
    `${cpus().length} × ${cpus()[0]?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.versions.node}, PostgreSQL ${settings.server_version}, all on this machine.`,
    `${Object.entries(settings)
      .filter(([name]) => name !== 'server_version')
      .map(([name, value]) => `${name} ${value}`)
      .join(', ')}.`,
    `${options.rounds} rounds of ${options.seconds} s for each candidate, in turn. Ratios are made within a round; shown is their median, and in brackets the quarters around it.`,
    `PostgreSQL made ${logFilesMade} files of its log in the time; commits wait some 50 ms for each.`,
    '',
    '## Ratios',
    '',
    '| | no job | target | a job for every event | target |',
    '|---|---|---|---|---|',
    ...targets
      .flatMap((target) => target.at.map((scenario) => ratioRow(cells, target, scenario, options.prefill)))
      .filter((row) => row !== undefined),
    ...figures.flatMap((scenario) => ['', `## ${titleOf(scenario)}`, '', ...figureTable(cells, scenario)]),
    '',
    '## Rows',
    '',
    '| | acknowledged | stored |',
    '|---|---|---|',
    ...counts.map(
      ({ candidate, acked, stored }) => `| ${candidate} | ${acked} | ${stored}${acked === stored ? '' : ' **differs**'} |`,
    ),
    '',
  ].join('\n')
}

const titles = { new: 'New events', duplicates: 'Duplicates', forged: 'A tenth with a wrong signature', large: '64 kB bodies' }
const titleOf = ({ kind, connections }: Scenario) => `${titles[kind]}, ${connections} connection${connections === 1 ? '' : 's'}`

function ratioRow(cells: readonly Cell[], target: Target, scenario: Scenario, prefill: number): string | undefined {
  const of = (candidate: string) => {
    const isFilled = target.over === 'empty'
    const over = target.over === 'itself' || isFilled ? candidate : target.over
    return ratios(
      cells,
      target.figure,
      { candidate: isFilled ? `${candidate}, full` : candidate, ...scenario },
      { candidate: over, ...(target.overAt ?? scenario) },
    )
  }
  const [none, all] = [of(NONE), of(ALL)]
  if (none.length === 0 && all.length === 0) return undefined
  const sign = target.figure === 'rate' ? '≥' : '≤'
  const shown = (values: number[], bound: number | undefined) =>
    values.length === 0 || bound === undefined
      ? '–'
      : `${isMet(summary(values).median, bound, sign) ? '' : '**'}${spread(summary(values))}${isMet(summary(values).median, bound, sign) ? '' : '**'}`
  const where =
    target.over === 'empty'
      ? `${prefill.toLocaleString('en')} events stored`
      : `${scenario.connections} connection${scenario.connections === 1 ? '' : 's'}`
  return `| ${target.label}, ${where} | ${shown(none, target.none)} | ${target.none === undefined ? '' : `${sign} ${target.none}`} | ${shown(all, target.all)} | ${target.all === undefined ? '' : `${sign} ${target.all}`} |`
}

const isMet = (value: number, bound: number, sign: '≥' | '≤') => (sign === '≥' ? value >= bound : value <= bound)
const spread = ({ median, low, high }: Summary) => `${median.toFixed(2)} (${low.toFixed(2)}–${high.toFixed(2)})`

/** The figure of one cell over that of another, in each round that has both. */
function ratios(
  cells: readonly Cell[],
  figure: Figure,
  above: Scenario & { candidate: string },
  below: Scenario & { candidate: string },
): number[] {
  const find = (wanted: Scenario & { candidate: string }, round: number) =>
    cells.find(
      (cell) => cell.round === round && cell.candidate === wanted.candidate && scenarioName(cell) === scenarioName(wanted),
    )
  return [...new Set(cells.map((cell) => cell.round))].flatMap((round) => {
    const [one, other] = [find(above, round), find(below, round)]
    return one && other ? [figureOf(one, figure) / figureOf(other, figure)] : []
  })
}

const figureOf = (cell: Cell, figure: Figure) => (figure === 'cpu' ? cell.appCpu + cell.databaseCpu : cell[figure])

function figureTable(cells: readonly Cell[], scenario: Scenario): string[] {
  const here = cells.filter((cell) => scenarioName(cell) === scenarioName(scenario))
  const names = [...new Set(here.map((cell) => cell.candidate))]
  return [
    '| | answers/s | p50 ms | p99 ms | CPU s per 1,000: app | PostgreSQL | wrong answers |',
    '|---|---|---|---|---|---|---|',
    ...names.map((name) => {
      const own = here.filter((cell) => cell.candidate === name)
      const median = (value: (cell: Cell) => number) => summary(own.map(value)).median
      const rate = summary(own.map((cell) => cell.rate))
      const wrong = own.reduce((sum, cell) => sum + cell.wrong, 0)
      return `| ${name} | ${Math.round(rate.median)} (${Math.round(rate.low)}–${Math.round(rate.high)}) | ${median((cell) => cell.p50).toFixed(1)} | ${median((cell) => cell.p99).toFixed(1)} | ${median((cell) => cell.appCpu).toFixed(3)} | ${median((cell) => cell.databaseCpu).toFixed(3)} | ${wrong} |`
    }),
  ]
}
