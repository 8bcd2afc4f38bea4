import { fork } from 'node:child_process'
import { resolve } from 'node:path'

export interface SandboxDatabase {
  /** Connection string of the database `oncehook`. */
  url: string
  /** Resolves when the database's process has ended, whoever ended it. */
  ended: Promise<void>
  /** Stops the server and waits for its end; the data stays. */
  stop(): Promise<void>
}

export interface SandboxDatabaseOptions {
  /** Folder of the data; made on first use. */
  directory: string
  /** A free port is taken when none is given. */
  port?: number
  /** Server settings, such as `fsync=off` for tests. */
  settings?: readonly string[]
}

type Message = { ready: string } | { failed: string }

/**
 * Starts the PostgreSQL that comes from npm, in a process group of its own: Ctrl-C on the terminal must reach the service
 * before the database under it. It ends with this process, even if this process is killed.
 */
export async function startDatabase(options: SandboxDatabaseOptions): Promise<SandboxDatabase> {
  const child = fork(
    new URL('./database-process.ts', import.meta.url),
    [JSON.stringify({ ...options, directory: resolve(options.directory) })],
    { detached: true, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
  )
  const ended = new Promise<void>((done) => child.once('exit', () => done()))

  const message = await Promise.race([
    new Promise<Message>((done) => child.once('message', (sent) => done(sent as Message))),
    ended.then((): Message => ({ failed: 'the database process ended before it was ready' })),
  ])
  if ('failed' in message) throw new Error(`The embedded database did not start: ${message.failed}`)
  // Neither the process nor its channel keeps this one alive; when this one ends, the closed channel stops the database.
  child.unref()
  child.channel?.unref()

  return {
    url: message.ready,
    ended,
    async stop() {
      child.ref()
      if (child.connected) child.disconnect()
      await ended
    },
  }
}
