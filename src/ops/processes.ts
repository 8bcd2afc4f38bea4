import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import type { Db } from '../db.ts'
import type { Log } from '../log.ts'

export type ProcessKind = 'serve' | 'worker'

/** A process that runs on this database, or did until a moment ago. */
export interface ProcessRow {
  id: string
  kind: ProcessKind
  host: string
  pid: number
  version: string
  started_at: Date
  seen_at: Date
  /** Whether it was seen within the last 30 s. */
  is_alive: boolean
  seconds_since_seen: number
  /** Null for a process that doesn't sweep, or has not yet. */
  seconds_since_sweep: number | null
  clock_ahead_ms: number
}

export interface Heartbeat {
  /** Says that a sweep has just ended well. */
  swept(): void
  /** Says that it has ended. */
  stop(): Promise<void>
}

const EVERY_MS = 10_000
/** Three times, so that one that comes late isn't taken for dead. */
const ALIVE_FOR_SECONDS = 30
/** A killed process is listed so long, so that people see that it was there. */
const LISTED_FOR_HOURS = 24
/** As long as the longest chart goes back, and a little. One that can't stay up would leave a row with each start: short lives go sooner. */
const KEPT_FOR_HOURS = 192
const SHORT_KEPT_FOR_HOURS = 1

/** Has the process be seen in the database until it stops. A database that is away is met again with the next beat. */
export function startHeartbeat(
  db: Db,
  { kind, version }: { kind: ProcessKind; version: string },
  log: Log,
  everyMs = EVERY_MS,
): Heartbeat {
  const id = randomUUID()
  let hasSwept = false
  let hasToldSweep = false
  let isStopped = false
  let isFailing = false
  const beat = async () => {
    const swept = hasSwept
    hasSwept = false
    try {
      await say(db, { id, kind, version, swept })
      isFailing = false
      hasToldSweep ||= swept
    } catch (error) {
      hasSwept ||= swept
      // Once for each time that the database is away.
      if (!isFailing) log.warn({ error }, 'heartbeat not written')
      isFailing = true
    }
  }
  let timer: NodeJS.Timeout | undefined
  let running = Promise.resolve()
  let isBeating = false
  const next = () => {
    isBeating = true
    running = beat().then(() => {
      isBeating = false
      const isNews = hasSwept && !hasToldSweep && !isFailing
      if (!isStopped) timer = setTimeout(next, isNews ? 0 : everyMs).unref()
    })
  }
  next()
  return {
    swept() {
      hasSwept = true
      // The first one at once: until then nobody knows whether this process sweeps.
      if (hasToldSweep || isBeating || isStopped || isFailing) return
      clearTimeout(timer)
      next()
    },
    async stop() {
      isStopped = true
      clearTimeout(timer)
      await running
      await db.query('update processes set seen_at = now(), ended_at = now() where id = $1', [id]).catch(() => undefined)
    },
  }
}

async function say(
  db: Db,
  { id, kind, version, swept }: { id: string; kind: ProcessKind; version: string; swept: boolean },
): Promise<void> {
  await db.query({
    name: 'heartbeat',
    text: `with gone as (
        delete from processes where id in (
          select id from processes where id <> $1 and seen_at < now() - interval '1 hour'
            * case when seen_at - started_at < interval '1 minute' then $8::int else $7::int end for update skip locked)
      )
      insert into processes (id, kind, host, pid, version, swept_at, clock_ahead_ms)
      values ($1, $2, $3, $4, $5, case when $6 then now() end,
        greatest(-2e9, least(2e9, extract(epoch from $9::timestamptz - clock_timestamp()) * 1000)))
      on conflict (id) do update set seen_at = now(), swept_at = coalesce(excluded.swept_at, processes.swept_at),
        clock_ahead_ms = excluded.clock_ahead_ms`,
    values: [id, kind, hostname(), process.pid, version, swept, KEPT_FOR_HOURS, SHORT_KEPT_FOR_HOURS, new Date()],
  })
}

/** The processes that run, then those that were killed in the last day; one that ended cleanly is not among them. */
export async function findProcesses(db: Db): Promise<ProcessRow[]> {
  const { rows } = await db.query<ProcessRow>({
    name: 'find-processes',
    text: `select id, kind, host, pid, version, started_at, seen_at, seen_at > now() - $1::int * interval '1 s' as is_alive,
        extract(epoch from now() - seen_at)::float8 as seconds_since_seen, extract(epoch from now() - swept_at)::float8 as seconds_since_sweep,
        clock_ahead_ms
      from processes where ended_at is null and seen_at > now() - $2::int * interval '1 hour'
      order by is_alive desc, kind, started_at, id limit 1000`,
    values: [ALIVE_FOR_SECONDS, LISTED_FOR_HOURS],
  })
  return rows
}
