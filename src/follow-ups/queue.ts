import pg from 'pg'
import { type JobWithMetadata, PgBoss } from 'pg-boss'
import type { Db, Tx } from '../db.ts'
import { reached } from '../fault-points.ts'
import type { Log } from '../log.ts'
import type { SendJob, Urgency } from '../sends/trigger.ts'
import { type Lane, openLane } from './lane.ts'

// The only user of the job library. The queue is at least once and has no fence: a job that runs twice, or late, must find
// by the rows themselves that there is nothing left to do.

const PROCESS_EVENT = 'process-event'
const SEND = 'send'
const WAKE_CHANNEL = 'oncehook_jobs'

/** Tries of an event whose rule throws: some 13 hours with the delays between them. */
const PROCESS_TRIES = 24

/** The library takes the highest priority first, and the oldest of it. New events and fresh sends have its default. */
const BACKLOG_PRIORITY = -1
const priorityOf = (urgency: Urgency = 'backlog') => (urgency === 'fresh' ? 0 : BACKLOG_PRIORITY)

const common = { heartbeatSeconds: 10, retryBackoff: true, expireInSeconds: 900, deleteAfterSeconds: 600 }
const queueOptions = (retryDelayMs: number) => {
  const retryDelay = Math.max(1, Math.round(retryDelayMs / 1_000))
  return {
    [PROCESS_EVENT]: { ...common, retryLimit: PROCESS_TRIES - 1, retryDelay, retryDelayMax: 3_600 },
    // Storage was away, or a worker died. What Inboxili refused is repeated by a job of its own, never by this.
    [SEND]: { ...common, retryLimit: 100, retryDelay, retryDelayMax: 300 },
  }
}

/** Installs or updates the job library's own schema, and the queues. Part of migrating; safe to run again. */
export async function installQueues(databaseUrl: string): Promise<void> {
  const boss = new PgBoss({ connectionString: databaseUrl, max: 2, supervise: false, schedule: false, registerInstance: false })
  boss.on('error', () => undefined)
  await boss.start()
  try {
    for (const [name, options] of Object.entries(queueOptions(1_000))) await boss.createQueue(name, options)
  } finally {
    await boss.stop({ graceful: false })
  }
}

/** Makes jobs inside the transactions of others. */
export interface Jobs {
  /**
   * The library's own insert of process-event jobs, to stand as a `with` query after one named `new_jobs` whose columns are `data`,
   * a json object per job, and `source`, that of the event.
   */
  eventJobsInsert: string
  /** Wakes the workers when the transaction commits; to be called from the final select. */
  wake: string
  enqueueSends(tx: Tx, jobs: readonly SendJob[]): Promise<void>
  /** Of events that were here before: replayed ones, and those that the sweep found without a job. New ones go first. */
  enqueueEvents(tx: Tx, events: readonly string[], request?: string): Promise<void>
}

/** Reads the library's insert once; throws when the queues are not installed. */
export async function openJobs(databaseUrl: string): Promise<Jobs> {
  const boss = new PgBoss({
    connectionString: databaseUrl,
    max: 1,
    migrate: false,
    supervise: false,
    schedule: false,
    registerInstance: false,
  })
  boss.on('error', () => undefined)
  await boss.start()
  try {
    const eventInsert = await insertOf(boss, PROCESS_EVENT)
    const sendInsert = await insertOf(boss, SEND)
    const eventsInsert = withJobs(
      eventInsert,
      `select json_agg(json_build_object('data', json_strip_nulls(json_build_object('event', event::text, 'request', $2::text)),
         'groupId', source, 'priority', ${BACKLOG_PRIORITY}) order by number)
       from unnest($1::bigint[]) with ordinality as given (event, number) left join webhook_events on id = event`,
    )
    const wakeFor = (tx: Tx, queue: string) =>
      tx.query({ name: 'wake-workers', text: `select pg_notify('${WAKE_CHANNEL}', $1)`, values: [queue] })
    return {
      eventJobsInsert: withJobs(eventInsert, `select json_agg(json_build_object('data', data, 'groupId', source)) from new_jobs`),
      wake: `pg_notify('${WAKE_CHANNEL}', '${PROCESS_EVENT}')`,
      async enqueueSends(tx, sends) {
        if (sends.length === 0) return
        const jobs = sends.map(({ key, startAfter, urgency, request }) => ({
          data: { key, request },
          priority: priorityOf(urgency),
          ...(startAfter && { startAfter: startAfter.toISOString() }),
        }))
        await tx.query({ name: 'enqueue-sends', text: sendInsert, values: [JSON.stringify(jobs)] })
        await wakeFor(tx, SEND)
      },
      async enqueueEvents(tx, events, request) {
        if (events.length === 0) return
        await tx.query({ name: 'enqueue-events', text: eventsInsert, values: [events, request ?? null] })
        await wakeFor(tx, PROCESS_EVENT)
      },
    }
  } finally {
    await boss.stop({ graceful: false })
  }
}

