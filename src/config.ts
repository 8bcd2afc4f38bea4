import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { z } from 'zod'
import { type Limits, limitsSchema } from './limits.ts'
import type { Provider } from './providers/provider.ts'
import { createProvider, providers } from './providers/registry.ts'
import { isUsableSecret, type SignatureScheme } from './providers/signature.ts'
import type { Policy } from './sends/policies.ts'
import { ConfigError, issuesOf, readVariable, type SecretShape, type Settings, type UnsetSecret } from './settings.ts'

export { KeyError, key, period } from './sends/key.ts'

/** What a rule is told about its event beside the payload. */
export interface EventMeta {
  source: string
  eventId: string
  type: string | null
  occurredAt: Date | null
  receivedAt: Date
  livemode: boolean | null
  /** A later event of the same object, by the provider's time, is stored. */
  superseded: boolean
}

/** One email as a rule asks for it; the fields beside `key` and `policy` are Inboxili's. */
export interface FollowUpEmail {
  /** Names the email, not the attempt: build it with `key()` from the business fact. */
  key: string
  /** `claim` unless said otherwise. A rule can't be `unguarded`: a replay would send again. */
  policy?: Exclude<Policy, 'unguarded'> | undefined
  to: string
  from_email: string
  from_name?: string | undefined
  subject?: string | undefined
  html_body?: string | undefined
  text_body?: string | undefined
  template_id?: string | undefined
  template_data?: Record<string, unknown> | undefined
}

/** Nothing, in whichever form `condition && {…}` leaves it, means no email. */
type Emails = FollowUpEmail | readonly FollowUpEmail[] | null | undefined | false | '' | 0

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
  /** Newest first. Left out only where the provider has none. */
  secrets?: readonly string[]
  mode?: 'live' | 'test'
  toleranceSeconds?: number
  maxBodyBytes?: number
  /**
   * Fetches from the provider what an event speaks of, before any rule runs; returns the payload that the rules get, or nothing,
   * and the event is ignored.
   */
  // biome-ignore lint/suspicious/noExplicitAny: as for rules
  confirm?(payload: any, meta: EventMeta): unknown
  [providerOption: string]: unknown
}

export interface UserConfig {
  inboxili?: { account?: 'exclusive' | 'shared' }
  sources: Record<string, SourceConfig>
  followUps?: readonly Rule[]
  ops?: {
    /** From where on the overview says "attention" or "problem". */
    limits?: Partial<Limits>
    /** Masks addresses and hides bodies for the role `reader`, in the API and on the page. */
    hidePersonalData?: boolean
    /** A resend waits for another person than the one who asks for it. */
    secondPerson?: boolean
  }
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
  /** One text; without it the configuration can't be used. */
  required(name: string): string {
    const value = env.text(name)
    if (!value?.trim()) throw new ConfigError([`${name} is not set`])
    return value
  },
  /** One text, or undefined. */
  text(name: string): string | undefined {
    const { value, problem } = readVariable(process.env, name)
    if (problem !== undefined) throw new ConfigError([problem])
    return value
  },
}

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
  confirm: SourceConfig['confirm']
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
  limits: Limits
  hidePersonalData: boolean
  secondPerson: boolean
  /** What may stay as it is, but should be known. */
  warnings: readonly string[]
}

const isFunction = (value: unknown) => typeof value === 'function'
const sourceName = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,62}$/, 'a source name has lower-case letters, digits, - and _')
const sourceFields = {
  provider: z.string(),
  secrets: z.array(z.string()).default([]),
  mode: z.enum(['live', 'test']).default('live'),
  toleranceSeconds: z.number().int().min(0).max(2_592_000).optional(),
  maxBodyBytes: z.number().int().min(1).max(100_000_000).optional(),
  confirm: z
    .custom<SourceConfig['confirm']>((value) => value === undefined || isFunction(value), 'must be a function')
    .optional(),
}
const ruleSchema = z.strictObject({
  name: z.string().min(1).max(200).optional(),
  source: z.string(),
  type: z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]),
  email: z.custom<Rule['email']>(isFunction, 'must be a function'),
})
const userConfigSchema = z.strictObject({
  inboxili: z.strictObject({ account: z.enum(['exclusive', 'shared']).optional() }).optional(),
  sources: z.record(sourceName, z.looseObject(sourceFields)),
  followUps: z.array(ruleSchema).default([]),
  ops: z
    .strictObject({
      limits: limitsSchema.prefault({}),
      hidePersonalData: z.boolean().default(false),
      secondPerson: z.boolean().default(false),
    })
    .prefault({}),
})

