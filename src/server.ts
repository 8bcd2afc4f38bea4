import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Inboxili } from '#inboxili'
import { createApp } from './app.ts'
import { openPool } from './db.ts'
import { openSandboxPanel } from './development.ts'
import { createFingerprints, readFingerprintKey } from './events/fingerprint.ts'
import { createRecorder } from './events/record.ts'
import { createRefusals } from './events/refusals.ts'
import { createRemoteKeys } from './events/remote-keys.ts'
import { type ReplayDeps, replayEvent } from './events/replay.ts'
import { continueRuns } from './events/runs.ts'
import { emptyOldBodies, forgetOldMinutes, sweepEvents } from './events/sweeps.ts'
import { createTallies } from './events/tallies.ts'
import { readTestKeys } from './events/test-keys.ts'
import { batchEvents } from './follow-ups/event-batches.ts'
import { forecastReplay } from './follow-ups/forecast.ts'
import { findEventsWithoutJob, findSendsWithoutJob, openJobs, startWorkers } from './follow-ups/queue.ts'
import { isWanted, processEvent } from './follow-ups/rules.ts'
import { createLog, type Log } from './log.ts'
import { openMetricsPort } from './metrics-port.ts'
import { createChanges } from './ops/changes.ts'
import type { Siblings } from './ops/joint-metrics.ts'
import { createMetrics } from './ops/metrics.ts'
import { createOverview } from './ops/overview.ts'
import { forgetOldSubmissions } from './ops/page/submissions.ts'
import { startHeartbeat } from './ops/processes.ts'
import { forgetOldSignIns } from './ops/sessions.ts'
import { createWorkerMetrics } from './ops/worker-metrics.ts'
import { explainRefusal } from './providers/explain.ts'
import { continuePlans } from './sends/bulk.ts'
import { noticeRestore } from './sends/hold.ts'
import type { Message } from './sends/message.ts'
import { outcomeOf } from './sends/outcome.ts'
import { holdRateSlots, takeRateSlot } from './sends/rate-slots.ts'
import { type SendDeps, sendOnce } from './sends/send-once.ts'
import { sweepSends } from './sends/sweeps.ts'
import { enqueueFor } from './sends/trigger.ts'
import { ConfigError, type Settings } from './settings.ts'
import { openConfig, requireDatabase, storageProblem, untilStorageIsReady } from './start-up.ts'
import { openTracing, type Tracing } from './tracing.ts'
import { VERSION } from './version.ts'

export interface Running {
  log: Log
  /** Ends what runs within the grace time, and everything that was opened. */
  stop(): Promise<void>
}

/** Requests wait while one is explained; an ordinary one takes a tenth of it. Its last step comes on top. */
const MOST_MS_TO_EXPLAIN = 40
/** A dry run counts what it hasn't come to by then as not looked at. */
const MOST_MS_TO_FORECAST = 10_000
/** One batch of a replay so often, so that the events that arrive meanwhile get in between. */
const RUN_EVERY_MS = 1_000

