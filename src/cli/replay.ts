import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import type { Config } from '../config.ts'
import { createRecorder } from '../events/record.ts'
import { type Replayed, replayEvent } from '../events/replay.ts'
import { findRun, planRun, type Run, type RunDeps, type RunFilter, startRun, stopRun } from '../events/runs.ts'
import { type Forecast, forecastReplay } from '../follow-ups/forecast.ts'
import { openJobs } from '../follow-ups/queue.ts'
import { isWanted } from '../follow-ups/rules.ts'
import { problemsOf, readRowId, readRunId, replayFilter } from '../ops/filters.ts'
import { countRunEmails } from '../ops/run-queries.ts'
import { countText } from '../ops/words.ts'
import { systemUser } from './environment.ts'
import { jsonOutput, mark, type OutputOptions, usageError, visible, words } from './output.ts'
import { failuresOf, type Watched, type WatchOptions, watchRun } from './run-progress.ts'
import { forecastText, runText } from './run-text.ts'
import { type Conversation, INTERRUPTED } from './terminal.ts'

export interface ReplayOptions extends OutputOptions, Conversation, WatchOptions {
  source?: string | undefined
  type?: string | undefined
  /** Comma lists. */
  status?: string | undefined
  eventId?: string | undefined
  since?: string | undefined
  until?: string | undefined
  dryRun?: boolean | undefined
  plan?: string | undefined
  /** Nobody is asked. */
  yes?: boolean | undefined
  /** Until all of them are processed. */
  wait?: boolean | undefined
  by?: string | undefined
}

const MOST_MS_TO_FORECAST = 60_000

/** `oncehook events replay`: one event by its row's ID, those that a filter takes, or those of a plan; as the API does it. */
export async function replayCommand(
  pool: pg.Pool,
  databaseUrl: string,
  config: Config,
  id: string | undefined,
  options: ReplayOptions,
): Promise<CommandResult> {
  const { source, type, status, eventId, since, until, plan } = options
  const list = (text: string | undefined) => text?.split(',').map((part) => part.trim())
  const given = { source, type, status: list(status), event_ids: list(eventId), since, until }
  const isFiltered = Object.values(given).some((value) => value !== undefined)
  if ([id !== undefined, isFiltered, plan !== undefined].filter(Boolean).length !== 1)
    return usageError([{ path: 'plan', message: 'say one of an ID, a filter (--source …) and --plan' }])
  if (options.dryRun && !isFiltered) return usageError([{ path: 'dry-run', message: 'goes with a filter' }])
  if (isFiltered && !options.dryRun && !options.yes && !options.ask)
    return usageError([{ path: 'yes', message: 'nobody can be asked here: say it, or look with --dry-run first' }])

  const actor = options.by ?? systemUser()
  const deps = await openRuns(pool, databaseUrl, config)
  if (id !== undefined) return replayOne(deps, id, actor, options)
  if (isFiltered) {
    const filter = replayFilter(() => new Date()).safeParse(given)
    if (!filter.success) return usageError(problemsOf(filter.error))
    return options.dryRun ? dryRun(deps, filter.data, actor, options) : planAndRun(deps, filter.data, actor, options)
  }
  const known = readRunId(plan)
  return known ? carryOut(deps, known, actor, options) : noSuchPlan
}

/** `oncehook runs show ID`: the same run as `GET /v1/runs/:id`. */
export async function showRunCommand(pool: pg.Pool, id: string, options: OutputOptions): Promise<CommandResult> {
  const known = readRunId(id)
  return runResult(pool, known && (await findRun(pool, known)), options)
}

/** `oncehook runs stop ID`: as `POST /v1/runs/:id/stop`. */
export async function stopRunCommand(
  pool: pg.Pool,
  id: string,
  options: OutputOptions & { by?: string | undefined },
): Promise<CommandResult> {
  const known = readRunId(id)
  const run = known && (await stopRun(pool, known, options.by ?? systemUser(), 'cli'))
  const isTooLate = run && run.state !== 'stopped'
  return isTooLate ? { stdout: '', stderr: 'oncehook: it has ended already\n', exitCode: 1 } : runResult(pool, run, options)
}

async function openRuns(pool: pg.Pool, databaseUrl: string, config: Config): Promise<RunDeps> {
  const jobs = await openJobs(databaseUrl)
  return {
    pool,
    recorder: createRecorder(pool, jobs),
    config: () => config,
    isWanted: (source, type) => isWanted(config, source, type),
    enqueueEvents: jobs.enqueueEvents,
    forecast: (events) => forecastReplay(pool, config, events, MOST_MS_TO_FORECAST),
  }
}

