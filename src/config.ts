import { existsSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseEnv } from 'node:util'
import { z } from 'zod'
import type { Provider } from './providers/provider.ts'
import { createProvider, providers } from './providers/registry.ts'
import { isUsableSecret } from './providers/signature.ts'

export { KeyError, key, period } from './sends/key.ts'

/** The configuration can't be used; `problems` says all that is wrong, one line each. */
export class ConfigError extends Error {
  override name = 'ConfigError'
  readonly problems: readonly string[]
  /** Environment variables that the config file reads and that are not set. */
  readonly unset: readonly string[]

  constructor(problems: readonly string[], unset: readonly string[] = []) {
    super(`The configuration can't be used:\n${problems.map((problem) => `  - ${problem}`).join('\n')}`)
    this.problems = problems
    this.unset = unset
  }
}

// --- The user's file -------------------------------------------------------------------------------------------------

/** What a rule is told about its event beside the payload. */
export interface EventMeta {
  source: string
  eventId: string
  type: string | null
  occurredAt: Date | null
  receivedAt: Date
  livemode: boolean | null
}

/** One email as a rule asks for it; the fields beside `key` and `policy` are Inboxili's. */
export interface FollowUpEmail {
  /** Names the email, not the attempt: build it with `key()` from the business fact. */
  key: string
  policy?: 'claim' | undefined
  to: string
  from_email: string
  from_name?: string | undefined
  subject?: string | undefined
  html_body?: string | undefined
  text_body?: string | undefined
  template_id?: string | undefined
  template_data?: Record<string, unknown> | undefined
}

type Emails = FollowUpEmail | readonly FollowUpEmail[] | null | undefined

/** Which event causes which email. */
export interface Rule {
  name?: string
  source: string
  type: string | readonly string[]
  // biome-ignore lint/suspicious/noExplicitAny: a payload has the shape that its provider gives it, which only the rule knows
  email(payload: any, meta: EventMeta): Emails | Promise<Emails>
}

/** One sender set up here: its provider, its secrets, and what the provider's scheme needs. */
export interface SourceConfig {
  provider: string
  secrets: readonly string[]
  mode?: 'live' | 'test'
  toleranceSeconds?: number
  maxBodyBytes?: number
  [providerOption: string]: unknown
}

export interface UserConfig {
  inboxili?: { account?: 'exclusive' | 'shared' }
  sources: Record<string, SourceConfig>
  followUps?: readonly Rule[]
}

/** Types the configuration file; what is wrong in it is said when it is loaded. */
export function defineConfig(config: UserConfig): UserConfig {
  return config
}

/** Where a list came from, and why it is empty. */
const originOf = new WeakMap<readonly string[], { name: string; problem: string }>()

/** Reads settings of the user's file from the environment; each also as `NAME_FILE`, the path of a file that holds it. */
export const env = {
  /** A comma list of secrets, newest first. Unset or blank is an error when the file is loaded, never an open door. */
  list(name: string): readonly string[] {
    const { value = '', problem } = readVariable(process.env, name)
    const list = value.split(',').flatMap((part) => part.trim() || [])
    originOf.set(list, { name, problem: problem ?? `${name} is not set` })
    return list
  },
  /** One text, or undefined. */
  text(name: string): string | undefined {
    const { value, problem } = readVariable(process.env, name)
    if (problem !== undefined) throw new ConfigError([problem])
    return value
  },
}

// --- What the service works with -------------------------------------------------------------------------------------

/** A source as the service uses it: checked, with its provider built. */
export interface Source {
  name: string
  provider: Provider
  /** What the file says beside the fields that every source has. */
  options: Readonly<Record<string, unknown>>
  secrets: readonly string[]
  mode: 'live' | 'test'
  toleranceSeconds: number
  maxBodyBytes: number
  /** Its events are Inboxili's delivery events, which settle sends instead of causing any. */
  settles: boolean
}