/** Checks the user's configuration and builds what the service works with. Throws ConfigError with all problems at once. */
export function readConfig(input: unknown): Config {
  const parsed = userConfigSchema.safeParse(input)
  if (!parsed.success) throw new ConfigError(issuesOf(parsed.error))

  const problems: string[] = []
  const unset: UnsetSecret[] = []
  const warnings: string[] = []
  const sources = new Map<string, Source>()
  for (const [
    name,
    { provider: providerName, secrets, mode, toleranceSeconds, maxBodyBytes, confirm, ...options },
  ] of Object.entries(parsed.data.sources)) {
    const given = (input as UserConfig).sources[name]?.secrets
    const origin = given && originOf.get(given)
    if (!providers.has(providerName)) {
      problems.push(`source ${name}: there is no provider "${providerName}" (there are ${[...providers.keys()].join(', ')})`)
      continue
    }
    try {
      const provider = createProvider(providerName, options)
      const isWithout = provider.secrets !== undefined && secrets.length === 0 && !origin
      if (!isWithout && (secrets.length === 0 || secrets.some((secret) => secret.trim() === ''))) {
        problems.push(`source ${name}: ${origin?.problem ?? 'secrets is empty'}, so nothing could be verified`)
        if (origin) unset.push({ name: origin.name, shape: shapeOf(provider.scheme) })
        continue
      }
      const unusable = secrets.findIndex((secret) => !isUsableSecret(provider.scheme, secret))
      if (unusable >= 0) problems.push(`source ${name}: secret ${unusable + 1} is not in the form that ${providerName} gives out`)
      if (provider.requiresConfirm && !confirm)
        problems.push(`source ${name}: provider ${providerName} signs nothing and only names an object; give confirm`)
      if (!provider.contentIsSigned && !confirm)
        warnings.push(
          `source ${name}: provider ${providerName} signs nothing of what an event says, so that whoever has its credential or one of its requests can make one up; give confirm`,
        )
      sources.set(name, {
        name,
        provider,
        options,
        secrets,
        mode,
        toleranceSeconds: toleranceSeconds ?? provider.toleranceSeconds,
        maxBodyBytes: maxBodyBytes ?? provider.maxBodyBytes,
        confirm,
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
    if (sources.get(rule.source)?.settles)
      problems.push(`followUps ${index + 1}: the events of source "${rule.source}" settle sends; they cause none`)
    return { name, source: rule.source, types: new Set([rule.type].flat()), email: rule.email }
  })
  for (const [name, same] of Map.groupBy(rules, (rule) => rule.name)) {
    if (same.length > 1) problems.push(`followUps: ${same.length} rules have the name "${name}"`)
  }

  if (problems.length > 0) throw new ConfigError(problems, unset)
  const account = parsed.data.inboxili?.account ?? 'exclusive'
  return { sources, rules, account, ...parsed.data.ops, warnings }
}

/** What a secret of a scheme looks like: the first kind of signature decides. */
function shapeOf(scheme: SignatureScheme): SecretShape {
  const [kind] = 'isUnsigned' in scheme ? [] : scheme.signatures
  if (!kind || kind.secret === 'remote') return 'text'
  const { form } = kind.secret
  if (form === 'public key') return kind.kind === 'rsa' || kind.kind === 'ecdsa' ? kind.kind : 'ed25519'
  if (form === 'hex') return 'hex'
  const isNamed = kind.kind === 'credential' || ('keyId' in kind.secret && kind.secret.keyId === 'required')
  return isNamed ? 'name:text' : 'text'
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

/** Secrets that stand in every tutorial: whoever guesses one can forge events. */
const wellKnown = /^(whsec_)?(test|secret|password|changeme|change[_-]me|example|default|webhook|your[_-].*|xxx+)$/i

/** What a production start must refuse (I22): missing or guessable secrets. One line each; empty when all is well. */
export function productionProblems(settings: Settings, config: Config): string[] {
  const problems: string[] = []
  if (!settings.databaseUrl) problems.push('DATABASE_URL is not set: in production the embedded database is refused')
  if (!settings.inboxiliApiKey) problems.push('INBOXILI_API_KEY is not set: in production the sandbox is refused')
  if (settings.sandboxUrl) problems.push('ONCEHOOK_SANDBOX_URL is set: in production there is no sandbox')
  if (settings.testKeysPath) problems.push('ONCEHOOK_TEST_KEYS is set: in production the signatures of samples are refused')
  if (settings.faults) problems.push('ONCEHOOK_FAULTS is set: in production no process fails on purpose')
  for (const source of config.sources.values()) {
    if (source.secrets.some((secret) => wellKnown.test(secret) || secret.length < 8)) {
      problems.push(`source ${source.name}: a secret is a default or shorter than 8 characters`)
    }
  }
  return problems
}
