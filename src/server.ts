import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type pg from 'pg'
import { Inboxili } from '#inboxili'
import { createApp } from './app.ts'
import { type Config, ConfigError, loadConfig, loadEnvFile, productionProblems, type Settings } from './config.ts'
import { isStorageAway, openPool } from './db.ts'
import { createRecorder } from './events/record.ts'
import { replayEvent } from './events/replay.ts'
import { emptyOldBodies, sweepEvents } from './events/sweeps.ts'
import { findEventsWithoutJob, findSendsWithoutJob, openJobs, startWorkers } from './follow-ups/queue.ts'
import { isWanted, processEvent } from './follow-ups/rules.ts'
import { createLog, type Log } from './log.ts'
import { isMigrated } from './migrate.ts'
import { createMetrics } from './ops/metrics.ts'
import type { Message } from './sends/message.ts'
import { outcomeOf } from './sends/outcome.ts'
import { holdRateSlots, takeRateSlot } from './sends/rate-slots.ts'
import { type SendDeps, sendOnce } from './sends/send-once.ts'
import { sweepSends } from './sends/sweeps.ts'

export interface Running {
  log: Log
  /** Ends what runs within the grace time, and everything that was opened. */
  stop(): Promise<void>
}

/** Settings with what neither process can do without. */
type Checked = Settings & { databaseUrl: string }

/** Answers HTTP: webhooks and the API. Acknowledging needs the database only, no worker and no email API. */
export async function startServe(settings: Settings): Promise<Running & { url: string }> {
  const checked = requireDatabase(settings)
  const log = createLog(settings.logLevel, 'serve')
  const config = await openConfig(settings, log)
  const ingest = openPool({ url: checked.databaseUrl, name: 'oncehook-ingest', max: 6, statementTimeout: 4_000 })
  const ops = openPool({ url: checked.databaseUrl, name: 'oncehook-ops', max: 5 })
  try {
    await untilStorageIsReady(ops, checked, log)
    const jobs = await openJobs(checked.databaseUrl)
    const metrics = createMetrics()
    const recorder = createRecorder(ingest, jobs)
    const wanted = (source: Parameters<typeof isWanted>[1], type: string | null) => isWanted(config.current(), source, type)
    let isStopping = false

    const replayDeps = { pool: ops, recorder, config: config.current, isWanted: wanted, enqueueEvents: jobs.enqueueEvents }
    const app = createApp({
      log,
      trustProxy: settings.trustProxy,
      events: { recorder, isWanted: wanted, now: Date.now, config: config.current, log, acknowledged: metrics.acknowledged },
      ops: {
        pool: ops,
        log,
        replay: (id, actor, via) => replayEvent(replayDeps, id, actor, via),
        enqueueSends: jobs.enqueueSends,
      },
      notReady: async () => (isStopping ? 'stopping' : storageProblem(ops)),
      metrics: async () => ({ text: await metrics.text(ops), contentType: metrics.contentType }),
    })
    // The listener of Node answers a head after 5 s and a request after 15 s with 408; looked at each second.
    const server = createServer(
      { headersTimeout: 5_000, requestTimeout: 15_000, connectionsCheckingInterval: 1_000, keepAliveTimeout: 65_000 },
      app,
    )
    await listen(server, settings.port, settings.host)
    const { port } = server.address() as AddressInfo
    const url = `http://${settings.host.includes(':') ? `[${settings.host}]` : settings.host}:${port}`
    log.info({ url, sources: [...config.current().sources.keys()] }, 'listening')

    return {
      log,
      url,
      async stop() {
        isStopping = true
        config.close()
        const closed = new Promise<void>((done) => server.close(() => done()))
        server.closeIdleConnections()
        const forced = setTimeout(() => server.closeAllConnections(), settings.shutdownGraceMs * 0.8)
        await closed
        clearTimeout(forced)
        await Promise.all([ingest.end(), ops.end()])
        log.info('stopped')
      },
    }
  } catch (error) {
    config.close()
    await Promise.all([ingest.end(), ops.end()])
    throw error
  }
}

