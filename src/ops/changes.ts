import type { Db } from '../db.ts'
import type { Log } from '../log.ts'
import type { Status } from '../sends/lifecycle.ts'
import { REDELIVERIES, REDELIVERY_COUNT } from './event-queries.ts'
import type { EventStatus } from './filters.ts'
import type { Overview } from './overview.ts'

/** What has changed: a send or an event by its ID and status, or the overview. */
export type Change =
  | { kind: 'stats'; overview: Overview }
  | { kind: 'send'; dedupe_key: string; status: Status; version: number }
  | { kind: 'event'; id: string; status: EventStatus }
  /** More than could be kept for a slow reader: look at everything again. */
  | { kind: 'reload' }

export interface ChangesDeps {
  reads: Db
  findOverview(): Promise<Overview>
  log: Log
  /** How often is looked; 500 ms. */
  everyMs?: number
  /** After so long an empty batch shows that all is well; 15 s. */
  beatMs?: number
  /** How many may listen at once; 100. */
  mostListeners?: number
  /** How many of these by one session or token; 5. */
  mostOfOne?: number
}

export interface Changes {
  /** What changes from now on, in batches, until the signal is aborted; undefined when too many listen already, or too many by this one. */
  listen(signal: AbortSignal, by: string): AsyncGenerator<Change[]> | undefined
}

/** So many a reader may fall behind before it has to look at everything. */
const MOST_KEPT = 1_000
/** The overview costs more than the rest, and people don't read faster. */
const OVERVIEW_EVERY_MS = 2_000

interface Listener {
  /** Whose it is. */
  by: string
  /** By what it is of, so that only the latest word counts. */
  waiting: Map<string, Change>
  wake(): void
}

/**
 * Looks for changes in the database for everybody who listens in this process, one look at a time, and not at all while nobody does.
 * They are hints for those who show rows: of old rows some may be missed, and which of two came first is not told.
 */
export function createChanges({
  reads,
  findOverview,
  log,
  everyMs = 500,
  beatMs = 15_000,
  mostListeners = 100,
  mostOfOne = 5,
}: ChangesDeps): Changes {
  const listeners = new Set<Listener>()
  let timer: NodeJS.Timeout | undefined
  let known: Map<string, string> | undefined
  let shown: string | undefined
  let overviewDueAt = 0
  let beatDueAt = 0

  const look = async (): Promise<Change[]> => {
    const found = await findLatest(reads)
    const before = known
    known = new Map(found.map(({ change, mark }) => [idOf(change), mark]))
    const changes: Change[] = before
      ? found.filter(({ change, mark }) => before.get(idOf(change)) !== mark).map(({ change }) => change)
      : []
    if (performance.now() < overviewDueAt) return changes
    overviewDueAt = performance.now() + OVERVIEW_EVERY_MS
    const overview = await findOverview().catch((error: unknown) => log.debug({ error }, 'looking for the overview failed'))
    // What was found beside it is told all the same.
    if (!overview) return changes
    const text = JSON.stringify({ ...overview, at: undefined })
    const isNew = text !== shown
    shown = text
    return isNew ? [...changes, { kind: 'stats', overview }] : changes
  }
  const round = async () => {
    // The database may be away for a while; those who listen see that by other means.
    const changes = await look().catch((error: unknown) => {
      log.debug({ error }, 'looking for changes failed')
      return []
    })
    const isBeat = performance.now() >= beatDueAt
    if (isBeat) beatDueAt = performance.now() + beatMs
    for (const listener of listeners) tell(listener, changes, isBeat)
    if (listeners.size > 0) goOn()
    else rest()
  }
  const goOn = () => {
    timer = setTimeout(() => void round(), everyMs).unref()
  }
  const rest = () => {
    timer = undefined
    known = undefined
    shown = undefined
    overviewDueAt = 0
  }

  async function* batchesOf(listener: Listener, signal: AbortSignal): AsyncGenerator<Change[]> {
    let woken = Promise.withResolvers<void>()
    listener.wake = () => woken.resolve()
    try {
      while (!signal.aborted) {
        if (listener.waiting.size === 0) {
          await woken.promise
          woken = Promise.withResolvers<void>()
          if (signal.aborted) return
        }
        const batch = [...listener.waiting.values()]
        listener.waiting.clear()
        yield batch
      }
    } finally {
      listeners.delete(listener)
    }
  }

  return {
    listen(signal, by) {
      const ofOne = [...listeners].filter((listener) => listener.by === by)
      if (listeners.size >= mostListeners || ofOne.length >= mostOfOne) return undefined
      const listener: Listener = { by, waiting: new Map(), wake: () => undefined }
      listeners.add(listener)
      const end = () => {
        // Here too, as whoever has not begun to read never ends it.
        listeners.delete(listener)
        listener.wake()
      }
      if (signal.aborted) end()
      else signal.addEventListener('abort', end, { once: true })
      if (timer === undefined) goOn()
      return batchesOf(listener, signal)
    },
  }
}

function tell(listener: Listener, changes: readonly Change[], isBeat: boolean): void {
  for (const change of changes) listener.waiting.set(idOf(change), change)
  if (listener.waiting.size > MOST_KEPT) listener.waiting = new Map([['reload', { kind: 'reload' }]])
  if (isBeat || listener.waiting.size > 0) listener.wake()
}

function idOf(change: Change): string {
  if (change.kind === 'send') return `send:${change.dedupe_key}`
  return change.kind === 'event' ? `event:${change.id}` : change.kind
}

/** A row, and what tells that it has changed. */
interface Seen {
  change: Exclude<Change, { kind: 'stats' | 'reload' }>
  mark: string
}

/** The rows that something happened to last, each way through an index. */
async function findLatest(db: Db): Promise<Seen[]> {
  const { rows: sends } = await db.query<{ dedupe_key: string; status: Status; version: number }>({
    name: 'latest-sends',
    text: `with keys as (
        (select dedupe_key from email_sends order by queued_at desc, dedupe_key desc limit 200)
        union (select dedupe_key from send_attempts order by claimed_at desc limit 200)
        union (select dedupe_key from settlements order by id desc limit 200)
        union (select dedupe_key from (select attempt from delivery_reports order by event desc limit 200) reports
          join send_attempts on id = attempt)
        union (select substr(subject, 6) from (select subject from audit_log order by at desc, id desc limit 200) audited
          where subject like 'send:%')
      )
      select dedupe_key, status, version from keys join email_sends using (dedupe_key)`,
  })
  const { rows: events } = await db.query<{ id: string; status: EventStatus; redeliveries: number }>({
    name: 'latest-events',
    text: `select id, status, ${REDELIVERY_COUNT} from webhook_events events ${REDELIVERIES} order by id desc limit 500`,
  })
  return [
    ...sends.map((row): Seen => ({ change: { kind: 'send', ...row }, mark: `${row.version} ${row.status}` })),
    ...events.map(
      ({ redeliveries, ...row }): Seen => ({ change: { kind: 'event', ...row }, mark: `${redeliveries} ${row.status}` }),
    ),
  ]
}
