import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { openSync, readdirSync, readFileSync } from 'node:fs'

/** Ticks in which Linux counts the time of processes. */
const TICKS_PER_SECOND = 100

export interface Started {
  child: ChildProcess
  pid: number
  /** What it said when it was ready. */
  ready: string
  stop(): Promise<void>
}

/** Starts a program in a process of its own, its output in a file, and waits until it is ready. */
export async function startProcess(
  file: string,
  options: { args?: string[]; env?: Record<string, string>; output: string; execArgv?: string[] },
): Promise<Started> {
  const output = openSync(options.output, 'a')
  const child = fork(file, options.args ?? [], {
    env: { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '', NODE_ENV: 'production', ...options.env },
    execArgv: options.execArgv ?? [],
    stdio: ['ignore', output, output, 'ipc'],
    // JSON has no NaN.
    serialization: 'advanced',
  })
  const ended = once(child, 'exit')
  const said = await Promise.race([once(child, 'message'), ended.then(() => undefined)])
  if (!said) throw new Error(`${file} ended before it was ready; see ${options.output}`)
  return {
    child,
    pid: child.pid as number, // it is running
    ready: (said[0] as { ready: string }).ready,
    async stop() {
      child.kill('SIGTERM')
      await ended
    },
  }
}

/** The CPU-seconds that a process has used so far; of all its children too where it is the database's first one. */
export function cpuSeconds(pid: number, withChildren = false): number {
  const own = statOf(pid)
  if (!own) return 0
  if (!withChildren) return own.seconds
  // Children that have ended are counted by their parent.
  const children = readdirSync('/proc').flatMap((name) => (/^\d+$/.test(name) ? (statOf(Number(name)) ?? []) : []))
  return children.filter(({ parent }) => parent === pid).reduce((sum, { seconds }) => sum + seconds, own.seconds + own.ofEnded)
}

/** Bytes of a process that are in memory now. */
export function memoryOf(pid: number): number {
  const kibibytes = /^VmRSS:\s+(\d+) kB$/m.exec(readProc(pid, 'status') ?? '')?.[1]
  return Number(kibibytes ?? 0) * 1024
}

function statOf(pid: number): { parent: number; seconds: number; ofEnded: number } | undefined {
  const text = readProc(pid, 'stat')
  // The name may hold blanks and brackets.
  const fields = text
    ?.slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
  if (!fields) return undefined
  const [, parent = 0] = fields
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11, 15)
  return { parent, seconds: (user + system) / TICKS_PER_SECOND, ofEnded: (endedUser + endedSystem) / TICKS_PER_SECOND }
}

function readProc(pid: number, file: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8')
  } catch {
    return undefined
  }
}
