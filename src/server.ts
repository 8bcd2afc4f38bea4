import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type pg from 'pg'
import { Inboxili } from '#inboxili'
import { createApp } from './app.ts'
import { ConfigError, loadConfig, loadEnvFile, productionProblems, readSettings, type Settings } from './config.ts'
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
  const log = createLog(settings.logLevel, 'serve')
  const config = await openConfig(settings, log)
  const checked = requireDatabase(settings)
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
    let running = 0
    server.on('request', (_req, res) => {
      running += 1
      res.once('close', () => {
        running -= 1
      })
    })
    await listen(server, settings.port, settings.host)
    server.on('error', (error) => log.error({ error }, 'a connection was not accepted'))
    const { port } = server.address() as AddressInfo
    const url = `http://${settings.host.includes(':') ? `[${settings.host}]` : settings.host}:${port}`
    log.info({ url, sources: [...config.current().sources.keys()] }, 'listening')

    return {
      log,
      url,
      async stop() {
        isStopping = true
        await closeServer(server, () => running === 0, settings.shutdownGraceMs * 0.8)
        await Promise.all([ingest.end(), ops.end()])
        config.close()
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
  const log = createLog(settings.logLevel, 'worker')
  const config = await openConfig(settings, log)
  const checked = requireDatabase(settings)
  const firstKey = settings.inboxiliApiKey
  if (!firstKey) throw new ConfigError(['INBOXILI_API_KEY is not set, so nothing could be sent'])
  const apiKey = () => config.apiKey() ?? firstKey
  const pool = openPool({
    url: checked.databaseUrl,
    name: 'oncehook-worker',
    max: 10,
    statementTimeout: 30_000,
    connectionTimeout: 10_000,
  })
  const stopping = new AbortController()
  try {
    await untilStorageIsReady(pool, checked, log)
    const jobs = await openJobs(checked.databaseUrl)
    const sendDeps: SendDeps = {
      pool,
      call: async (message: Message) => {
        // No retries of its own: each call, the repeat after a 429 too, needs its own rate slot and attempt row.
        const inboxili = new Inboxili(apiKey(), {
          ...(settings.inboxiliBaseUrl && { baseUrl: settings.inboxiliBaseUrl }),
          timeout: settings.callTimeoutMs,
          maxRetries: 0,
        })
        const end = await inboxili.emails.send(message as Parameters<typeof inboxili.emails.send>[0]).then(
          (answer) => ({ answer }),
          (thrown: unknown) => ({ thrown }),
        )
        return outcomeOf(end, new Date())
      },
      takeSlot: () => takeRateSlot(pool, apiKey(), settings.sendsPerMinute),
      holdSlots: (seconds) => holdRateSlots(pool, apiKey(), seconds),
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
    // Each by itself, so that one that fails doesn't keep the others from running.
    const sweep = (name: string, task: () => Promise<object>) => repeat(settings.sweepEveryMs, name, task, log)
    const sweeps = [
      sweep('sends', async () => {
        const found = await sweepSends(pool, jobs.enqueueSends, settings.staleAfterMs, findSendsWithoutJob)
        if (found.staleCalls > 0)
          log.warn({ sends: found.staleCalls }, 'sends need a decision: their worker stopped during the call')
        return found
      }),
      sweep('events', async () => ({ orphanEvents: await sweepEvents(pool, findEventsWithoutJob, jobs.enqueueEvents) })),
      sweep('bodies', async () => ({ emptied: await emptyOldBodies(pool, settings.keepBodiesDays) })),
    ]
    log.info('working')

    return {
      log,
      async stop() {
        stopping.abort()
        await Promise.all([workers.stop(settings.shutdownGraceMs - 1_000), ...sweeps.map((it) => it.stop())])
        await pool.end()
        config.close()
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
async function openConfig(settings: Settings, log: Log) {
  const load = async (from: Settings) => {
    const config = await loadConfig(from.configPath)
    const problems = from.production ? productionProblems(from, config) : []
    if (problems.length > 0) throw new ConfigError(problems)
    return { config, apiKey: from.inboxiliApiKey }
  }
  let current = await load(settings)
  let reloaded = Promise.resolve()
  const reload = () => {
    // One after the other, so that of two the last one decides.
    reloaded = reloaded
      .then(async () => {
        loadEnvFile()
        current = await load(readSettings())
        log.info({ sources: [...current.config.sources.keys()] }, 'configuration read again')
      })
      .catch((error: unknown) => log.error({ error }, 'the new configuration is not used'))
  }
  process.on('SIGHUP', reload)
  return {
    current: () => current.config,
    apiKey: () => current.apiKey,
    /** Last of all: without this listener SIGHUP ends the process. */
    close: () => void process.off('SIGHUP', reload),
  }
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

/** Takes no more connections, lets the running requests end, and closes what has none. */
function closeServer(server: Server, isIdle: () => boolean, forceAfterMs: number): Promise<void> {
  return new Promise((done) => {
    // Node would wait for connections that were busy and are now kept alive, and for those that never sent anything.
    const idle = setInterval(() => (isIdle() ? server.closeAllConnections() : server.closeIdleConnections()), 50)
    const forced = setTimeout(() => server.closeAllConnections(), forceAfterMs)
    server.close(() => {
      clearInterval(idle)
      clearTimeout(forced)
      done()
    })
  })
}

/** Runs a sweep now and again, never two at once; what it throws is logged, and the next run comes all the same. */
function repeat(everyMs: number, sweep: string, task: () => Promise<object>, log: Log): { stop(): Promise<void> } {
  let stopped = false
  let timer: NodeJS.Timeout | undefined
  let running = Promise.resolve()
  const run = () => {
    running = task()
      .then((found) => {
        if (Object.values(found).some((count) => count > 0)) log.info({ sweep, ...found }, 'swept')
      })
      .catch((error: unknown) => log.warn({ error, sweep }, 'sweep failed'))
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
