import { fileURLToPath } from 'node:url'
import { type Candidate, candidateNames, startCandidate } from './candidates.ts'
import { type BenchServer, startServer } from './database.ts'
import type { Kind, Measured, Order } from './load.ts'
import { cpuSeconds, type Started, startProcess } from './processes.ts'
import { tell } from './tell.ts'

/** What is delivered again must have been delivered, and what a process has to learn it has learned. */
export const WARM_SECONDS = 0.3

/** What is posted, and over how many connections. */
export interface Scenario {
  kind: Kind
  connections: number
}

export const scenarios: readonly Scenario[] = [
  ...[1, 16, 64, 256].map((connections) => ({ kind: 'new' as const, connections })),
  ...(['duplicates', 'forged', 'large'] as const).map((kind) => ({ kind, connections: 64 })),
]

/** What one candidate did in one round of one scenario. */
export interface Cell extends Pick<Measured, 'rate' | 'p50' | 'p99'>, Scenario {
  candidate: string
  round: number
  /** CPU-seconds for each thousand answers. */
  appCpu: number
  databaseCpu: number
  /** Requests that were not answered as they should have been. */
  wrong: number
}

export interface LadderOptions {
  rounds: number
  seconds: number
  prefill: number
  /** PostgreSQL's setting. */
  sharedBuffers: string
  /** Only candidates and scenarios in whose names one of these stands. */
  only: readonly string[]
  profiles?: string | undefined
}

export interface LadderResult {
  cells: Cell[]
  /** Events acknowledged and events stored, by candidate. */
  counts: { candidate: string; acked: number; stored: number }[]
  settings: Record<string, string>
  /** Files of PostgreSQL's log that were made in the time. */
  logFilesMade: number
}

export const scenarioName = ({ kind, connections }: Scenario) => `${kind} ${connections}`

/** What a run of the ladder measures, and the load that measures it. */
interface Ladder {
  server: BenchServer
  candidates: Candidate[]
  scenarios: Scenario[]
  load: Started
}

/** Starts what a run needs, and ends it whatever comes. */
export async function onLadder<Result>(
  options: Pick<LadderOptions, 'prefill' | 'sharedBuffers' | 'only' | 'profiles'>,
  say: (line: string) => void,
  use: (ladder: Ladder) => Promise<Result>,
): Promise<Result> {
  const matches = (name: string, among: readonly string[]) =>
    !options.only.some((it) => among.some((one) => one.includes(it))) || options.only.some((it) => name.includes(it))
  const names = candidateNames(options.prefill).filter((name) => matches(name, candidateNames(options.prefill)))
  const chosen = scenarios.filter((scenario) => matches(scenarioName(scenario), scenarios.map(scenarioName)))
  const server = await startServer(options.sharedBuffers)
  const candidates: Candidate[] = []
  const load = await startProcess(fileURLToPath(new URL('./load.ts', import.meta.url)), { output: `${server.folder}/load.log` })
  try {
    for (const name of names) {
      say(`starting ${name}`)
      candidates.push(await startCandidate(name, { server, prefill: options.prefill, profiles: options.profiles }))
    }
    return await use({ server, candidates, scenarios: chosen, load })
  } finally {
    await Promise.all(candidates.map((candidate) => candidate.stop()))
    await load.stop()
    await server.stop()
  }
}

export const orderFor = (candidate: Candidate, scenario: Scenario, seconds: number): Order => ({
  ...scenario,
  candidate: candidate.name,
  port: candidate.port,
  rare: candidate.name.includes('1 %'),
  seconds,
})

/** Measures each candidate in each scenario, round after round, so that what else the machine does meets all of them alike. */
export function climb(options: LadderOptions, say: (line: string) => void): Promise<LadderResult> {
  return onLadder(options, say, async ({ server, candidates, scenarios: chosen, load }) => {
    const visit = async (candidate: Candidate, scenario: Scenario, round: number): Promise<Cell> => {
      const warm = await tell<Measured>(load, orderFor(candidate, scenario, WARM_SECONDS))
      candidate.acked += warm.acked
      const before = [cpuSeconds(candidate.pid), cpuSeconds(server.pid, true)] as const
      const measured = await tell<Measured>(load, orderFor(candidate, scenario, options.seconds))
      const app = cpuSeconds(candidate.pid) - before[0]
      const database = cpuSeconds(server.pid, true) - before[1]
      candidate.acked += measured.acked
      const answers = Object.values(measured.statuses).reduce((sum, count) => sum + count, 0)
      const { rate, p50, p99, statuses } = measured
      const right = (statuses[200] ?? 0) + (scenario.kind === 'forged' ? (statuses[401] ?? 0) : 0)
      const cell: Cell = {
        ...scenario,
        candidate: candidate.name,
        round,
        rate,
        p50,
        p99,
        appCpu: (app / answers) * 1000,
        databaseCpu: (database / answers) * 1000,
        wrong: answers - right,
      }
      say(
        `${round} ${scenarioName(scenario)} ${candidate.name}: ${Math.round(rate)}/s, p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms, CPU ${cell.appCpu.toFixed(3)} + ${cell.databaseCpu.toFixed(3)}`,
      )
      return cell
    }
    say('warming up')
    for (const candidate of candidates)
      for (const kind of ['new', 'forged'] as const) await visit(candidate, { kind, connections: 64 }, 0)
    const logFilesBefore = await server.logFilesMade()
    const cells: Cell[] = []
    for (let round = 1; round <= options.rounds; round += 1)
      for (const scenario of chosen)
        for (const candidate of round % 2 === 0 ? candidates.toReversed() : candidates)
          cells.push(await visit(candidate, scenario, round))
    const logFilesMade = (await server.logFilesMade()) - logFilesBefore
    const counts: LadderResult['counts'] = []
    for (const candidate of candidates) {
      const stored = await candidate.countEvents()
      if (stored !== undefined) counts.push({ candidate: candidate.name, acked: candidate.acked, stored })
    }
    return { cells, counts, settings: server.settings, logFilesMade }
  })
}
