import type pg from 'pg'
import { type Db, inTransaction, type Tx } from '../db.ts'
import { isOnlyBytes, type ReplayDeps, replayEvent, requeueEvents } from './replay.ts'
import { findEventsOfRun } from './run-events.ts'

/** Which events a run takes. */
export interface RunFilter {
  source?: string | undefined
  type?: string | undefined
  status: readonly string[]
  since?: Date | undefined
  until?: Date | undefined
  /** The providers' own. */
  event_ids?: readonly string[] | undefined
}

export interface RunDeps extends ReplayDeps {
  /** What a replay of these events would do, by counts; writes nothing. */
  forecast(events: readonly string[]): Promise<object>
}

/** Another forecast is under way in this process. */
export class ForecastBusyError extends Error {}

/** For the end of a promise: nothing when another forecast is under way. */
export function busyOrThrow(error: unknown): undefined {
  if (!(error instanceof ForecastBusyError)) throw error
}

/** A forecast runs the rules in the process that answers requests: one at a time, whoever asks; others get a ForecastBusyError. */
export function oneForecastAtATime(forecast: RunDeps['forecast']): RunDeps['forecast'] {
  let isUnderWay = false
  return async (events) => {
    if (isUnderWay) throw new ForecastBusyError('another dry run is under way')
    isUnderWay = true
    try {
      return await forecast(events)
    } finally {
      isUnderWay = false
    }
  }
}

/** A replay of many events, under the names of its columns. */
export interface Run {
  id: string
  state: 'planned' | 'running' | 'stopped' | 'done'
  filter: Record<string, unknown>
  /** How many events it is about. */
  events: number
  next_since: Date | null
  forecast: object | null
  /** Of these so many have been gone through; what was neither queued nor read anew couldn't be. */
  done: number
  queued: number
  read_anew: number
  /** The status in which the events that were gone through are now. */
  statuses: Record<string, number>
  created_at: Date
  created_by: string
  expires_at: Date
  started_at: Date | null
  started_by: string | null
  ended_at: Date | null
  stopped_by: string | null
}

const MOST_EVENTS = 10_000
/** As many as one transaction may lock; a run of no more is carried out at once, by who asks for it. */
const BATCH = 200
const PLAN_GOOD_FOR_MINUTES = 15

/** Picks the events that match now, oldest first, and keeps them as a plan that can be carried out for a while. */
export async function planRun(deps: RunDeps, filter: RunFilter, withForecast: boolean, actor: string): Promise<Run> {
  const { ids: events, nextSince } = await findEventsOfRun(deps.pool, filter, MOST_EVENTS)
  const forecast = withForecast ? await deps.forecast(events) : null
  // Plans that nobody carried out go with the next one.
  const { rows: kept } = await deps.pool.query<{ id: string }>(
    `with forgotten as (delete from runs where state = 'planned' and expires_at < now())
     insert into runs (filter, events, next_since, forecast, created_by, expires_at)
     values ($1, $2, $3, $4, $5, now() + $6::int * interval '1 minute') returning id`,
    [JSON.stringify(filter), events, nextSince, forecast, actor, PLAN_GOOD_FOR_MINUTES],
  )
  const run = await findRun(deps.pool, kept[0]?.id ?? '')
  if (!run) throw new Error('a plan that was kept has vanished')
  return run
}

/**
 * Carries out a plan, once: its events wait to be processed again, a small run's at once, those of a larger one in batches by the
 * workers. Asked for again it answers the run as it is. Undefined: there is no such plan, or it has expired.
 */
export async function startRun(deps: ReplayDeps, id: string, actor: string, via: string): Promise<Run | undefined> {
  const isNew = await inTransaction(deps.pool, async (tx) => {
    const { rows } = await tx.query<{ after: object }>(
      `update runs set state = 'running', started_at = now(), started_by = $2, via = $3
       where id = $1 and state = 'planned' and expires_at > now()
       returning jsonb_build_object('filter', filter, 'events', cardinality(events), 'forecast', forecast) as after`,
      [id, actor, via],
    )
    if (rows[0]) await audit(tx, id, actor, via, 'replay', rows[0].after)
    return rows[0] !== undefined
  })
  const run = await findRun(deps.pool, id)
  if (!isNew || !run || run.events > BATCH) return run?.state === 'planned' ? undefined : run
  // If it fails here, a worker goes on with it.
  await continueRun(deps, id)
  return findRun(deps.pool, id)
}

