import { userInfo } from 'node:os'
import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import type { Config } from '../config.ts'
import { createRecorder } from '../events/record.ts'
import { type Replayed, replayEvent } from '../events/replay.ts'
import { findRun, planRun, type Run, type RunDeps, startRun, stopRun } from '../events/runs.ts'
import { type Forecast, forecastReplay } from '../follow-ups/forecast.ts'
import { openJobs } from '../follow-ups/queue.ts'
import { isWanted } from '../follow-ups/rules.ts'
import { problemsOf, readRowId, replayFilter } from '../ops/filters.ts'
import { readRunId } from '../ops/run-routes.ts'
import { eventLabels, sendLabels, timeText } from '../ops/words.ts'
import { jsonOutput, type OutputOptions, usageError, visible, words } from './output.ts'

export interface ReplayOptions extends OutputOptions {
  source?: string | undefined
  type?: string | undefined
  /** Comma lists. */
  status?: string | undefined
  eventId?: string | undefined
  since?: string | undefined
  until?: string | undefined
  dryRun?: boolean | undefined
  plan?: string | undefined
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

  const actor = options.by ?? userInfo().username
  const deps = await openRuns(pool, databaseUrl, config)
  if (id !== undefined) {
    const row = readRowId(id)
    const replayed: Replayed = row ? await replayEvent(deps, row, actor, 'cli') : { outcome: 'not_found' }
    const isDone = replayed.outcome === 'queued' || replayed.outcome === 'read' || replayed.outcome === 'still_unusable'
    if (options.json && isDone) return { stdout: jsonOutput(replayed), stderr: '', exitCode: 0 }
    const text = `${visible(`event ${id}`)}: ${outcomeWords[replayed.outcome]}\n`
    return isDone ? { stdout: text, stderr: '', exitCode: 0 } : { stdout: '', stderr: `oncehook: ${text}`, exitCode: 1 }
  }

  if (isFiltered) {
    const filter = replayFilter(() => new Date()).safeParse(given)
    if (!filter.success) return usageError(problemsOf(filter.error))
    const planned = await planRun(deps, filter.data, options.dryRun === true, actor)
    if (options.dryRun) {
      const hint = `To carry it out within 15 minutes: oncehook events replay --plan ${planned.id}\n`
      return options.json
        ? { stdout: jsonOutput({ plan: planned.id, ...planned }), stderr: '', exitCode: 0 }
        : { ...runResult(planned, options), stderr: hint }
    }
    return runResult(await startRun(deps, planned.id, actor, 'cli'), options)
  }
  const known = readRunId(plan)
  return runResult(known && (await startRun(deps, known, actor, 'cli')), options, 'there is no such plan, or it has expired')
}

/** `oncehook runs show ID`: the same run as `GET /v1/runs/:id`. */
export async function showRunCommand(pool: pg.Pool, id: string, options: OutputOptions): Promise<CommandResult> {
  const known = readRunId(id)
  return runResult(known && (await findRun(pool, known)), options)
}

/** `oncehook runs stop ID`: as `POST /v1/runs/:id/stop`. */
export async function stopRunCommand(
  pool: pg.Pool,
  id: string,
  options: OutputOptions & { by?: string | undefined },
): Promise<CommandResult> {
  const known = readRunId(id)
  const run = known && (await stopRun(pool, known, options.by ?? userInfo().username, 'cli'))
  const isTooLate = run && run.state !== 'stopped'
  return isTooLate ? { stdout: '', stderr: 'oncehook: it has ended already\n', exitCode: 1 } : runResult(run, options)
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

function runResult(run: Run | '' | undefined, options: OutputOptions, otherwise = 'no run has this ID'): CommandResult {
  if (!run) return { stdout: '', stderr: `oncehook: ${otherwise}\n`, exitCode: 1 }
  return { stdout: options.json ? jsonOutput(run) : words(runText(run), options), stderr: '', exitCode: 0 }
}

function runText(run: Run): string {
  const { state, id, events, next_since, done, queued, read_anew, statuses } = run
  const rest = done - queued - read_anew
  const progress = [
    `${done} gone through: ${queued} to be processed again`,
    ...(read_anew > 0 ? [`${read_anew} read anew`] : []),
    ...(rest > 0 ? [`${rest} left as they are`] : []),
  ]
  const now = Object.entries(statuses).map(
    ([status, count]) => `${count} ${eventLabels[status as keyof typeof eventLabels].word.toLowerCase()}`, // of that column's check
  )
  return [
    `${stateWords[state]}   run ${id}   ${events} ${events === 1 ? 'event' : 'events'}`,
    ...(next_since === null ? [] : [`More match than one run takes: plan again with --since ${next_since.toISOString()}`]),
    ...(run.forecast === null || state !== 'planned' ? [] : forecastLines(run.forecast as Forecast)), // kept as it was made
    ...(state === 'planned' ? [] : [progress.join(', ')]),
    ...(now.length === 0 ? [] : [`Now: ${now.join(', ')}`]),
    ...(run.started_at === null ? [] : [`Started ${timeText(run.started_at)} UTC by ${visible(run.started_by ?? '')}`]),
    ...(run.stopped_by === null ? [] : [`Stopped ${timeText(run.ended_at)} UTC by ${visible(run.stopped_by)}`]),
    '',
  ].join('\n')
}

function forecastLines({ events, emails }: Forecast): string[] {
  const held = Object.entries(emails.held).map(
    ([status, count]) => [count, `held by a send: ${sendLabels[status as keyof typeof sendLabels].word.toLowerCase()}`] as const, // its keys are statuses
  )
  const ofEvents = Object.entries(events).map(([each, count]) => [count, prospectWords[each as keyof typeof events]] as const)
  const lines = (list: readonly (readonly [number, string])[]) => list.map(([count, text]) => `  ${count} ${text}`)
  return [
    'Events:',
    ...lines(ofEvents),
    'Emails:',
    ...lines([
      [emails.would_send, 'would be sent'],
      ...held,
      ...(emails.key_taken > 0 ? [[emails.key_taken, 'not: the key belongs to a send to somebody else'] as const] : []),
    ]),
  ]
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

const stateWords: Record<Run['state'], string> = {
  planned: 'Planned',
  running: 'Running',
  stopped: 'Stopped',
  done: 'Done',
}

const prospectWords: Record<keyof Forecast['events'], string> = {
  wants_emails: 'want emails',
  no_rule: 'match no rule',
  no_email: 'match a rule that wants no email',
  fails: 'fail: a rule throws, or builds no usable key',
  needs_confirm: "have to be confirmed first, which a dry run doesn't do",
  settles: 'are delivery events',
  read_anew: 'are to be read anew',
  pending: 'wait to be processed already',
  emptied: 'have lost their body to retention',
  source_gone: 'are of a source that is not configured',
  not_looked_at: 'not looked at: time was up',
}
