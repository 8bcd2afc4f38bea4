import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type pg from 'pg'
import { type Config, loadConfig } from '../config.ts'
import { openPool } from '../db.ts'
import { installQueues } from '../follow-ups/queue.ts'
import { migrate } from '../migrate.ts'
import { ensureFirstOperator } from '../ops/people.ts'
import { createSignInLink, endSignInLink, signInPath } from '../ops/sign-in-links.ts'
import { ensureToken } from '../ops/tokens.ts'
import { type SandboxDatabase, startDatabase } from '../sandbox/database.ts'
import { type InboxiliSandbox, startInboxiliSandbox } from '../sandbox/inboxili.ts'
import { ConfigError, environmentWithoutEnvFile, type Settings } from '../settings.ts'
import { openSecrets } from './development-secrets.ts'
import { openTestKeys, TEST_KEYS_FILE, type TestKeyPairs } from './test-keys.ts'

export interface Launched {
  url: string
  databaseUrl: string
  operatorToken: string
  /** Signs in on the page, once; just the page when nobody may sign in by a link. */
  pageUrl: string
  config: Config
  /** What samples of providers that sign by a key of their own are signed with. */
  testKeys: TestKeyPairs
  /** Undefined with the real email API, or another one under INBOXILI_BASE_URL. */
  sandbox: InboxiliSandbox | undefined
  /** Resolves when a part ended for good by itself. */
  failed: Promise<string>
  /** Has the parts read their configuration again. */
  reload(): void
  /** Ends the worker and starts it with these variables; when it dies of them it is started again without. */
  restartWorker(variables: Record<string, string>): Promise<void>
  stop(): Promise<void>
}

export interface LaunchOptions {
  /** Folder for the database, the development secrets and the token. */
  directory: string
  output: NodeJS.WritableStream
  /** Variables for the parts, over those of this process. */
  environment?: Record<string, string>
}

/** What the other commands read to find a running start; it holds secrets, so only its owner may read it. */
interface RunningFile {
  url: string
  databaseUrl: string
  variables: Record<string, string>
}

/** The link of a start ends with it, at the latest after a day. */
const LINK_MINUTES = 24 * 60

const entry = fileURLToPath(new URL('../../bin/oncehook.js', import.meta.url))

