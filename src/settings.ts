import { existsSync, readFileSync } from 'node:fs'
import { parseEnv } from 'node:util'
import { z } from 'zod'
import { readFaults } from './fault-points.ts'

/** What a secret looks like; those with the name of a kind of key are public keys of it. */
export type SecretShape = 'text' | 'hex' | 'name:text' | 'rsa' | 'ecdsa' | 'ed25519'

/** A secret's variable that is not set. */
export interface UnsetSecret {
  name: string
  shape: SecretShape
}

/** The configuration can't be used; `problems` says all that is wrong, one line each. */
export class ConfigError extends Error {
  override name = 'ConfigError'
  readonly problems: readonly string[]
  /** Environment variables that the config file reads and that are not set, and what their values would look like. */
  readonly unset: readonly UnsetSecret[]

  constructor(problems: readonly string[], unset: readonly UnsetSecret[] = []) {
    super(`The configuration can't be used:\n${problems.map((problem) => `  - ${problem}`).join('\n')}`)
    this.problems = problems
    this.unset = unset
  }
}

const whole = (fallback: number, min: number, max: number) => z.coerce.number().int().min(min).max(max).default(fallback)
const url = z.url({ protocol: /^https?$/ })

const settingsSchema = z.object({
  NODE_ENV: z.string().default('development'),
  PORT: whole(3000, 0, 65_535),
  HOST: z.string().default('127.0.0.1'),
  DATABASE_URL: z
    .string()
    .regex(/^postgres(ql)?:\/\//, 'must start with postgres://')
    .optional(),
  ONCEHOOK_CONFIG: z.string().default('oncehook.config.ts'),
  WEB_CONCURRENCY: whole(1, 1, 64),
  PUBLIC_URL: url.optional(),
  TRUST_PROXY: z
    .string()
    .regex(
      /^(\d{1,2}|(loopback|linklocal|uniquelocal|[0-9a-fA-F.:]+(\/\d{1,3})?)(\s*,\s*(loopback|linklocal|uniquelocal|[0-9a-fA-F.:]+(\/\d{1,3})?))*)$/,
      'must be the number of proxies, or a comma list of their addresses',
    )
    .optional(),
  INBOXILI_API_KEY: z
    .string()
    .regex(/^[\x21-\x7e]+$/, 'must be visible ASCII characters')
    .optional(),
  INBOXILI_BASE_URL: url.optional(),
  LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
  SHUTDOWN_GRACE_MS: whole(20_000, 100, 600_000),
  ONCEHOOK_CALL_TIMEOUT_MS: whole(15_000, 50, 120_000),
  ONCEHOOK_STALE_AFTER_MS: whole(300_000, 100, 86_400_000),
  ONCEHOOK_SWEEP_EVERY_MS: whole(30_000, 50, 3_600_000),
  ONCEHOOK_SENDS_PER_MINUTE: whole(110, 1, 1_000_000),
  ONCEHOOK_RETRY_DELAY_MS: whole(1_000, 1_000, 3_600_000),
  ONCEHOOK_KEEP_BODIES_DAYS: whole(90, 1, 36_500),
  ONCEHOOK_PROBE_EVERY_MS: whole(60_000, 50, 3_600_000),
  ONCEHOOK_REVIEW_AFTER_MS: whole(600_000, 100, 86_400_000),
  ONCEHOOK_WORKER_METRICS_PORT: z.coerce.number().int().min(0).max(65_535).optional(),
  ONCEHOOK_TRACING: z.enum(['otlp']).optional(),
  OTEL_EXPORTER_OTLP_ENDPOINT: url.default('http://localhost:4318'),
  OTEL_EXPORTER_OTLP_HEADERS: z
    .string()
    .regex(/^[\w-]+=[^,\r\n]*(,\s*[\w-]+=[^,\r\n]*)*$/, 'must be a comma list of name=value')
    .transform((text) => Object.fromEntries(text.split(',').map((pair) => headerOf(pair))))
    .optional(),
  OTEL_SERVICE_NAME: z.string().default('oncehook'),
  OTEL_TRACES_SAMPLER_ARG: z.coerce.number().min(0).max(1).default(1),
  ONCEHOOK_TEST_KEYS: z.string().optional(),
  ONCEHOOK_SANDBOX_URL: url.optional(),
  ONCEHOOK_FAULTS: z
    .string()
    .transform((text, context) => {
      const faults = readFaults(text)
      if (!faults) context.addIssue({ code: 'custom', message: 'must be places and what happens there: send.claimed=kill' })
      return faults ?? z.NEVER
    })
    .optional(),
})

/** A header as OpenTelemetry writes it: the value may be percent-encoded. */
function headerOf(pair: string): [name: string, value: string] {
  const at = pair.indexOf('=')
  const value = pair.slice(at + 1).trim()
  return [pair.slice(0, at).trim(), /%(?![0-9a-f]{2})/i.test(value) ? value : decodeURIComponent(value)]
}

export type Settings = ReturnType<typeof readSettings>

const secretVariables = ['DATABASE_URL', 'INBOXILI_API_KEY', 'OTEL_EXPORTER_OTLP_HEADERS']

/** The settings of this process. Blank counts as not set. Throws ConfigError with all problems at once. */
export function readSettings(environment: NodeJS.ProcessEnv = process.env) {
  const given: Record<string, string> = {}
  const problems: string[] = []
  for (const name of Object.keys(settingsSchema.shape)) {
    const { value = '', problem } = secretVariables.includes(name)
      ? readVariable(environment, name)
      : { value: environment[name], problem: undefined }
    if (problem !== undefined) problems.push(problem)
    if (value.trim() !== '') given[name] = value.trim()
  }
  const parsed = settingsSchema.safeParse(given)
  if (!parsed.success) problems.push(...issuesOf(parsed.error))
  if (!parsed.success || problems.length > 0) throw new ConfigError(problems)
  const { data } = parsed
  return {
    production: data.NODE_ENV === 'production',
    port: data.PORT,
    host: data.HOST,
    databaseUrl: data.DATABASE_URL,
    configPath: data.ONCEHOOK_CONFIG,
    webConcurrency: data.WEB_CONCURRENCY,
    publicUrl: data.PUBLIC_URL,
    trustProxy: data.TRUST_PROXY,
    inboxiliApiKey: data.INBOXILI_API_KEY,
    inboxiliBaseUrl: data.INBOXILI_BASE_URL,
    logLevel: data.LOG_LEVEL,
    shutdownGraceMs: data.SHUTDOWN_GRACE_MS,
    callTimeoutMs: data.ONCEHOOK_CALL_TIMEOUT_MS,
    staleAfterMs: data.ONCEHOOK_STALE_AFTER_MS,
    sweepEveryMs: data.ONCEHOOK_SWEEP_EVERY_MS,
    sendsPerMinute: data.ONCEHOOK_SENDS_PER_MINUTE,
    retryDelayMs: data.ONCEHOOK_RETRY_DELAY_MS,
    keepBodiesDays: data.ONCEHOOK_KEEP_BODIES_DAYS,
    probeEveryMs: data.ONCEHOOK_PROBE_EVERY_MS,
    reviewAfterMs: data.ONCEHOOK_REVIEW_AFTER_MS,
    workerMetricsPort: data.ONCEHOOK_WORKER_METRICS_PORT,
    tracing: data.ONCEHOOK_TRACING,
    otlpEndpoint: data.OTEL_EXPORTER_OTLP_ENDPOINT,
    otlpHeaders: data.OTEL_EXPORTER_OTLP_HEADERS,
    serviceName: data.OTEL_SERVICE_NAME,
    tracedShare: data.OTEL_TRACES_SAMPLER_ARG,
    testKeysPath: data.ONCEHOOK_TEST_KEYS,
    sandboxUrl: data.ONCEHOOK_SANDBOX_URL,
    faults: data.ONCEHOOK_FAULTS,
  }
}

const fromEnvFile = new Set<string>()

/** Reads `.env` beside the process, now or again: what the environment itself says stands over it. */
export function loadEnvFile(path = '.env'): void {
  const values = existsSync(path) ? parseEnv(readFileSync(path, 'utf8')) : {}
  // What has gone from the file is gone: a secret that was removed must not go on verifying.
  dropEnvFile()
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || process.env[name] !== undefined) continue
    process.env[name] = value
    fromEnvFile.add(name)
  }
}

/** Leaves the environment as it was given. */
export function dropEnvFile(): void {
  for (const name of fromEnvFile) delete process.env[name]
  fromEnvFile.clear()
}

/** The environment as it was given, for a child that reads `.env` itself, now and on SIGHUP. */
export function environmentWithoutEnvFile(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !fromEnvFile.has(name)))
}

/** A variable, else what the file named by `NAME_FILE` holds; a blank one counts as not set. */
export function readVariable(
  environment: NodeJS.ProcessEnv,
  name: string,
): { value?: string | undefined; problem?: string | undefined } {
  const value = environment[name]
  const path = environment[`${name}_FILE`]
  if (value?.trim() || !path) return { value }
  try {
    return { value: readFileSync(path, 'utf8').trim() }
  } catch (error) {
    return { problem: `${name}_FILE can't be read: ${path} (${(error as NodeJS.ErrnoException).code})` }
  }
}

/** What zod found wrong, one line each. */
export function issuesOf(error: z.ZodError): string[] {
  return error.issues.map((issue) => {
    const [cause = issue] = issue.code === 'invalid_key' ? issue.issues : []
    return `${issue.path.join('.') || 'configuration'}: ${cause.message}`
  })
}
