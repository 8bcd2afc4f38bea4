import { fileURLToPath } from 'node:url'
import { startService } from './candidates.ts'
import { ask, countMissing, startServer } from './database.ts'
import type { Measured, Order } from './load.ts'
import type { Rush, Rushed } from './open-loop.ts'
import { cpuSeconds, memoryOf, type Started, startProcess } from './processes.ts'
import { type Survival, survivalTable } from './restart.ts'
import { tell, tellWithRestart } from './tell.ts'

/** A part of the ramp: how many times the capacity comes in, and what became of it. */
interface Phase extends Omit<Rushed, 'ids'> {
  times: number
  seconds: number
  /** Bytes of the service's memory at most. */
  memory: number
  appCpu: number
  restartSeconds?: number
}

export interface OverloadResult {
  /** Events a second over 64 connections that are kept busy, before the ramp. */
  capacity: number
  phases: Phase[]
  acked: number
  stored: number
  /** Where PostgreSQL was restarted in the middle of the overload. */
  survival?: Survival
}

export interface OverloadOptions {
  seconds: number
  connections: number
  /** PostgreSQL's setting. */
  sharedBuffers: string
  /** Restarts PostgreSQL in the middle of the overload. */
  restart: boolean
  profiles?: string | undefined
}

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url))

/** Half the capacity, then five times it, then half again: whatever is answered is counted, and the rows afterwards. */
export async function overload(options: OverloadOptions, say: (line: string) => void): Promise<OverloadResult> {
  const server = await startServer(options.sharedBuffers)
  const stops: (() => Promise<unknown>)[] = [() => server.stop()]
  try {
    const { started, url } = await startService({ server, profiles: options.profiles }, 'overload', { wants: 'none' })
    stops.push(() => started.stop())
    const port = Number(new URL(started.ready).port)
    const begin = async (program: string): Promise<Started> => {
      const load = await startProcess(file(program), { output: `${server.folder}/load.log` })
      stops.push(() => load.stop())
      return load
    }
    const [closed, open] = [await begin('./load.ts'), await begin('./open-loop.ts')]
    const order: Order = {
      port,
      candidate: 'overload',
      kind: 'new',
      connections: 64,
      seconds: 2,
      rare: false,
      wantsIds: options.restart,
    }
    const ids = new Set<string>()
    let acked = 0
    let capacity = 0
    // The first one warms it up.
    for (let time = 0; time < 3; time += 1) {
      const measured = await tell<Measured>(closed, order)
      acked += measured.acked
      for (const id of measured.ids) ids.add(id)
      capacity = time === 0 ? 0 : Math.max(capacity, measured.rate)
    }
    say(`capacity ${Math.round(capacity)}/s`)
    const phases: Phase[] = []
    for (const times of [0.5, 5, 0.5]) {
      const { seconds, connections } = options
      const rush: Rush = { port, rate: capacity * times, seconds, connections, wantsIds: options.restart }
      let memory = 0
      const watch = setInterval(() => {
        memory = Math.max(memory, memoryOf(started.pid))
      }, 100)
      const before = cpuSeconds(started.pid)
      const isRestarted = options.restart && times > 1
      const answer = isRestarted ? await tellWithRestart<Rushed>(open, rush, server) : await tell<Rushed>(open, rush)
      const { ids: acknowledged, ...rushed } = answer
      clearInterval(watch)
      acked += rushed.acked
      for (const id of acknowledged) ids.add(id)
      phases.push({ ...rushed, times, seconds, memory, appCpu: cpuSeconds(started.pid) - before })
      say(`${times} times: ${JSON.stringify(phases.at(-1))}`)
    }
    const [row] = await ask<{ count: string }>(url, 'select count(*) from webhook_events')
    const stored = Number(row?.count)
    const result = { capacity, phases, acked, stored }
    const through = phases.find(({ restartSeconds }) => restartSeconds !== undefined)
    if (through?.restartSeconds === undefined) return result
    const { refused, failed, broken, restartSeconds, secondsUntilBack } = through
    const survival = {
      candidate: 'oncehook, overload',
      acked: ids.size,
      stored,
      lost: await countMissing(url, 'webhook_events', ids),
      refused,
      failed: failed - broken,
      broken,
      restarts: [{ restartSeconds, secondsUntilBack }],
    }
    return { ...result, survival }
  } finally {
    for (const stop of stops.reverse()) await stop()
  }
}

const PHASES = ['before', 'overload', 'after']

/** The report of a ramp in markdown, each figure beside its target. */
export function overloadReport({ capacity, phases, acked, stored, survival }: OverloadResult): string {
  const perSecond = (phase: Phase) => phase.acked / phase.seconds
  const [before, rush, after] = phases
  const recovered = (after?.ackedBySecond ?? []).findIndex((count) => count >= ((after?.due ?? 0) / (after?.seconds ?? 1)) * 0.95)
  return [
    '# Overload',
    '',
    `Capacity ${Math.round(capacity)} events/s: 64 connections kept busy. An open loop then posts 0.5, 5 and 0.5 times that, ${rush?.seconds} s each.`,
    '',
    '| | posted/s | acknowledged/s | ÷ capacity | refused (503)/s | failed | not sent | acknowledged p50 ms | p99 ms | refused p99 ms | memory MiB |',
    '|---|---|---|---|---|---|---|---|---|---|---|',
    ...phases.map((phase, index) =>
      [
        `| ${PHASES[index]}`,
        Math.round(phase.due / phase.seconds),
        Math.round(perSecond(phase)),
        (perSecond(phase) / capacity).toFixed(2),
        Math.round(phase.refused / phase.seconds),
        phase.failed,
        phase.notSent,
        phase.ackedP50.toFixed(1),
        phase.ackedP99.toFixed(1),
        Number.isNaN(phase.refusedP99) ? '–' : phase.refusedP99.toFixed(1),
        `${Math.round(phase.memory / 2 ** 20)} |`,
      ].join(' | '),
    ),
    '',
    `Targets at five times: acknowledged ≥ 0.8 of the capacity, their p99 ≤ 500 ms, refusals p99 ≤ 50 ms, memory ≤ 300 MiB.`,
    `Recovered ${recovered < 0 ? 'not within the time' : `within ${recovered + 1} s`} (target 10 s). Before, ${before?.refused} were refused.`,
    `Acknowledged ${acked}, stored ${stored}${stored >= acked ? '' : ': **acknowledged events are missing**'}.`,
    '',
    ...(survival ? ['PostgreSQL was restarted in the middle of the overload.', '', ...survivalTable([survival]), ''] : []),
  ].join('\n')
}
