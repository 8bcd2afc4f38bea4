import closeWithGrace from 'close-with-grace'
import { ConfigError, type Settings } from '../config.ts'
import { installQueues } from '../follow-ups/queue.ts'
import { migrate } from '../migrate.ts'
import { type Running, startServe, startWork } from '../server.ts'

/** `oncehook serve`: answers HTTP until SIGTERM, then ends what runs and exits 0. */
export async function serveCommand(settings: Settings): Promise<void> {
  const running = await startServe(settings)
  stopGracefully(running, settings)
  process.send?.({ ready: running.url })
}

/** `oncehook worker`: processes events and sends emails until SIGTERM, then ends what runs and exits 0. */
export async function workerCommand(settings: Settings): Promise<void> {
  const running = await startWork(settings)
  stopGracefully(running, settings)
  process.send?.({ ready: '' })
}

/** `oncehook migrate`: brings the database and the job queue to the newest schema; safe beside other instances. */
export async function migrateCommand({ databaseUrl }: Settings): Promise<void> {
  if (!databaseUrl) throw new ConfigError(['DATABASE_URL is not set'])
  await migrate(databaseUrl, (message) => console.error(message))
  await installQueues(databaseUrl)
  console.error('The database is up to date.')
}

function stopGracefully({ log, stop }: Running, settings: Settings): void {
  const { close } = closeWithGrace({ delay: settings.shutdownGraceMs, logger: undefined }, async ({ signal, err }) => {
    if (err) log.fatal({ error: err }, 'ending on an error')
    else log.info({ signal }, 'stopping')
    await stop()
  })
  // Started by a parent that is gone: nobody would ever stop this process.
  if (process.connected) process.once('disconnect', close)
}
