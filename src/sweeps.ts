import type pg from 'pg'
import type { ReplayDeps } from './events/replay.ts'
import { continueRuns } from './events/runs.ts'
import { emptyOldBodies, forgetOldMinutes, sweepEvents } from './events/sweeps.ts'
import { findEventsWithoutJob, findSendsWithoutJob, type Jobs } from './follow-ups/queue.ts'
import type { Log } from './log.ts'
import { forgetOldSubmissions } from './ops/page/submissions.ts'
import { forgetOldSignIns } from './ops/sessions.ts'
import { continuePlans } from './sends/bulk.ts'
import { noticeRestore } from './sends/hold.ts'
import { type SweepResult, sweepSends } from './sends/sweeps.ts'
import type { Settings } from './settings.ts'

export interface SweepDeps {
  pool: pg.Pool
  jobs: Pick<Jobs, 'enqueueSends' | 'enqueueEvents'>
  /** Undefined where nobody knows the sources: then no replay goes on. */
  replay: Pick<ReplayDeps, 'recorder' | 'config' | 'isWanted'> | undefined
  settings: Pick<Settings, 'staleAfterMs' | 'reviewAfterMs' | 'keepBodiesDays' | 'sweepEveryMs' | 'probeEveryMs'>
  isExclusive(): boolean
  log: Log
  /** What is done in parts ends before the next one. */
  stopping?: AbortSignal
  /** Told of what each sweep of the sends has changed. */
  sweptSends?(found: SweepResult): void
}

/** One sweep: what it changes, by counts, and how often a worker runs it. */
export interface Sweep {
  name: string
  everyMs: number
  run(): Promise<object>
}

/** One batch of a replay so often, so that the events that arrive meanwhile get in between. */
const RUN_EVERY_MS = 1_000
const MINUTES_KEPT_DAYS = 35

/** Every sweep there is. Any number of processes may run each at once. */
export function sweepsOf({ pool, jobs, replay, settings, isExclusive, log, stopping, sweptSends }: SweepDeps): Sweep[] {
  const { sweepEveryMs: everyMs, probeEveryMs, keepBodiesDays } = settings
  return [
    {
      name: 'sends',
      // It also makes the job of the next probe.
      everyMs: Math.min(everyMs, probeEveryMs),
      async run() {
        const isRestored = await noticeRestore(pool)
        if (isRestored) log.error({}, 'the database was restored: sending is held until a person has looked')
        const found = await sweepSends(pool, jobs.enqueueSends, { ...settings, isExclusive: isExclusive() }, findSendsWithoutJob)
        if (found.staleCalls > 0)
          log.warn({ sends: found.staleCalls }, 'sends need a decision: their worker stopped during the call')
        sweptSends?.(found)
        return { ...found, restores: isRestored ? 1 : 0 }
      },
    },
    {
      name: 'events',
      everyMs,
      run: async () => ({ orphanEvents: await sweepEvents(pool, findEventsWithoutJob, jobs.enqueueEvents) }),
    },
    ...(replay
      ? [
          {
            name: 'runs',
            everyMs: Math.min(everyMs, RUN_EVERY_MS),
            run: async () => ({ batches: await continueRuns({ pool, enqueueEvents: jobs.enqueueEvents, ...replay }) }),
          },
        ]
      : []),
    {
      name: 'plans',
      everyMs,
      run: async () => ({ plans: await continuePlans({ pool, enqueueSends: jobs.enqueueSends, isExclusive, log }) }),
    },
    // What follows looks through all old rows, which is no work for every half minute.
    {
      name: 'bodies',
      everyMs: everyMs * 120,
      run: async () => ({ emptied: await emptyOldBodies(pool, keepBodiesDays, stopping) }),
    },
    {
      name: 'minutes',
      everyMs: everyMs * 120,
      run: async () => ({ forgotten: await forgetOldMinutes(pool, MINUTES_KEPT_DAYS, stopping) }),
    },
    { name: 'forms', everyMs: everyMs * 120, run: async () => ({ oldForms: await forgetOldSubmissions(pool) }) },
    { name: 'sign-ins', everyMs: everyMs * 10, run: async () => ({ signIns: await forgetOldSignIns(pool) }) },
  ]
}