/** Carries out the next batch of each running run. Any number of processes may; answers how many batches this one did. */
export async function continueRuns(deps: ReplayDeps): Promise<number> {
  const { rows } = await deps.pool.query<{ id: string }>(
    `select id from runs where state = 'running' order by started_at limit 10`,
  )
  const batches = await Promise.allSettled(rows.map(({ id }) => continueRun(deps, id)))
  // One that fails must not keep the others from going on.
  for (const batch of batches) if (batch.status === 'rejected') throw batch.reason
  return batches.filter((batch) => batch.status === 'fulfilled' && batch.value).length
}

/** Does one batch; the row's own `done` guards it, so that of several at once one does, and a crash leaves it to the next. */
async function continueRun(deps: ReplayDeps, id: string): Promise<boolean> {
  const { rows } = await deps.pool.query<{ done: number; started_by: string; via: string; ids: string[] }>(
    `select done, started_by, via, events[done + 1 : done + $2] as ids from runs where id = $1 and state = 'running'`,
    [id, BATCH],
  )
  const seen = rows[0]
  if (!seen) return false
  // Outside of the transaction, as it records by one of its own; done twice it finds duplicates.
  const readAnew = await readBytesAnew(deps, { ...seen, id })
  return inTransaction(deps.pool, async (tx) => {
    const { rowCount } = await tx.query(
      `update runs set done = done + $3, read_anew = read_anew + $4,
         state = case when done + $3 >= cardinality(events) then 'done' else state end,
         ended_at = case when done + $3 >= cardinality(events) then now() end
       where id = $1 and state = 'running' and done = $2`,
      [id, seen.done, seen.ids.length, readAnew],
    )
    if (rowCount !== 1) return false
    // For the log: what a run brings is known by the run.
    const requeued = await requeueEvents(tx, (tx, events) => deps.enqueueEvents(tx, events, id), seen.ids)
    await tx.query('update runs set queued = queued + $2 where id = $1', [id, requeued.length])
    return true
  })
}

/** Reads what is only bytes so far; what can't be read stays before people's eyes. Answers how many could. */
async function readBytesAnew(
  deps: ReplayDeps,
  { id: run, ids, started_by, via }: { id: string; ids: readonly string[]; started_by: string; via: string },
): Promise<number> {
  const { rows } = await deps.pool.query<{ id: string }>(
    `select id from webhook_events where id = any ($1) and status = 'quarantined' and ${isOnlyBytes} order by id`,
    [ids],
  )
  let read = 0
  for (const { id } of rows) {
    const replayed = await replayEvent(deps, id, started_by, via, run).catch(() => undefined)
    if (replayed?.outcome === 'read') read += 1
  }
  return read
}

/** Stops a plan or a run: what waits to be processed by now is processed, nothing more is added. Undefined: there is none. */
export async function stopRun(pool: pg.Pool, id: string, actor: string, via: string): Promise<Run | undefined> {
  await inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<{ after: object }>(
      `update runs set state = 'stopped', ended_at = now(), stopped_by = $2 where id = $1 and state in ('planned', 'running')
       returning jsonb_build_object('done', done, 'queued', queued, 'events', cardinality(events)) as after`,
      [id, actor],
    )
    if (rows[0]) await audit(tx, id, actor, via, 'stop replay', rows[0].after)
  })
  return findRun(pool, id)
}

/** One plan or run, and how far it is. */
export async function findRun(db: Db, id: string): Promise<Run | undefined> {
  const { rows } = await db.query<Run>(
    `select id, state, filter, cardinality(events) as events, next_since, forecast, done, queued, read_anew,
       coalesce((select jsonb_object_agg(status, count) from (
         select status, count(*) from webhook_events where webhook_events.id = any (runs.events[1 : runs.done]) group by status
       ) counted), '{}') as statuses,
       created_at, created_by, expires_at, started_at, started_by, ended_at, stopped_by
     from runs where id = $1`,
    [id],
  )
  return rows[0]
}

async function audit(tx: Tx, id: string, actor: string, via: string, action: string, after: object): Promise<void> {
  await tx.query(`insert into audit_log (actor, via, action, subject, after) values ($1, $2, $3, 'run:' || $4, $5)`, [
    actor,
    via,
    action,
    id,
    after,
  ])
}