/** The library's insert with jobs that a query makes, for its one parameter. */
const withJobs = (insert: string, query: string) => insert.replace('$1::text::json', `(${query})`)

/** The statement by which the library inserts jobs, with the jobs as its one parameter. */
async function insertOf(boss: PgBoss, queue: string): Promise<string> {
  let captured = ''
  const executeSql = async (text: string) => {
    captured = text
    return { rows: [] }
  }
  await boss.insert(queue, [{ data: {} }], { db: { executeSql } })
  if (!captured.includes('$1::text::json') || /\$[2-9]/.test(captured)) throw new Error("pg-boss's insert has changed its form")
  return captured
}

/** The events that the jobs are about, as a table with `event`, `state` and `completed_on`. */
export const EVENTS_OF_JOBS = `(select coalesce(part ->> 0, data ->> 'event') as event, state, completed_on
  from pgboss.job left join lateral jsonb_array_elements(data -> 'events') as part on true where name = '${PROCESS_EVENT}')`

// What has a job is a set that is read once: row by row it would take backlog times backlog.

/** Sends that are due and have no unfinished job, oldest first. A trigger's own transaction makes both, so there is no age limit. */
export async function findSendsWithoutJob(db: Db, limit: number): Promise<string[]> {
  const { rows } = await db.query<{ dedupe_key: string }>(
    `select dedupe_key from email_sends
     where (state = 'queued' or (state = 'rejected' and send_after is not null)) and (send_after is null or send_after <= now())
       and dedupe_key not in (
         select data ->> 'key' from pgboss.job where name = '${SEND}' and state < 'completed' and data ->> 'key' is not null)
     order by queued_at limit $1 for no key update skip locked`,
    [limit],
  )
  return rows.map((row) => row.dedupe_key)
}

/** Pending events without an unfinished job, oldest first. */
export async function findEventsWithoutJob(db: Db): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `select id from webhook_events where status = 'pending'
       and id::text not in (select event from ${EVENTS_OF_JOBS} jobs where state < 'completed' and event is not null)
     order by id limit 1000 for no key update skip locked`,
  )
  return rows.map((row) => row.id)
}

export interface Handlers {
  /** What the event asks for is as urgent as its own job. */
  processEvent(event: string, isLastTry: boolean, urgency: Urgency, request: string | undefined): Promise<void>
  /** The request is the ID of the one that the email goes back to, as far as it is known. */
  send(key: string, request: string | undefined): Promise<void>
}

/** What a job is about; a request is the ID of the one that it goes back to. */
interface JobData {
  /** Events that came at once, each with its request. */
  events?: [event: string, request: string | null][]
  /** One that was here before. */
  event?: string
  key?: string
  request?: string | null
}

type Job = JobWithMetadata<JobData>

/** Each place is a promise, of one event or send at a time: those of events mostly wait for the network, where they wait at all. */
const EVENT_PLACES = { places: 64, placesOfGroup: 16 }
const SEND_PLACES = { places: 8, placesOfGroup: 8 }
/** For what no notice came of: a retry whose time has come, a lost connection. */
const POLL_EVERY_MS = 1_000
const KEEP_EVERY_MS = 4_000

interface Part {
  /** Row of webhook_events, or key of a send. */
  about: string
  request: string | undefined
}

function partsOf({ events, event, key, request }: JobData): Part[] {
  const parts = events ?? [[event ?? key ?? '', request ?? null] as const]
  return parts.map(([about, request]) => ({ about, request: request ?? undefined }))
}

export interface Workers {
  /** Takes no new jobs, waits for the running ones at most this long, and gives the rest back. */
  stop(timeoutMs: number): Promise<void>
}