/** Starts everything on this machine: database, sandbox, service and worker, each in a process that ends with this one. */
export async function launch(settings: Settings, { directory, output, environment = {} }: LaunchOptions): Promise<Launched> {
  if (settings.production) refuseEmbedded(settings)
  await refuseUsedPort(settings)
  mkdirSync(directory, { recursive: true })
  const testKeys = openTestKeys(directory)
  const secrets = openSecrets(directory, testKeys)
  const config = await loadWithSecrets(settings, secrets)

  const stops: (() => Promise<unknown>)[] = []
  const stop = async () => {
    for (const end of stops.splice(0).reverse()) await end()
  }
  try {
    const database = settings.databaseUrl ? undefined : await startDatabase({ directory: join(directory, 'postgres') })
    if (database) stops.push(() => database.stop())
    const databaseUrl = settings.databaseUrl ?? (database as SandboxDatabase).url
    await migrate(databaseUrl)
    await installQueues(databaseUrl)

    const apiKey = settings.inboxiliApiKey ?? secrets.get('INBOXILI_API_KEY')
    const usesSandbox = !settings.inboxiliBaseUrl && !settings.inboxiliApiKey
    const sandbox = usesSandbox ? await startInboxiliSandbox({ apiKey }) : undefined
    if (sandbox) stops.push(() => sandbox.close())
    const baseUrl = sandbox?.url ?? settings.inboxiliBaseUrl

    const operatorToken = secrets.get('OPERATOR_TOKEN', 'token')
    const code = await withPool(databaseUrl, async (pool) => {
      await ensureToken(pool, operatorToken, { name: 'start', role: 'operator' })
      const operator = await ensureFirstOperator(pool)
      const by = { actor: 'system', via: 'cli' }
      return operator && createSignInLink(pool, { person: operator.id, minutes: LINK_MINUTES }, by)
    })
    // It is printed where others may look later. A database that is away by then ends it with its time.
    if (code !== undefined) stops.push(() => withPool(databaseUrl, (pool) => endSignInLink(pool, code)).catch(() => undefined))

    // What the operator has set stays where it is, so that the parts can read it again on SIGHUP.
    const variables: Record<string, string> = {
      ONCEHOOK_CONFIG: settings.configPath,
      ...(!settings.production && { ONCEHOOK_TEST_KEYS: resolve(directory, TEST_KEYS_FILE) }),
      ...environment,
      ...secrets.used(),
      ...(database && { DATABASE_URL: databaseUrl }),
      ...(baseUrl && { INBOXILI_BASE_URL: baseUrl }),
      ...(sandbox && { ONCEHOOK_SANDBOX_URL: sandbox.url }),
    }
    const parts = { variables, output, graceMs: settings.shutdownGraceMs }
    const serve = keepRunning('serve', parts)
    stops.push(() => serve.stop())
    const worker = keepRunning('worker', parts)
    stops.push(() => worker.stop())
    const [url] = await Promise.all([serve.ready, worker.ready])
    // Started again, it must be found where it was.
    variables.PORT = new URL(url).port
    const source = [...config.sources.values()].find((it) => it.settles)
    if (sandbox && source) sandbox.setWebhook({ url: `${url}/webhooks/${source.name}`, secret: source.secrets[0] ?? '' })

    const running: RunningFile = { url, databaseUrl, variables }
    const runningFile = join(directory, 'running.json')
    writeFileSync(runningFile, JSON.stringify(running), { mode: 0o600 })
    stops.push(async () => rmSync(runningFile, { force: true }))
    const databaseFailed = database ? [database.ended.then(() => 'the embedded database ended')] : []
    return {
      url,
      databaseUrl,
      operatorToken,
      pageUrl: `${url}${code === undefined ? '/ops' : signInPath(code)}`,
      config,
      testKeys,
      sandbox,
      failed: Promise.race([serve.failed, worker.failed, ...databaseFailed]),
      restartWorker: worker.restart,
      reload() {
        serve.reload()
        worker.reload()
      },
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

async function withPool<Result>(url: string, work: (pool: pg.Pool) => Promise<Result>): Promise<Result> {
  const pool = openPool({ url, name: 'oncehook-start', max: 1 })
  try {
    return await work(pool)
  } finally {
    await pool.end()
  }
}

function refuseEmbedded(settings: Settings): void {
  const problems = [
    ...(settings.databaseUrl ? [] : ['DATABASE_URL is not set: in production the embedded database is refused']),
    ...(settings.inboxiliApiKey ? [] : ['INBOXILI_API_KEY is not set: in production the sandbox is refused']),
  ]
  if (problems.length > 0) throw new ConfigError(problems)
}

/** Said before anything is started, so that a second start leaves no trace. */
function refuseUsedPort({ port, host }: Settings): Promise<void> {
  return new Promise((done, fail) => {
    const probe = createServer()
    probe.once('error', (error: NodeJS.ErrnoException) =>
      fail(
        error.code === 'EADDRINUSE'
          ? new ConfigError([
              `port ${port} on ${host} is in use, perhaps by another npm start: stop that one, or choose another port: PORT=${port + 1} npm start`,
            ])
          : error,
      ),
    )
    probe.listen(port, host, () => probe.close(() => done()))
  })
}

/** Loads the configuration; a secret's variable that isn't set at all gets a development secret, one set to blank is refused. */
async function loadWithSecrets(settings: Settings, secrets: ReturnType<typeof openSecrets>): Promise<Config> {
  try {
    return await loadConfig(settings.configPath)
  } catch (error) {
    if (!(error instanceof ConfigError) || settings.production) throw error
    const missing = error.unset.filter(({ name }) => process.env[name] === undefined && process.env[`${name}_FILE`] === undefined)
    if (missing.length === 0) throw error
    for (const { name, shape } of missing) process.env[name] = secrets.get(name, shape)
    return loadConfig(settings.configPath)
  }
}

interface Kept {
  /** The address of the service; an empty text for the worker. */
  ready: Promise<string>
  failed: Promise<string>
  reload(): void
  /** Resolves when it has ended; it starts again a moment later, for this time with these variables. */
  restart(variables: Record<string, string>): Promise<void>
  stop(): Promise<void>
}

const RESTART_AFTER_MS = 1_000
const GRACE_BEYOND_MS = 5_000

/**
 * Runs one part in a process and a process group of its own, so that Ctrl-C reaches this process alone, which then ends the
 * parts in order. A part that dies is started again; one that refuses its configuration isn't.
 */
function keepRunning(
  part: 'serve' | 'worker',
  { variables, output, graceMs }: { variables: Record<string, string>; output: NodeJS.WritableStream; graceMs: number },
): Kept {
  let child: ChildProcess
  let isStopping = false
  let timer: NodeJS.Timeout | undefined
  let once: Record<string, string> = {}
  const ready = Promise.withResolvers<string>()
  const failed = Promise.withResolvers<string>()
  // Nobody may be waiting any more when a part fails.
  ready.promise.catch(() => undefined)

  const run = () => {
    child = spawn(process.execPath, [entry, part], {
      detached: true,
      env: { ...environmentWithoutEnvFile(), ...variables, ...once },
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    })
    once = {}
    child.stdout?.pipe(output, { end: false })
    child.on('message', (message: { ready?: string }) => ready.resolve(message.ready ?? ''))
    child.once('exit', (code, signal) => {
      const how = `${part} ended (${signal ?? `exit ${code}`})`
      if (isStopping) return
      ready.reject(new Error(`${how} before it was ready; its last lines say why`))
      if (code === 78) return void failed.resolve(how)
      timer = setTimeout(run, RESTART_AFTER_MS)
    })
  }
  run()
  const end = () =>
    new Promise<void>((done) => {
      if (child.exitCode !== null || child.signalCode !== null) return done()
      const force = setTimeout(() => child.kill('SIGKILL'), graceMs + GRACE_BEYOND_MS)
      child.once('exit', () => {
        clearTimeout(force)
        done()
      })
      child.kill('SIGTERM')
    })
  return {
    ready: ready.promise,
    failed: failed.promise,
    reload: () => void child.kill('SIGHUP'),
    restart(given) {
      once = given
      return end()
    },
    stop() {
      isStopping = true
      clearTimeout(timer)
      return end()
    },
  }
}
