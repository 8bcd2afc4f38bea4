import { type LadderOptions, onLadder, orderFor, scenarioName, WARM_SECONDS } from './ladder.ts'
import type { Measured } from './load.ts'
import { tell, tellWithRestart } from './tell.ts'

interface Restart {
  /** Until PostgreSQL took connections again and had answered one. */
  restartSeconds: number
  /** From its beginning to the first ack after it; NaN where none came in the time. */
  secondsUntilBack: number
}

/** What became of the events of a candidate while PostgreSQL was restarted under it. */
export interface Survival {
  candidate: string
  /** Events acknowledged at least once, events stored, and those acknowledged that are not stored. */
  acked: number
  stored: number
  lost: number
  /** Answers 503, other answers that are no ack, and connections that broke. */
  refused: number
  failed: number
  broken: number
  restarts: Restart[]
}

/** Restarts PostgreSQL in the middle of each candidate's time, and looks for each acknowledged event afterwards. */
export function climbWithRestarts(options: LadderOptions, say: (line: string) => void): Promise<Survival[]> {
  return onLadder(options, say, async ({ server, candidates, scenarios, load }) => {
    const storing = candidates.filter(({ name }) => name !== 'ceiling')
    const survivals = storing.map((candidate) => ({
      candidate,
      ids: new Set<string>(),
      survival: { candidate: candidate.name, refused: 0, failed: 0, broken: 0, restarts: [] as Restart[] },
    }))
    // What setting up has left to be written out is no part of the first one's restart.
    await server.restart()
    for (let round = 1; round <= options.rounds; round += 1)
      for (const scenario of scenarios)
        for (const { candidate, ids, survival } of survivals) {
          const order = { ...orderFor(candidate, scenario, options.seconds), wantsIds: true }
          const warm = await tell<Measured>(load, { ...order, seconds: WARM_SECONDS })
          const measured = await tellWithRestart<Measured>(load, order, server)
          for (const id of [...warm.ids, ...measured.ids]) ids.add(id)
          const { 200: acked = 0, 401: forged = 0, 503: refused = 0, 0: broken = 0, ...others } = measured.statuses
          const failed = Object.values(others).reduce((sum, count) => sum + count, scenario.kind === 'forged' ? 0 : forged)
          survival.refused += refused
          survival.failed += failed
          survival.broken += broken
          const { restartSeconds, secondsUntilBack } = measured
          survival.restarts.push({ restartSeconds, secondsUntilBack })
          say(
            `${round} ${scenarioName(scenario)} ${candidate.name}: ${acked} acknowledged, ${refused} refused, ${failed} failed, ${broken} broken, restarted in ${restartSeconds.toFixed(2)} s, back after ${secondsUntilBack.toFixed(2)} s`,
          )
        }
    return Promise.all(
      survivals.map(async ({ candidate, ids, survival }) => ({
        ...survival,
        acked: ids.size,
        stored: (await candidate.countEvents()) ?? 0,
        lost: await candidate.countMissing(ids),
      })),
    )
  })
}

/** True when nothing that was acknowledged is lost, and acks came again in the time after each restart. */
export const hasSurvived = ({ lost, restarts }: Survival) => lost === 0 && isBack(restarts)

const isBack = (restarts: readonly Restart[]) => restarts.every(({ secondsUntilBack }) => Number.isFinite(secondsUntilBack))

/** What was lost, refused and broken, in markdown. */
export function survivalTable(survivals: readonly Survival[]): string[] {
  return [
    '| | acknowledged | stored | lost | stored, not acknowledged | refused (503) | other errors | broken connections | restart took | first ack after |',
    '|---|---|---|---|---|---|---|---|---|---|',
    ...survivals.map(({ candidate, acked, stored, lost, refused, failed, broken, restarts }) => {
      const longest = (of: keyof Restart) => `${Math.max(...restarts.map((it) => it[of])).toFixed(2)} s`
      const back = isBack(restarts) ? longest('secondsUntilBack') : '**not in the time**'
      return `| ${candidate} | ${acked} | ${stored} | ${lost === 0 ? 0 : `**${lost}**`} | ${stored - (acked - lost)} | ${refused} | ${failed} | ${broken} | ${longest('restartSeconds')} | ${back} |`
    }),
  ]
}