/** Works on events and sends, and sweeps up after workers that died. */
export async function startWork(settings: Settings): Promise<Running> {
  const checked = requireDatabase(settings)
  const apiKey = settings.inboxiliApiKey
  if (!apiKey) throw new ConfigError(['INBOXILI_API_KEY is not set, so nothing could be sent'])
  const log = createLog(settings.logLevel, 'worker')
  const config = await openConfig(settings, log)
  const pool = openPool({ url: checked.databaseUrl, name: 'oncehook-worker', max: 10, statementTimeout: 30_000 })
  const stopping = new AbortController()
  try {
    await untilStorageIsReady(pool, checked, log)
    const jobs = await openJobs(checked.databaseUrl)
    // No retries of its own: each call, the repeat after a 429 too, needs its own rate slot and attempt row.
    const inboxili = new Inboxili(apiKey, {
      ...(settings.inboxiliBaseUrl && { baseUrl: settings.inboxiliBaseUrl }),
      timeout: settings.callTimeoutMs,
      maxRetries: 0,
    })
    const sendDeps: SendDeps = {
      pool,
      call: async (message: Message) => {
        const end = await inboxili.emails.send(message as Parameters<typeof inboxili.emails.send>[0]).then(
          (answer) => ({ answer }),
          (thrown: unknown) => ({ thrown }),
        )
        return outcomeOf(end, new Date())
      },
      takeSlot: () => takeRateSlot(pool, apiKey, settings.sendsPerMinute),
      holdSlots: (seconds) => holdRateSlots(pool, apiKey, seconds),
      enqueue: jobs.enqueueSends,
      log,
      stopping: stopping.signal,
    }
    const workers = await startWorkers(
      checked.databaseUrl,
      {
        processEvent: (event, isLastTry) =>
          processEvent({ pool, config: config.current, enqueue: jobs.enqueueSends, log }, event, isLastTry),
        send: async (key) => void (await sendOnce(sendDeps, key)),
      },
      settings.retryDelayMs,
      log,
    )
    const sweeps = repeat(
      settings.sweepEveryMs,
      async () => {
        const sends = await sweepSends(pool, jobs.enqueueSends, settings.staleAfterMs, findSendsWithoutJob)
        const orphanEvents = await sweepEvents(pool, findEventsWithoutJob, jobs.enqueueEvents)
        const emptied = await emptyOldBodies(pool, settings.keepBodiesDays)
        const found = { ...sends, orphanEvents, emptied }
        if (Object.values(found).some((count) => count > 0)) log.info(found, 'swept')
        if (sends.staleCalls > 0)
          log.warn({ sends: sends.staleCalls }, 'sends need a decision: their worker stopped during the call')
      },
      log,
    )
    log.info('working')

    return {
      log,
      async stop() {
        stopping.abort()
        config.close()
        await sweeps.stop()
        await workers.stop(Math.max(settings.shutdownGraceMs - 1_000, 100))
        await pool.end()
        log.info('stopped')
      },
    }
  } catch (error) {
    config.close()
    await pool.end()
    throw error
  }
}

function requireDatabase(settings: Settings): Checked {
  const { databaseUrl } = settings
  if (!databaseUrl) throw new ConfigError(['DATABASE_URL is not set (npm start brings its own database)'])
  return { ...settings, databaseUrl }
}

/** The configuration, read again on SIGHUP; one that can't be used leaves the one before in force. */
async function openConfig(settings: Settings, log: Log): Promise<{ current(): Config; close(): void }> {
  const load = async () => {
    const config = await loadConfig(settings.configPath)
    const problems = settings.production ? productionProblems(settings, config) : []
    if (problems.length > 0) throw new ConfigError(problems)
    return config
  }
  let current = await load()
  const reload = () => {
    loadEnvFile()
    load().then(
      (next) => {
        current = next
        log.info({ sources: [...next.sources.keys()] }, 'configuration read again')
      },
      (error: unknown) => log.error({ error }, 'the new configuration is not used'),
    )
  }
  process.on('SIGHUP', reload)
  return { current: () => current, close: () => void process.off('SIGHUP', reload) }
}

/** Waits for a database that is still starting, then refuses one that can't keep what is acknowledged. */
async function untilStorageIsReady(pool: pg.Pool, settings: Settings, log: Log): Promise<void> {
  for (let waited = 0; ; waited += 1) {
    try {
      if (!(await isMigrated(pool))) throw new ConfigError(['the database lacks migrations: run oncehook migrate'])
      const problems = await unsafeSettings(pool)
      if (problems.length > 0 && settings.production) throw new ConfigError(problems)
      return
    } catch (error) {
      if (!isStorageAway(error) || waited >= 60) throw error
      if (waited % 10 === 0) log.warn({ error }, 'waiting for the database')
      await new Promise((done) => setTimeout(done, 1_000))
    }
  }
}

/** Why this database could lose what was acknowledged (I22); empty when it can't. */
async function unsafeSettings(pool: pg.Pool): Promise<string[]> {
  const { rows } = await pool.query<{ problem: string }>(
    `select name || ' is ' || setting || ' in the database, so acknowledged events could be lost' as problem from pg_settings
     where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off'
     union all select 'the database is a read-only replica' where pg_is_in_recovery()`,
  )
  return rows.map((row) => row.problem)
}

async function storageProblem(pool: pg.Pool): Promise<string | undefined> {
  return isMigrated(pool).then(
    (done) => (done ? undefined : 'the database lacks migrations'),
    () => 'the database does not answer',
  )
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((done, fail) => {
    server.once('error', fail)
    server.listen(port, host, () => {
      server.off('error', fail)
      done()
    })
  })
}

/** Runs a task now and again, never two at once; what it throws is logged, and the next run comes all the same. */
function repeat(everyMs: number, task: () => Promise<void>, log: Log): { stop(): Promise<void> } {
  let stopped = false
  let timer: NodeJS.Timeout | undefined
  let running = Promise.resolve()
  const run = () => {
    running = task()
      .catch((error: unknown) => log.warn({ error }, 'sweep failed'))
      .then(() => {
        if (!stopped) timer = setTimeout(run, everyMs)
      })
  }
  run()
  return {
    async stop() {
      stopped = true
      clearTimeout(timer)
      await running
    },
  }
}