/** Answers HTTP: webhooks and the API. Acknowledging needs the database only, no worker and no email API. */
export async function startServe(settings: Settings, siblings?: Siblings): Promise<Running & { url: string }> {
  const log = createLog(settings.logLevel, 'serve')
  const config = await openConfig(settings, log)
  const checked = requireDatabase(settings)
  const ingest = openPool({ url: checked.databaseUrl, name: 'oncehook-ingest', max: 6, statementTimeout: 4_000 })
  const ops = openPool({ url: checked.databaseUrl, name: 'oncehook-ops', max: 5 })
  // What people look at has few connections and little time, so that it can't slow the acknowledging.
  const reads = openPool({
    url: checked.databaseUrl,
    name: 'oncehook-reads',
    max: 3,
    statementTimeout: 2_000,
    connectionTimeout: 2_500,
  })
  try {
    await untilStorageIsReady(ops, checked, log)
    const jobs = await openJobs(checked.databaseUrl)
    const metrics = createMetrics({
      pools: { ingest, ops, reads },
      waiting: () => recorder.waiting(),
      sendsPerMinute: settings.sendsPerMinute,
      isWholeProcess: true,
      siblings,
    })
    const recorder = createRecorder(ingest, jobs, metrics.batched)
    const fingerprints = createFingerprints(await readFingerprintKey(ops))
    const tallies = createTallies(ops, log)
    const tracing = settings.tracing && openTracing('serve', settings, log)
    const testKeys = settings.testKeysPath === undefined ? undefined : readTestKeys(settings.testKeysPath)
    const keys = createRemoteKeys({ log, testKeys })
    const refusals = createRefusals({
      explain(source, request, reason) {
        const nowSeconds = Math.floor(Date.now() / 1000)
        const until = performance.now() + MOST_MS_TO_EXPLAIN
        const isOver = () => performance.now() > until
        const sources = [...config.current().sources.values()]
        return explainRefusal({ source, request, reason, nowSeconds, sources, ring: keys.ring, isOver }).cause
      },
      count(source, cause) {
        tallies.answered(source, 'refused', cause)
        metrics.refused(source, cause)
      },
    })
    const wanted = (source: Parameters<typeof isWanted>[1], type: string | null) => isWanted(config.current(), source, type)
    const stopping = new AbortController()
    const findOverview = createOverview(reads, () => ({
      config: config.current(),
      sendsPerMinute: settings.sendsPerMinute,
    }))
    let url = ''

    const replayDeps = { pool: ops, recorder, config: config.current, isWanted: wanted, enqueueEvents: jobs.enqueueEvents }
    const app = createApp({
      log,
      trustProxy: settings.trustProxy,
      events: {
        recorder,
        isWanted: wanted,
        fingerprints,
        tallies,
        refusals,
        keys,
        now: Date.now,
        config: config.current,
        log,
        acknowledged(source, result, seconds, request) {
          metrics.acknowledged(source, result, seconds)
          tracing?.received(request, seconds, { source, result })
        },
        underWay: metrics.underWay,
      },
      ops: {
        pool: ops,
        reads,
        log,
        replay: (id, actor, via, request) =>
          replayEvent(
            { ...replayDeps, enqueueEvents: (tx, events) => jobs.enqueueEvents(tx, events, request) },
            id,
            actor,
            via,
            request,
          ),
        runs: {
          ...replayDeps,
          forecast: (events) => forecastReplay(ops, config.current(), events, MOST_MS_TO_FORECAST),
        },
        enqueueSends: jobs.enqueueSends,
        config: config.current,
        fingerprints,
        version: VERSION,
        sandbox: await openSandboxPanel(settings, config.current, () => url),
        publicUrl: settings.publicUrl,
        sendsPerMinute: settings.sendsPerMinute,
        findOverview,
        changes: createChanges({ reads, findOverview, log }),
        // Whoever waits for a send gets an answer before the connection ends.
        stopping: stopping.signal,
      },
      notReady: async () => (stopping.signal.aborted ? 'stopping' : storageProblem(ops)),
      metrics: async () => ({ text: await metrics.text(reads), contentType: metrics.contentType }),
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
    url = `http://${settings.host.includes(':') ? `[${settings.host}]` : settings.host}:${port}`
    log.info({ url, sources: [...config.current().sources.keys()] }, 'listening')
    const heartbeat = startHeartbeat(ops, { kind: 'serve', version: VERSION }, log)

    return {
      log,
      url,
      async stop() {
        stopping.abort()
        await closeServer(server, () => running === 0, settings.shutdownGraceMs * 0.8)
        await Promise.all([tallies.stop(), heartbeat.stop(), tracing?.stop()])
        await Promise.all([ingest.end(), ops.end(), reads.end()])
        config.close()
        log.info('stopped')
      },
    }
  } catch (error) {
    config.close()
    await Promise.all([ingest.end(), ops.end(), reads.end()])
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
  if (settings.shutdownGraceMs <= settings.callTimeoutMs) {
    log.warn(
      'SHUTDOWN_GRACE_MS is not longer than ONCEHOOK_CALL_TIMEOUT_MS: a stop may cut off calls, whose outcome then is unknown',
    )
  }
  const apiKey = () => config.apiKey() ?? firstKey
  const pool = openPool({
    url: checked.databaseUrl,
    name: 'oncehook-worker',
    max: 10,
    statementTimeout: 30_000,
    connectionTimeout: 10_000,
  })
  const stopping = new AbortController()
  const metrics = createWorkerMetrics({ pools: { worker: pool }, isWholeProcess: true })
  let port: Awaited<ReturnType<typeof openMetricsPort>> | undefined
  try {
    await untilStorageIsReady(pool, checked, log)
    if (settings.workerMetricsPort !== undefined) {
      port = await openMetricsPort({ port: settings.workerMetricsPort, host: settings.host }, metrics)
      log.info({ port: port.port }, 'metrics are served')
    }
    const jobs = await openJobs(checked.databaseUrl)
    const isExclusive = () => config.current().account === 'exclusive'
    const sendDeps: SendDeps = {
      pool,
      call: async (message: Message) => {
        // No retries of its own: each call, the repeat after a 429 too, needs its own rate slot and attempt row.
        const inboxili = new Inboxili(apiKey(), {
          ...(settings.inboxiliBaseUrl && { baseUrl: settings.inboxiliBaseUrl }),
          timeout: settings.callTimeoutMs,
          maxRetries: 0,
        })
        const started = performance.now()
        const end = await inboxili.emails.send(message as Parameters<typeof inboxili.emails.send>[0]).then(
          (answer) => ({ answer }),
          (thrown: unknown) => ({ thrown }),
        )
        const outcome = outcomeOf(end, new Date())
        metrics.called(outcome.kind, (performance.now() - started) / 1000)
        return outcome
      },
      takeSlot: () => takeRateSlot(pool, apiKey(), settings.sendsPerMinute),
      holdSlots: (seconds) => holdRateSlots(pool, apiKey(), seconds),
      enqueue: jobs.enqueueSends,
      probeEveryMs: settings.probeEveryMs,
      isExclusive,
      log,
      stopping: stopping.signal,
    }
    // What follows from a request is logged with its ID, and so is what follows from that.
    const carrying = (request: string | undefined) => ({
      enqueue: enqueueFor(jobs.enqueueSends, request),
      log: request === undefined ? log : log.child({ request }),
    })
    const tracing = settings.tracing && openTracing('worker', settings, log)
    const traced: Tracing['during'] = (span, work) => (tracing ? tracing.during(span, work) : work())
    const callFor =
      (request: string | undefined): SendDeps['call'] =>
      (message) =>
        traced({ name: 'call email API', request, ofResult: ({ kind: outcome }) => ({ outcome }) }, () => sendDeps.call(message))
    const batches = batchEvents(pool)
    const workers = await startWorkers(
      checked.databaseUrl,
      {
        processEvent: (event, isLastTry, urgency, request) =>
          traced({ name: 'process event', request, attributes: { event } }, () =>
            processEvent({ pool, config: config.current, batches, ...carrying(request) }, event, isLastTry, urgency),
          ),
        send: async (key, request) =>
          void (await traced({ name: 'send', request, ofResult: (result) => ({ result }) }, () =>
            sendOnce({ ...sendDeps, ...carrying(request), call: callFor(request) }, key),
          )),
      },
      settings.retryDelayMs,
      log,
    )
    const replayDeps: ReplayDeps = {
      pool,
      recorder: createRecorder(pool, jobs),
      config: config.current,
      isWanted: (source, type) => isWanted(config.current(), source, type),
      enqueueEvents: jobs.enqueueEvents,
    }
    const heartbeat = startHeartbeat(pool, { kind: 'worker', version: VERSION }, log)
    // Each by itself, so that one that fails doesn't keep the others from running.
    const sweep = (name: string, task: () => Promise<object>, everyMs = settings.sweepEveryMs) => repeat(everyMs, name, task, log)
    const sweeps = [
      sweep(
        'sends',
        async () => {
          if (await noticeRestore(pool)) log.error({}, 'the database was restored: sending is held until a person has looked')
          const found = await sweepSends(
            pool,
            jobs.enqueueSends,
            { ...settings, isExclusive: isExclusive() },
            findSendsWithoutJob,
          )
          if (found.staleCalls > 0)
            log.warn({ sends: found.staleCalls }, 'sends need a decision: their worker stopped during the call')
          metrics.left(found)
          heartbeat.swept()
          return found
        },
        // It also makes the job of the next probe.
        Math.min(settings.sweepEveryMs, settings.probeEveryMs),
      ),
      sweep('events', async () => ({ orphanEvents: await sweepEvents(pool, findEventsWithoutJob, jobs.enqueueEvents) })),
      sweep('runs', async () => ({ batches: await continueRuns(replayDeps) }), Math.min(settings.sweepEveryMs, RUN_EVERY_MS)),
      sweep('plans', async () => ({
        plans: await continuePlans({ pool, enqueueSends: jobs.enqueueSends, isExclusive, log }),
      })),
      // It looks through all old events, which is no work for every half minute.
      sweep(
        'bodies',
        async () => ({ emptied: await emptyOldBodies(pool, settings.keepBodiesDays, stopping.signal) }),
        settings.sweepEveryMs * 120,
      ),
      sweep('sign-ins', async () => ({ signIns: await forgetOldSignIns(pool) }), settings.sweepEveryMs * 10),
      sweep('forms', async () => ({ forgotten: await forgetOldSubmissions(pool) }), settings.sweepEveryMs * 120),
      sweep(
        'minutes',
        async () => ({ forgotten: await forgetOldMinutes(pool, 35, stopping.signal) }),
        settings.sweepEveryMs * 120,
      ),
    ]
    log.info('working')

    return {
      log,
      async stop() {
        stopping.abort()
        await Promise.all([workers.stop(settings.shutdownGraceMs - 1_000), ...sweeps.map((it) => it.stop())])
        await Promise.all([heartbeat.stop(), tracing?.stop()])
        port?.close()
        await pool.end()
        config.close()
        log.info('stopped')
      },
    }
  } catch (error) {
    config.close()
    port?.close()
    await pool.end()
    throw error
  }
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