async function replayOne(deps: RunDeps, id: string, actor: string, options: OutputOptions): Promise<CommandResult> {
  const row = readRowId(id)
  const replayed: Replayed = row ? await replayEvent(deps, row, actor, 'cli') : { outcome: 'not_found' }
  const isDone = replayed.outcome === 'queued' || replayed.outcome === 'read' || replayed.outcome === 'still_unusable'
  if (options.json && isDone) return { stdout: jsonOutput(replayed), stderr: '', exitCode: 0 }
  const text = `${visible(`event ${id}`)}: ${outcomeWords[replayed.outcome]}\n`
  return isDone ? { stdout: text, stderr: '', exitCode: 0 } : { stdout: '', stderr: `oncehook: ${text}`, exitCode: 1 }
}

async function dryRun(deps: RunDeps, filter: RunFilter, actor: string, options: OutputOptions): Promise<CommandResult> {
  const planned = await planRun(deps, filter, true, actor)
  if (options.json) return { stdout: jsonOutput({ plan: planned.id, ...planned }), stderr: '', exitCode: 0 }
  const hint = `To carry it out within 15 minutes: oncehook events replay --plan ${planned.id}\n`
  return { stdout: runText(planned, undefined, options), stderr: hint, exitCode: 0 }
}

async function planAndRun(deps: RunDeps, filter: RunFilter, actor: string, options: ReplayOptions): Promise<CommandResult> {
  const { yes, ask, interrupted } = options
  const planning = planRun(deps, filter, !yes, actor)
  const planned = await Promise.race([planning, aborted(interrupted)])
  if (!planned) {
    // It goes on in vain until the connections are closed.
    planning.catch(() => undefined)
    return { stdout: '', stderr: 'Interrupted: nothing was started.\n', exitCode: INTERRUPTED }
  }
  if (!yes && ask) {
    const forecast = forecastText(planned.events, planned.forecast as Forecast) // made a moment ago
    const answer = await ask(words(`${forecast}   Start? [y/N] `, options))
    if (answer === undefined) return { stdout: '', stderr: '\nInterrupted: nothing was started.\n', exitCode: INTERRUPTED }
    if (!/^y(es)?$/i.test(answer.trim())) return { stdout: '', stderr: 'Nothing was started.\n', exitCode: 1 }
  }
  return carryOut(deps, planned.id, actor, options)
}

const noSuchPlan: CommandResult = { stdout: '', stderr: 'oncehook: there is no such plan, or it has expired\n', exitCode: 1 }

async function carryOut(deps: RunDeps, id: string, actor: string, options: ReplayOptions): Promise<CommandResult> {
  const run = await startRun(deps, id, actor, 'cli')
  if (!run) return noSuchPlan
  const watched = options.wait ? await watchRun(deps.pool, id, options, options) : undefined
  if (!watched) return runResult(deps.pool, run, options)
  const result = await runResult(deps.pool, watched.run, options)
  return { ...result, ...endOf(watched, options) }
}

/** How the command ends that has watched a run. */
function endOf(watched: Watched, options: OutputOptions): Pick<CommandResult, 'stderr' | 'exitCode'> {
  const { run, emails, end } = watched
  const processed = run.done - (run.statuses.pending ?? 0)
  const soFar = `${countText(processed)} of ${countText(run.events)} events were processed, ${countText(emails.sent)} emails sent`
  const show = `oncehook runs show ${run.id}`
  if (end === 'interrupted') {
    const goesOn = `The workers go on with the rest: ${show}, or stop it: oncehook runs stop ${run.id}`
    return { stderr: `Interrupted: ${soFar}. ${goesOn}\n`, exitCode: INTERRUPTED }
  }
  if (end === 'stalled') {
    const why = 'Nothing has moved for a while: is a worker running, and sending not paused?'
    return { stderr: `${mark('ask', `${why} So far ${soFar}. ${show}`, options)}\n`, exitCode: 4 }
  }
  if (end === 'stopped') return { stderr: `Stopped by somebody: ${soFar}.\n`, exitCode: 4 }
  const failures = failuresOf(watched)
  return failures === 0
    ? { stderr: '', exitCode: 0 }
    : { stderr: `${mark('ask', `${countText(failures)} failed: oncehook events list --status failed`, options)}\n`, exitCode: 4 }
}

function aborted(signal: AbortSignal | undefined): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal?.aborted) resolve(undefined)
    signal?.addEventListener('abort', () => resolve(undefined), { once: true })
  })
}

async function runResult(
  pool: pg.Pool,
  run: Run | '' | undefined,
  options: OutputOptions,
  otherwise = 'no run has this ID',
): Promise<CommandResult> {
  if (!run) return { stdout: '', stderr: `oncehook: ${otherwise}\n`, exitCode: 1 }
  if (options.json) return { stdout: jsonOutput(run), stderr: '', exitCode: 0 }
  const emails = run.started_at === null ? undefined : await countRunEmails(pool, run.id)
  return { stdout: runText(run, emails, options), stderr: '', exitCode: 0 }
}

const outcomeWords: Record<Replayed['outcome'], string> = {
  queued: 'waits to be processed again',
  read: 'read anew',
  still_unusable: "still can't be read as a whole",
  pending: 'waits to be processed already',
  unknown_source: 'its source is not configured',
  emptied: 'retention has emptied its body',
  not_found: 'no such event',
}
