import { Inboxili } from '#inboxili'
import { openPool } from './db.ts'
import { createRecorder } from './events/record.ts'
import { batchEvents } from './follow-ups/event-batches.ts'
import { openJobs, startWorkers } from './follow-ups/queue.ts'
import { isWanted, processEvent } from './follow-ups/rules.ts'
import { createLog, type Log } from './log.ts'
import { openMetricsPort } from './metrics-port.ts'
import { startHeartbeat } from './ops/processes.ts'
import { createWorkerMetrics } from './ops/worker-metrics.ts'
import type { Message } from './sends/message.ts'
import { outcomeOf } from './sends/outcome.ts'
import { holdRateSlots, takeRateSlot } from './sends/rate-slots.ts'
import { type SendDeps, sendOnce } from './sends/send-once.ts'
import { enqueueFor } from './sends/trigger.ts'
import { ConfigError, type Settings } from './settings.ts'
import { openConfig, type Running, requireDatabase, untilStorageIsReady } from './start-up.ts'
import { sweepsOf } from './sweeps.ts'
import { openTracing, type Tracing } from './tracing.ts'
import { VERSION } from './version.ts'

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
    const heartbeat = startHeartbeat(pool, { kind: 'worker', version: VERSION }, log)
    const sweeps = sweepsOf({
      pool,
      jobs,
      replay: {
        recorder: createRecorder(pool, jobs),
        config: config.current,
        isWanted: (source, type) => isWanted(config.current(), source, type),
      },
      settings,
      isExclusive,
      log,
      stopping: stopping.signal,
      sweptSends(found) {
        metrics.left(found)
        heartbeat.swept()
      },
      // Each by itself, so that one that fails doesn't keep the others from running.
    }).map(({ name, everyMs, run }) => repeat(everyMs, name, run, log))
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
