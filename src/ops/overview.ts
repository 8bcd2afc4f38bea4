import type { Config } from '../config.ts'
import type { Db } from '../db.ts'
import type { Status } from '../sends/lifecycle.ts'
import { kept } from './kept.ts'
import {
  decisionsCell,
  processingCell,
  queueDoneAt,
  receivingCell,
  reportsCell,
  sendingCell,
  storageCell,
} from './overview-cells.ts'
import {
  findDay,
  findLongestGaps,
  findProblems,
  findProcessing,
  findReceiving,
  findSendingFacts,
  findSweep,
  MOST_PROBLEMS,
  type ProblemRow,
} from './overview-facts.ts'

// Read-only.

export type Level = 'ok' | 'attention' | 'problem'

/** A text of the overview, and the page's list that makes it; null where there is none. */
export interface Line {
  text: string
  href: string | null
}

/** One of the six cells, in words. */
export interface Cell {
  name: 'receiving' | 'processing' | 'sending' | 'reports' | 'decisions' | 'storage'
  title: string
  level: Level
  /** `OK`, or what is wrong in a word or two. */
  word: string
  lines: Line[]
}

/** Something that went wrong lately. */
interface Problem {
  at: Date
  text: string
  href: string
}

export interface Overview {
  /** The database's time. */
  at: Date
  /** The worst of the cells, and that in words for the title of a tab. */
  level: Level
  title: string
  cells: Cell[]
  /** Sends asked for in the last 24 hours, by their status now; counting stops at 100,000 of one. */
  last_24_hours: { status: Status; count: number; href: string }[]
  queue: { waiting: number; per_minute: number; done_at: Date | null; href: string }
  /** The newest first, 10 at most; what went wrong in the same way is one. */
  problems: Problem[]
}

export interface OverviewSetup {
  config: Config
  sendsPerMinute?: number | undefined
}

/** The default of the settings. */
const SENDS_PER_MINUTE = 110

/** What changes slowly, or costs more, isn't looked for each time. */
const GAPS_KEPT_MS = 60_000
const DAY_KEPT_MS = 10_000
/** Everybody who looks at about the same time is told the same. */
const OVERVIEW_KEPT_MS = 500

/** The overview as things are now, for all who look at it in this process: what costs more is kept for a while. */
export function createOverview(db: Db, setup: () => OverviewSetup): () => Promise<Overview> {
  const gaps = kept(GAPS_KEPT_MS, (now: Date) => findLongestGaps(db, [...setup().config.sources.keys()], now))
  const day = kept(DAY_KEPT_MS, (now: Date) => findDay(db, now))
  const overview = kept(OVERVIEW_KEPT_MS, () => findOverview(db, setup(), { gaps, day }))
  return () => overview(new Date())
}

/** What may be older than the rest. */
interface Slow {
  gaps(now: Date): Promise<Map<string, number>>
  day(now: Date): ReturnType<typeof findDay>
}

/** The overview as things are now, from indexed open rows and bounded counts. */
export async function findOverview(
  db: Db,
  { config, sendsPerMinute = SENDS_PER_MINUTE }: OverviewSetup,
  slow: Slow = {
    gaps: (now) => findLongestGaps(db, [...config.sources.keys()], now),
    day: (now) => findDay(db, now),
  },
): Promise<Overview> {
  const { limits } = config
  const sources = [...config.sources.keys()]
  const { rows } = await db.query<{ now: Date }>(
    // In whole milliseconds as a Date has it, and not before what was written in this one.
    `select date_trunc('milliseconds', now()) + interval '1 ms' as now`,
  )
  const now = rows[0]?.now ?? new Date()
  const receiving = await findReceiving(db, now)
  const processing = await findProcessing(db, now)
  const sending = await findSendingFacts(db, now, limits.silentMinutes)
  const day = await slow.day(now)
  const cells = [
    receivingCell(receiving, sources, await slow.gaps(now), limits, now),
    processingCell(processing, limits, now),
    sendingCell(sending, sendsPerMinute, limits, now),
    reportsCell(
      sending,
      day,
      [...config.sources.values()].some((source) => source.settles),
      limits,
      now,
    ),
    decisionsCell(sending, limits, now),
    storageCell(await findSweep(db), processing, limits),
  ]
  return {
    at: now,
    ...worstOf(cells),
    cells,
    last_24_hours: [...day.counts].map(([status, count]) => ({ status, count, href: `/ops/sends?status=${status}&since=24h` })),
    queue: {
      waiting: sending.waiting,
      per_minute: sendsPerMinute,
      done_at: sending.held_reason === null ? queueDoneAt(sending, sendsPerMinute, now) : null,
      href: '/ops/sends?status=queued',
    },
    problems: toldOnce(await findProblems(db, now))
      .slice(0, 10)
      .map(problemOf),
  }
}

/** The worst cell, the first of several; a tab says it before its name. */
function worstOf(cells: readonly Cell[]): { level: Level; title: string } {
  const worst = cells.find(({ level }) => level === 'problem') ?? cells.find(({ level }) => level === 'attention')
  if (!worst) return { level: 'ok', title: 'OK' }
  return { level: worst.level, title: `${worst.level === 'problem' ? '✕' : '!'} ${worst.title}: ${worst.word}` }
}

/** Rows that say the same are one, at the place of the newest. */
function toldOnce(rows: readonly ProblemRow[]): (ProblemRow & { times: number; isAll: boolean })[] {
  const groups = Map.groupBy(rows, ({ kind, id, why }) =>
    why === null || kind === 'paused' || kind === 'resumed' ? `${kind} ${id}` : `${kind}: ${why}`,
  )
  return [...groups.values()].flatMap((group) => {
    const [newest] = group
    return newest ? [{ ...newest, times: group.length, isAll: rows.length < MOST_PROBLEMS }] : []
  })
}

function problemOf({ at, kind, id, name, why, times, isAll }: ReturnType<typeof toldOnce>[number]): Problem {
  const because = why === null ? '' : `: ${why}`
  if (kind === 'paused' || kind === 'resumed')
    return {
      at,
      text: `sending ${kind === 'paused' ? 'paused' : 'ran again'} by itself${because}`,
      href: '/ops/audit?subject=sending',
    }
  const became = {
    failed: 'failed',
    quarantined: 'quarantined',
    needs_review: 'unknown',
    rejected: 'not sent',
    bounced: 'bounced',
  }[kind]
  const list = kind === 'failed' || kind === 'quarantined' ? 'events' : 'sends'
  if (times > 1)
    return { at, text: `${times}${isAll ? '' : '+'} × ${became}${because}`, href: `/ops/${list}?status=${kind}&since=24h` }
  return { at, text: `${name} ${became}${because}`, href: `/ops/${list}/${encodeURIComponent(id)}` }
}