/** A rule with its place in the file, by which people know it. */
export interface FollowUpRule {
  name: string
  source: string
  types: ReadonlySet<string>
  email: Rule['email']
}

export interface Config {
  sources: ReadonlyMap<string, Source>
  rules: readonly FollowUpRule[]
  account: 'exclusive' | 'shared'
}

const sourceName = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,62}$/, 'a source name has lower-case letters, digits, - and _')
const sourceFields = {
  provider: z.string(),
  secrets: z.array(z.string()),
  mode: z.enum(['live', 'test']).default('live'),
  toleranceSeconds: z.number().int().min(0).max(86_400).optional(),
  maxBodyBytes: z.number().int().min(1).max(100_000_000).optional(),
}
const ruleSchema = z.strictObject({
  name: z.string().min(1).max(200).optional(),
  source: z.string(),
  type: z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]),
  email: z.custom<Rule['email']>((value) => typeof value === 'function', 'must be a function'),
})
const userConfigSchema = z.strictObject({
  inboxili: z.strictObject({ account: z.enum(['exclusive', 'shared']).optional() }).optional(),
  sources: z.record(sourceName, z.looseObject(sourceFields)),
  followUps: z.array(ruleSchema).default([]),
})

/** Checks the user's configuration and builds what the service works with. Throws ConfigError with all problems at once. */
export function readConfig(input: unknown): Config {
  const parsed = userConfigSchema.safeParse(input)
  if (!parsed.success) throw new ConfigError(issuesOf(parsed.error))

  const problems: string[] = []
  const unset: string[] = []
  const sources = new Map<string, Source>()
  for (const [name, { provider: providerName, secrets, mode, toleranceSeconds, maxBodyBytes, ...options }] of Object.entries(
    parsed.data.sources,
  )) {
    const given = (input as UserConfig).sources[name]?.secrets
    const origin = given && originOf.get(given)
    if (secrets.length === 0 || secrets.some((secret) => secret.trim() === '')) {
      problems.push(`source ${name}: ${origin?.problem ?? 'secrets is empty'}, so nothing could be verified`)
      if (origin) unset.push(origin.name)
      continue
    }
    if (!providers.has(providerName)) {
      problems.push(`source ${name}: there is no provider "${providerName}" (there are ${[...providers.keys()].join(', ')})`)
      continue
    }
    try {
      const provider = createProvider(providerName, options)
      const unusable = secrets.findIndex((secret) => !isUsableSecret(provider.scheme, secret))
      if (unusable >= 0) problems.push(`source ${name}: secret ${unusable + 1} is not in the form that ${providerName} gives out`)
      sources.set(name, {
        name,
        provider,
        options,
        secrets,
        mode,
        toleranceSeconds: toleranceSeconds ?? provider.toleranceSeconds,
        maxBodyBytes: maxBodyBytes ?? provider.maxBodyBytes,
        settles: providerName === 'inboxili',
      })
    } catch (error) {
      problems.push(`source ${name}: ${(error as Error).message.replace(/\s+/g, ' ')}`)
    }
  }

  const rules = parsed.data.followUps.map((rule, index): FollowUpRule => {
    const name = rule.name ?? `rule ${index + 1} "${[rule.type].flat().join(', ')}"`
    if (!Object.hasOwn(parsed.data.sources, rule.source))
      problems.push(`followUps ${index + 1}: there is no source "${rule.source}"`)
    return { name, source: rule.source, types: new Set([rule.type].flat()), email: rule.email }
  })
  for (const [name, same] of Map.groupBy(rules, (rule) => rule.name)) {
    if (same.length > 1) problems.push(`followUps: ${same.length} rules have the name "${name}"`)
  }

  if (problems.length > 0) throw new ConfigError(problems, unset)
  return { sources, rules, account: parsed.data.inboxili?.account ?? 'exclusive' }
}

let loads = 0