/** Works on jobs until stopped. Jobs of a killed process are taken over within about 20 s, by their missing heartbeat. */
export async function startWorkers(databaseUrl: string, handlers: Handlers, retryDelayMs: number, log: Log): Promise<Workers> {
  const boss = new PgBoss({
    connectionString: databaseUrl,
    application_name: 'oncehook-jobs',
    max: 4,
    migrate: false,
    schedule: false,
    // A job of a killed worker: its heartbeat ages 10 s, two of these passes 4 s, the delay of a first retry 2 s with the default.
    superviseIntervalSeconds: 2,
    monitorIntervalSeconds: 2,
    // Each pass counts all jobs, so the finished ones must not pile up until the daily clean-up that is the default.
    maintenanceIntervalSeconds: 60,
    persistWarnings: false,
  })
  boss.on('error', (error) => log.warn({ error }, 'job queue'))
  await boss.start()
  for (const [name, options] of Object.entries(queueOptions(retryDelayMs))) await boss.updateQueue(name, options)

  let isStopping = false
  const onError = (error: unknown) => log.warn({ error }, 'job queue')
  const divide = async ({ priority, groupId }: Job, parts: readonly Part[]): Promise<void> => {
    const jobs = parts.map(({ about, request }) => ({
      data: { event: about, request },
      priority,
      ...(groupId && { group: { id: groupId } }),
    }))
    await boss.insert(PROCESS_EVENT, jobs)
  }
  const open = (queue: string, places: typeof EVENT_PLACES, handle: (part: Part, job: Job) => Promise<void>) =>
    openLane<Job>({
      ...places,
      fetch: (batchSize, ignoreGroups) =>
        boss.fetch<JobData>(queue, {
          batchSize,
          includeMetadata: true,
          ...(ignoreGroups.length > 0 && { ignoreGroups: [...ignoreGroups] }),
        }),
      async run(job) {
        const parts = partsOf(job.data)
        // What is left of one that several share then fails, ends and waits for itself.
        if (parts.length > 1 && job.retryCount > 0) return divide(job, parts)
        const errors: unknown[] = []
        for (const [index, part] of parts.entries()) {
          if (isStopping && index > 0) throw new Error('the worker stops: the rest is for others')
          try {
            await reached('job.fetched')
            await handle(part, job)
            await reached('job.before_complete')
          } catch (error) {
            log.warn(
              { error, queue, job: job.id, retries: job.retryCount, ...(part.request && { request: part.request }) },
              'job failed',
            )
            errors.push(error)
          }
        }
        if (errors.length > 0) throw errors[0]
      },
      // As jobs, not as IDs: one that another worker has by now is left alone.
      async settle(completed, failed) {
        if (completed.length > 0) await boss.complete(queue, [...completed])
        if (failed.length > 0) await boss.fail(queue, [...failed])
      },
      keep: async (jobs) => void (await boss.touch(queue, [...jobs])),
      onError,
      pollEveryMs: POLL_EVERY_MS,
      keepEveryMs: KEEP_EVERY_MS,
    })
  const lanes: Record<string, Lane> = {
    [PROCESS_EVENT]: open(PROCESS_EVENT, EVENT_PLACES, ({ about, request }, { retryCount, retryLimit, priority }) =>
      handlers.processEvent(about, retryCount >= retryLimit, priority === BACKLOG_PRIORITY ? 'backlog' : 'fresh', request),
    ),
    [SEND]: open(SEND, SEND_PLACES, ({ about, request }) => handlers.send(about, request)),
  }
  const listener = listen(databaseUrl, (queue) => lanes[queue]?.look())
  return {
    async stop(timeoutMs) {
      isStopping = true
      listener.close()
      await Promise.all(Object.values(lanes).map((lane) => lane.stop(timeoutMs)))
      await boss.stop({ graceful: false })
    },
  }
}

/** Listens on a connection of its own and comes back after losing it; polling covers the time between. */
function listen(databaseUrl: string, onNotice: (payload: string) => void): { close(): void } {
  let closed = false
  let client: pg.Client | undefined
  let timer: NodeJS.Timeout | undefined
  const connect = () => {
    if (closed) return
    const next = new pg.Client({ connectionString: databaseUrl, application_name: 'oncehook-listen', keepAlive: true })
    client = next
    let lost = false
    const retry = () => {
      if (lost) return
      lost = true
      next.end().catch(() => undefined)
      if (!closed) timer = setTimeout(connect, 1_000)
    }
    next.on('error', retry)
    next.on('end', retry)
    next.on('notification', ({ payload }) => onNotice(payload ?? ''))
    next
      .connect()
      .then(() => next.query(`listen ${WAKE_CHANNEL}`))
      .catch(retry)
  }
  connect()
  return {
    close() {
      closed = true
      clearTimeout(timer)
      client?.end().catch(() => undefined)
    },
  }
}
