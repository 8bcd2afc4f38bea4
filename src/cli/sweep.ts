import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import type { Config } from '../config.ts'
import { createRecorder } from '../events/record.ts'
import { openJobs } from '../follow-ups/queue.ts'
import { isWanted } from '../follow-ups/rules.ts'
import { createLog } from '../log.ts'
import { type SweepDeps, sweepsOf } from '../sweeps.ts'
import { jsonOutput, type OutputOptions, table, tabSeparated, visible } from './output.ts'

const meanings: Record<string, string> = {
  staleClaims: 'claims without a call, queued again',
  staleCalls: 'calls without an answer, in front of a person',
  orphanSends: 'waiting sends that got a job',
  resends: 'sends of policy prefer_duplicate, called again',
  joinedMessages: 'delivery events that found their send late',
  restores: 'noticed that the database was restored: sending is held',
  orphanEvents: 'pending events that got a job',
  batches: 'batches of replays',
  plans: 'plans of decisions that their process had left',
  emptied: 'old bodies emptied',
  forgotten: 'old rows of what the sources answered',
  oldForms: 'forms that were sent days ago',
  signIns: 'sessions, links and tries of passwords that are over',
}

/**
 * `oncehook sweep`: what the workers do every half minute, once and now. One sweep that fails keeps no other from running. Without a
 * configuration nothing settles by recipient, and no replay goes on.
 */
export async function sweepCommand(
  pool: pg.Pool,
  settings: SweepDeps['settings'] & { databaseUrl: string },
  config: Config | undefined,
  options: OutputOptions,
): Promise<CommandResult> {
  const jobs = await openJobs(settings.databaseUrl)
  const sweeps = sweepsOf({
    pool,
    jobs,
    replay: config && {
      recorder: createRecorder(pool, jobs),
      config: () => config,
      isWanted: (source, type) => isWanted(config, source, type),
    },
    settings,
    isExclusive: () => config?.account === 'exclusive',
    log: createLog('silent', 'cli'),
  })
  const changed: Record<string, Record<string, number>> = {}
  let stderr = ''
  for (const { name, run } of sweeps) {
    try {
      changed[name] = { ...(await run()) }
    } catch (error) {
      stderr += `oncehook: the sweep of ${name} failed: ${visible(error instanceof Error ? error.message : String(error))}\n`
    }
  }
  return { stdout: options.json ? jsonOutput(changed) : changedText(changed, options), stderr, exitCode: stderr === '' ? 0 : 1 }
}

function changedText(changed: Record<string, Record<string, number>>, options: OutputOptions): string {
  const rows = Object.entries(changed).flatMap(([sweep, counts]) =>
    Object.entries(counts).map(([name, count]) => [sweep, String(count), meanings[name] ?? name]),
  )
  if (options.width === undefined) return tabSeparated(rows)
  return table(
    ['SWEEP', 'CHANGED', 'WHAT'],
    rows.map((row) => row.map((text, column) => ({ text, isFigure: column === 1 }))),
    [2],
    options,
  )
}
