import { fileURLToPath } from 'node:url'
import { ask, type BenchServer, countMissing, prefill } from './database.ts'
import { type Started, startProcess } from './processes.ts'
import { SECRET, typeFor } from './requests.ts'

/** One receiver that is measured, running in a process of its own. */
export interface Candidate {
  name: string
  port: number
  pid: number
  /** How many events it has stored; undefined where it stores none. */
  countEvents(): Promise<number | undefined>
  /** How many of these events it has not stored. */
  countMissing(ids: ReadonlySet<string>): Promise<number>
  /** New events that it has answered 2xx so far, as the load has counted them. */
  acked: number
  stop(): Promise<void>
}

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url))

interface Made {
  started: Started
  url?: string
  table?: string
  /** Rows that were there before. */
  before?: number
}

interface Environment {
  server: BenchServer
  /** Events that stand in the table of `oncehook, full` beforehand. */
  prefill: number
  /** Has Node write a profile of the service's CPU into this folder. */
  profiles?: string | undefined
}

const env = { STRIPE_WEBHOOK_SECRETS: SECRET }

const naive = async ({ server }: Environment, name: string, args: string[]): Promise<Made> => {
  const url = await server.create(name)
  const options = { args, env: { ...env, DATABASE_URL: url }, output: `${server.folder}/${name}.log` }
  return { started: await startProcess(file('./receivers/naive.ts'), options), url, table: 'events' }
}

/** The service itself, as `oncehook serve` runs it: with its log, its metrics and all of its checks. */
export async function startService(
  { server, profiles }: Pick<Environment, 'server' | 'profiles'>,
  name: string,
  { wants, prepare }: { wants: keyof typeof typeFor; prepare?: (url: string) => Promise<void> },
): Promise<{ started: Started; url: string }> {
  const url = await server.create(name, { migrated: true })
  await prepare?.(url)
  const started = await startProcess(file('../bin/oncehook.js'), {
    args: ['serve'],
    env: {
      ...env,
      DATABASE_URL: url,
      PORT: '0',
      INBOXILI_API_KEY: 'ik_of_the_bench_only',
      ONCEHOOK_CONFIG: file('./oncehook.config.ts'),
      BENCH_RULE: typeFor[wants],
    },
    output: `${server.folder}/${name}.log`,
    ...(profiles && { execArgv: ['--cpu-prof', `--cpu-prof-dir=${profiles}/${name}`] }),
  })
  return { started, url }
}

const oncehook = async (environment: Environment, name: string, wants: keyof typeof typeFor, events = 0): Promise<Made> => {
  const prepare = (url: string) => prefill(url, events)
  const service = await startService(environment, name, { wants, ...(events > 0 && { prepare }) })
  return { ...service, table: 'webhook_events', before: events }
}

const starts = {
  ceiling: async ({ server }) => ({
    started: await startProcess(file('./receivers/ceiling.ts'), { env, output: `${server.folder}/ceiling.log` }),
  }),
  naive: (environment) => naive(environment, 'naive', []),
  'naive+job': (environment) => naive(environment, 'naive_job', ['--job']),
  'oncehook, no job': (environment) => oncehook(environment, 'oncehook_none', 'none'),
  'oncehook, 1 % jobs': (environment) => oncehook(environment, 'oncehook_one', 'one'),
  'oncehook, all jobs': (environment) => oncehook(environment, 'oncehook_all', 'all'),
  'oncehook, no job, full': (environment) => oncehook(environment, 'oncehook_full_none', 'none', environment.prefill),
  'oncehook, all jobs, full': (environment) => oncehook(environment, 'oncehook_full_all', 'all', environment.prefill),
} satisfies Record<string, (environment: Environment) => Promise<Made>>

export type CandidateName = keyof typeof starts

/** The candidates of a run: all, but the filled ones only where there is something to fill them with. */
export function candidateNames(events: number): CandidateName[] {
  return (Object.keys(starts) as CandidateName[]).filter((name) => events > 0 || !name.endsWith('full')) // its own keys
}

/** Starts a candidate on an empty database of its own. */
export async function startCandidate(name: CandidateName, environment: Environment): Promise<Candidate> {
  const start: (environment: Environment) => Promise<Made> = starts[name]
  const { started, url, table, before = 0 } = await start(environment)
  return {
    name,
    port: Number(new URL(started.ready).port),
    pid: started.pid,
    acked: 0,
    async countEvents() {
      if (url === undefined || table === undefined) return undefined
      const [row] = await ask<{ count: string }>(url, `select count(*) from ${table}`)
      return Number(row?.count) - before
    },
    async countMissing(ids) {
      if (url === undefined || table === undefined) return ids.size
      return countMissing(url, table, ids)
    },
    stop: started.stop,
  }
}
