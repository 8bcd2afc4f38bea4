import cluster from 'node:cluster'
import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import closeWithGrace from 'close-with-grace'
import { armFaults } from '../fault-points.ts'
import { installQueues } from '../follow-ups/queue.ts'
import { migrate } from '../migrate.ts'
import { startServe } from '../serve.ts'
import { ConfigError, type Settings } from '../settings.ts'
import type { Running } from '../start-up.ts'
import { startWork } from '../work.ts'
import { heapOptions } from './heap-options.ts'
import { serveProcesses } from './serve-processes.ts'
import { siblingsOf } from './siblings.ts'
import { stopOnSignal } from './stop-on-signal.ts'

/** `oncehook serve`: answers HTTP until SIGTERM, then ends what runs and exits 0. In several processes where `WEB_CONCURRENCY` says so. */
export async function serveCommand(settings: Settings): Promise<void> {
  const given = [...process.execArgv, process.env.NODE_OPTIONS ?? '']
  for (const option of heapOptions(given, getHeapStatistics().heap_size_limit)) setFlagsFromString(option)
  if (cluster.isWorker) return runUntilStopped(settings, serveBesideSiblings)
  if (settings.webConcurrency > 1) process.exit(await serveProcesses(settings))
  await runUntilStopped(settings, startServe)
}

async function serveBesideSiblings(settings: Settings): Promise<Running & { url: string }> {
  const siblings = siblingsOf(process)
  const serve = await startServe(settings, siblings)
  return {
    ...serve,
    async stop() {
      await serve.stop()
      await siblings.lastWord()
    },
  }
}

/** `oncehook worker`: processes events and sends emails until SIGTERM, then ends what runs and exits 0. */
export async function workerCommand(settings: Settings): Promise<void> {
  await runUntilStopped(settings, startWork)
}

/** `oncehook migrate`: brings the database and the job queue to the newest schema; safe beside other instances. */
export async function migrateCommand({ databaseUrl }: Settings): Promise<void> {
  if (!databaseUrl) throw new ConfigError(['DATABASE_URL is not set'])
  await migrate(databaseUrl, (message) => console.error(message))
  await installQueues(databaseUrl)
  console.error('The database is up to date.')
}

async function runUntilStopped(settings: Settings, start: (settings: Settings) => Promise<Running & { url?: string }>) {
  // Started by a parent that is gone, even before it was up: nobody would ever stop this process.
  let end = (): unknown => process.exit(1)
  process.once('disconnect', () => end())
  if (process.send && !process.connected) end()

  // In production they are refused a moment later.
  if (settings.faults) armFaults(settings.faults)
  const { log, stop, url = '' } = await start(settings)
  if (settings.faults) log.warn({ faults: Object.fromEntries(settings.faults) }, 'this process fails on purpose')
  const { close } = closeWithGrace(
    {
      delay: settings.shutdownGraceMs,
      // SIGHUP reads the configuration again; the others are taken below.
      skip: ['SIGHUP', 'SIGINT', 'SIGTERM'],
      logger: { error: (error: unknown) => log.fatal({ error }, 'not everything has ended') },
    },
    async ({ err }) => {
      if (err) log.fatal({ error: err }, 'ending on an error')
      else log.info('stopping')
      await stop()
    },
  )
  stopOnSignal(close)
  end = close
  process.send?.({ ready: url })
}