/** Loads the configuration file as it is now; a second load sees a changed file. */
export async function loadConfig(path: string): Promise<Config> {
  const file = resolve(path)
  if (!existsSync(file)) throw new ConfigError([`${file} does not exist (set ONCEHOOK_CONFIG to your configuration file)`])
  loads += 1
  const module = await import(`${pathToFileURL(file).href}?load=${loads}`).then(
    (loaded: { default?: unknown }) => loaded,
    (error: unknown) => {
      throw error instanceof ConfigError ? error : new ConfigError([`${file} can't be loaded: ${error}`])
    },
  )
  if (module.default === undefined)
    throw new ConfigError([`${file} has no default export: write export default defineConfig({…})`])
  return readConfig(module.default)
}

// --- Settings from the environment -----------------------------------------------------------------------------------

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
  PUBLIC_URL: url.optional(),
  TRUST_PROXY: z.string().optional(),
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
  ONCEHOOK_RETRY_DELAY_MS: whole(5_000, 1_000, 3_600_000),
  ONCEHOOK_KEEP_BODIES_DAYS: whole(90, 1, 36_500),
})

export type Settings = ReturnType<typeof readSettings>

const secretVariables = ['DATABASE_URL', 'INBOXILI_API_KEY']

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
  else if (parsed.data.SHUTDOWN_GRACE_MS <= parsed.data.ONCEHOOK_CALL_TIMEOUT_MS)
    problems.push(
      'SHUTDOWN_GRACE_MS must be longer than ONCEHOOK_CALL_TIMEOUT_MS: a stop would cut off calls that then are unknown',
    )
  if (!parsed.success || problems.length > 0) throw new ConfigError(problems)
  const { data } = parsed
  return {
    production: data.NODE_ENV === 'production',
    port: data.PORT,
    host: data.HOST,
    databaseUrl: data.DATABASE_URL,
    configPath: data.ONCEHOOK_CONFIG,
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
  }
}

/** Secrets that stand in every tutorial: whoever guesses one can forge events. */
const wellKnown = /^(whsec_)?(test|secret|password|changeme|change[_-]me|example|default|webhook|your[_-].*|xxx+)$/i

/** What a production start must refuse (I22): missing or guessable secrets. One line each; empty when all is well. */
export function productionProblems(settings: Settings, config: Config): string[] {
  const problems: string[] = []
  if (!settings.databaseUrl) problems.push('DATABASE_URL is not set: in production the embedded database is refused')
  if (!settings.inboxiliApiKey) problems.push('INBOXILI_API_KEY is not set: in production the sandbox is refused')
  for (const source of config.sources.values()) {
    if (source.secrets.some((secret) => wellKnown.test(secret) || secret.length < 8)) {
      problems.push(`source ${source.name}: a secret is a default or shorter than 8 characters`)
    }
  }
  return problems
}

const fromEnvFile = new Set<string>()

/** Reads `.env` beside the process, now or again: what the environment itself says stands over it. */
export function loadEnvFile(path = '.env'): void {
  const values = existsSync(path) ? parseEnv(readFileSync(path, 'utf8')) : {}
  // What has gone from the file is gone: a secret that was removed must not go on verifying.
  for (const name of fromEnvFile) delete process.env[name]
  fromEnvFile.clear()
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || process.env[name] !== undefined) continue
    process.env[name] = value
    fromEnvFile.add(name)
  }
}

/** The environment as it was given, for a child that reads `.env` itself, now and on SIGHUP. */
export function environmentWithoutEnvFile(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !fromEnvFile.has(name)))
}

/** A variable, else what the file named by `NAME_FILE` holds; a blank one counts as not set. */
function readVariable(
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

function issuesOf(error: z.ZodError): string[] {
  return error.issues.map((issue) => {
    const [cause = issue] = issue.code === 'invalid_key' ? issue.issues : []
    return `${issue.path.join('.') || 'configuration'}: ${cause.message}`
  })
}
