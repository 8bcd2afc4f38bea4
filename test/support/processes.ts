import { type ChildProcess, spawn } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterAll } from 'vitest'

const entry = fileURLToPath(new URL('../../bin/oncehook.js', import.meta.url))
const configPath = fileURLToPath(new URL('./processes.config.ts', import.meta.url))
export const apiKey = 'ik_live_of_the_processes'

/** Secrets of the sources in processes.config.ts. */
export const secrets = {
  STRIPE_WEBHOOK_SECRETS: 'whsec_stripe_of_the_tests',
  GOCARDLESS_WEBHOOK_SECRETS: 'gocardless_of_the_tests',
  GITHUB_WEBHOOK_SECRETS: 'github_of_the_tests',
  SVIX_WEBHOOK_SECRETS: 'whsec_c3ZpeF9vZl90aGVfdGVzdHNfMDE=',
  ACME_WEBHOOK_SECRETS: 'whsec_YWNtZV9vZl90aGVfdGVzdHNfMDE=',
  SHOP_WEBHOOK_SECRETS: 'shop_of_the_tests',
  INBOXILI_WEBHOOK_SECRETS: 'inboxili_of_the_tests',
}

/** What every process gets, and nothing that this test run happens to have in its own environment. */
const cleanEnvironment = { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '', TMPDIR: process.env.TMPDIR ?? '/tmp' }

/** Variables for `serve` and `worker` with times for tests; `DATABASE_URL` and `INBOXILI_BASE_URL` are still to be named. */
export const quick = {
  ...secrets,
  ONCEHOOK_CONFIG: configPath,
  PORT: '0',
  INBOXILI_API_KEY: apiKey,
  ONCEHOOK_SENDS_PER_MINUTE: '1000000',
  ONCEHOOK_SWEEP_EVERY_MS: '1000',
  ONCEHOOK_RETRY_DELAY_MS: '1000',
}

interface Exit {
  code: number | null
  signal: NodeJS.Signals | null
}

export interface Running {
  /** Address of the service; empty for a worker. */
  url: string
  pid: number
  /** All that it has written to stdout and stderr. */
  output(): string
  /** Its log lines. */
  log(): Record<string, unknown>[]
  exited: Promise<Exit>
  kill(signal: NodeJS.Signals): void
}

const running = new Set<ChildProcess>()
afterAll(async () => {
  await Promise.all(
    [...running].map((child) => {
      child.kill('SIGKILL')
      return once(child, 'exit')
    }),
  )
})

/** Starts a process of the service; ready when it says so. It ends at the end of the test file, or with this process. */
export async function start(part: 'serve' | 'worker', environment: Record<string, string>): Promise<Running> {
  const { child, output, exited } = spawnEntry([part], environment, ['ignore', 'pipe', 'pipe', 'ipc'])
  const ready = await Promise.race([once(child, 'message'), exited])
  if (!Array.isArray(ready)) throw new Error(`${part} ended before it was ready:\n${output()}`)
  return {
    url: (ready[0] as { ready: string }).ready,
    pid: child.pid as number,
    output,
    log: () => logLines(output()),
    exited,
    kill: (signal) => void child.kill(signal),
  }
}

/** Runs a command to its end. */
export async function run(
  args: readonly string[],
  environment: Record<string, string> = {},
  options: { cwd?: string; nodeArgs?: readonly string[] } = {},
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const { child, exited } = spawnEntry(args, environment, ['ignore', 'pipe', 'pipe'], options)
  let stdout = ''
  let stderr = ''
  child.stdout?.on('data', (text) => {
    stdout += text
  })
  child.stderr?.on('data', (text) => {
    stderr += text
  })
  const { code } = await exited
  return { code, stdout, stderr }
}

/** Starts the command line; the caller looks after its life, but it is killed at the end of the test file. */
export function spawnEntry(
  args: readonly string[],
  environment: Record<string, string>,
  stdio: ('ignore' | 'pipe' | 'ipc')[],
  { cwd, nodeArgs = [] }: { cwd?: string; nodeArgs?: readonly string[] } = {},
) {
  const child = spawn(process.execPath, [...nodeArgs, entry, ...args], {
    env: { ...cleanEnvironment, ...environment },
    stdio,
    ...(cwd && { cwd }),
  })
  running.add(child)
  let text = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (chunk) => {
      text += chunk
    })
  // Its pipes may still hold lines when the process is gone: `close` comes after them.
  const exited = new Promise<Exit>((done) =>
    child.once('close', (code, signal) => {
      running.delete(child)
      done({ code, signal })
    }),
  )
  return { child, output: () => text, exited }
}

function logLines(text: string): Record<string, unknown>[] {
  return text
    .split('\n')
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line) => JSON.parse(line))
}

/** Resolves with the first answer of the question that is not false or undefined; polls, and gives up at the deadline. */
export async function until<Answer>(
  question: () => Answer | false | undefined | Promise<Answer | false | undefined>,
  what: string,
  withinMs = 25_000,
): Promise<Answer> {
  for (const end = performance.now() + withinMs; ; await sleep(20)) {
    const answer = await question()
    if (answer !== false && answer !== undefined) return answer
    if (performance.now() > end) throw new Error(`waited ${withinMs} ms in vain until ${what}`)
  }
}

export const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

interface PaymentOptions {
  email?: string
  secret?: string
  /** Another type than this has no rule. */
  type?: 'invoice.paid' | 'invoice.created'
}

/** A Stripe payment, signed here and not by the code under test. */
export function payment(
  id: string,
  { email = `${id}@example.com`, secret = secrets.STRIPE_WEBHOOK_SECRETS, type = 'invoice.paid' }: PaymentOptions = {},
): { headers: Record<string, string>; body: string } {
  const body = JSON.stringify({
    id: `evt_${id}`,
    type,
    livemode: true,
    data: { object: { id: `in_${id}`, customer_email: email } },
  })
  const seconds = Math.floor(Date.now() / 1000)
  const mac = createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')
  return { headers: { 'content-type': 'application/json', 'stripe-signature': `t=${seconds},v1=${mac}` }, body }
}

/** Posts a payment; the status and the milliseconds that the answer took. A connection that broke has status 0. */
export async function postPayment(url: string, id: string, options: PaymentOptions = {}) {
  const started = performance.now()
  try {
    const response = await fetch(`${url}/webhooks/stripe`, { method: 'POST', ...payment(id, options) })
    const text = await response.text()
    return { status: response.status, text, headers: response.headers, ms: performance.now() - started }
  } catch {
    return { status: 0, text: '', headers: new Headers(), ms: performance.now() - started }
  }
}
