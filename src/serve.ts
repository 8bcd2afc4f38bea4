import { createApp } from './app.ts'
import { openPool } from './db.ts'
import { openSandboxPanel } from './development.ts'
import { createFingerprints, readFingerprintKey } from './events/fingerprint.ts'
import { createRecorder } from './events/record.ts'
import { createRefusals } from './events/refusals.ts'
import { createRemoteKeys } from './events/remote-keys.ts'
import { replayEvent } from './events/replay.ts'
import { oneForecastAtATime } from './events/runs.ts'
import { createTallies } from './events/tallies.ts'
import { readTestKeys } from './events/test-keys.ts'
import { forecastReplay } from './follow-ups/forecast.ts'
import { openJobs } from './follow-ups/queue.ts'
import { isWanted } from './follow-ups/rules.ts'
import { openHttpServer } from './http-server.ts'
import { createLog } from './log.ts'
import { createChanges } from './ops/changes.ts'
import type { Siblings } from './ops/joint-metrics.ts'
import { createMetrics } from './ops/metrics.ts'
import { createOverview } from './ops/overview.ts'
import { startHeartbeat } from './ops/processes.ts'
import { explainRefusal } from './providers/explain.ts'
import type { Settings } from './settings.ts'
import { openConfig, type Running, requireDatabase, storageProblem, untilStorageIsReady } from './start-up.ts'
import { openTracing } from './tracing.ts'
import { VERSION } from './version.ts'

/** Requests wait while one is explained; an ordinary one takes a tenth of it. Its last step comes on top. */
const MOST_MS_TO_EXPLAIN = 40
/** A dry run counts what it hasn't come to by then as not looked at. */
const MOST_MS_TO_FORECAST = 10_000

/** Answers HTTP: webhooks and the API. Acknowledging needs the database only, no worker and no email API. */
export async function startServe(settings: Settings, siblings?: Siblings): Promise<Running & { url: string }> {
  const log = createLog(settings.logLevel, 'serve', { gathers: true })
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
    isFrugal: true,
  })
  try {
    await untilStorageIsReady(ops, checked, log)
    const jobs = await openJobs(checked.databaseUrl)
    const metrics = createMetrics({
      pools: { ingest, ops, reads },
      waiting: () => recorder.waiting(),
      sendsPerMinute: settings.sendsPerMinute,
      sources: () => config.current().sources.keys(),
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
          forecast: oneForecastAtATime((events) => forecastReplay(ops, config.current(), events, MOST_MS_TO_FORECAST)),
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
    const onError = (error: Error) => log.error({ error }, 'a connection was not accepted')
    const server = await openHttpServer(app, { port: settings.port, host: settings.host, onError })
    url = `http://${settings.host.includes(':') ? `[${settings.host}]` : settings.host}:${server.port}`
    log.info({ url, sources: [...config.current().sources.keys()] }, 'listening')
    const heartbeat = startHeartbeat(ops, { kind: 'serve', version: VERSION }, log)

    return {
      log,
      url,
      async stop() {
        stopping.abort()
        await server.close(settings.shutdownGraceMs * 0.8)
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
