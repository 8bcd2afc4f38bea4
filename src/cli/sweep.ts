import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { emptyOldBodies, forgetOldMinutes, sweepEvents } from '../events/sweeps.ts'
import { findEventsWithoutJob, findSendsWithoutJob, openJobs } from '../follow-ups/queue.ts'
import { forgetOldSubmissions } from '../ops/page/submissions.ts'
import { forgetOldSignIns } from '../ops/sessions.ts'
import { sweepSends } from '../sends/sweeps.ts'
import type { Settings } from '../settings.ts'
import { jsonOutput, type OutputOptions, table, tabSeparated, visible } from './output.ts'

export type SweepSettings = Pick<Settings, 'staleAfterMs' | 'reviewAfterMs' | 'keepBodiesDays'> & { databaseUrl: string }

const MINUTES_KEPT_DAYS = 35

const meanings: Record<string, string> = {
  staleClaims: 'claims without a call, queued again',
  staleCalls: 'calls without an answer, in front of a person',
  orphanSends: 'waiting sends that got a job',
  resends: 'sends of policy prefer_duplicate, called again',
  joinedMessages: 'delivery events that found their send late',
  orphanEvents: 'pending events that got a job',
  emptied: 'old bodies emptied',
  forgotten: 'old rows of what the sources answered',
  signIns: 'sessions, links and tries of passwords that are over',
}

/** `oncehook sweep`: what the workers do every half minute, once and now. One sweep that fails keeps no other from running. */
export async function sweepCommand(
  pool: pg.Pool,
  { databaseUrl, keepBodiesDays, ...times }: SweepSettings,
  isExclusive: boolean,
  options: OutputOptions,
): Promise<CommandResult> {
  const jobs = await openJobs(databaseUrl)
  const sweeps: Record<string, () => Promise<object>> = {
    sends: () => sweepSends(pool, jobs.enqueueSends, { ...times, isExclusive }, findSendsWithoutJob),
    events: async () => ({ orphanEvents: await sweepEvents(pool, findEventsWithoutJob, jobs.enqueueEvents) }),
    bodies: async () => ({ emptied: await emptyOldBodies(pool, keepBodiesDays) }),
    minutes: async () => ({ forgotten: await forgetOldMinutes(pool, MINUTES_KEPT_DAYS) }),
    forms: async () => ({ oldForms: await forgetOldSubmissions(pool) }),
    'sign-ins': async () => ({ signIns: await forgetOldSignIns(pool) }),
  }
  const changed: Record<string, Record<string, number>> = {}
  let stderr = ''
  for (const [name, sweep] of Object.entries(sweeps)) {
    try {
      changed[name] = { ...(await sweep()) }
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
