import { createPublicKey, type KeyObject, X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { type ExplainedSource, type Explanation, explainRefusal } from '../providers/explain.ts'
import { hasDoubledFact, type Provider, type ProviderDefinition, type WebhookRequest } from '../providers/provider.ts'
import { readEvents, type Unusable } from '../providers/read-events.ts'
import { createProvider, providers } from '../providers/registry.ts'
import { type Keyring, type Reason, type Verdict, verify } from '../providers/signature.ts'
import { jsonOutput, type OutputOptions, painted, visible, words } from './output.ts'

const request = z.looseObject({
  id: z.string().optional(),
  provider: z.string().optional(),
  method: z.string().optional(),
  url: z.string().optional(),
  headers: z.record(z.string(), z.union([z.string(), z.array(z.string())])),
  body_base64: z.base64(),
  secrets: z.array(z.string()).optional(),
  config: z
    .looseObject({
      tolerance_seconds: z.number().nonnegative().optional(),
      options: z.looseObject({}).optional(),
      certs: z.record(z.string(), z.string()).optional(),
      jwks: z.record(z.string(), z.looseObject({})).optional(),
    })
    .optional(),
  now: z.number().optional(),
  expect: z.looseObject({ verified: z.boolean() }).optional(),
})
const file = z.union([
  z.array(request),
  z
    .looseObject({ provider: z.string().optional(), vectors: z.array(request) })
    .transform(({ provider, vectors }) => vectors.map((each) => ({ provider, ...each }))),
  request,
])

type CapturedRequest = z.infer<typeof request>
type CapturedConfig = NonNullable<CapturedRequest['config']>

interface Result {
  id?: string
  verified: boolean
  reason: Reason | 'key_unavailable' | null
  source?: string
  events: { id: string; type: string | null }[]
  cause?: Explanation['cause']
  explanation?: string
  detail?: string
  /** What the provider wants as the answer, where it isn't our own JSON. */
  response_body?: string
}

const UNUSABLE: Record<Unusable, string> = {
  empty_body: 'The signature is right, but the body is empty: it would be quarantined.',
  not_json: 'The signature is right, but the body is not JSON: it would be quarantined.',
  too_deep: 'The signature is right, but the body is nested more than 200 levels deep: it would be quarantined.',
  no_events: 'The signature is right, but the body holds no list of events: it would be quarantined.',
  not_an_object: 'The signature is right, but an event is not a JSON object: it would be quarantined.',
  no_id: 'The signature is right, but an event has no ID: it would be quarantined.',
  bad_id: 'The signature is right, but an event has an ID that is no plain text and no exact integer: it would be quarantined.',
  id_too_long: 'The signature is right, but an event has an ID of more than 512 characters: it would be quarantined.',
}
const NO_CHALLENGE = 'A GET is answered only where it is the provider’s check of the endpoint, and this one is not.'

/** Checks the captured requests of a file; exit code 0 says verified, or all as expected, 1 not, 2 that the file can't be judged. */
export async function verifyFile(
  path: string,
  options: OutputOptions & { sources?: ReadonlyMap<string, ExplainedSource> },
): Promise<{ exitCode: 0 | 1 | 2; stdout: string }> {
  const content = await readRequests(path)
  if ('problem' in content) return { exitCode: 2, stdout: `${path}: ${content.problem}\n` }
  const results: Result[] = []
  for (const each of content.requests) {
    const result = judge(each, options.sources)
    if (typeof result === 'string')
      return { exitCode: 2, stdout: `${path}: ${each.id ? `${visible(each.id)}: ` : ''}${result}\n` }
    results.push(result)
  }
  const isGood = (result: Result, index: number) => result.verified === (content.requests[index]?.expect?.verified ?? true)
  const stdout = options.json
    ? jsonOutput(content.isList ? results : results[0])
    : results
        .map((result, index) => text(result, isGood(result, index), content.requests[index]?.expect !== undefined, options))
        .join('')
  return { exitCode: results.every(isGood) ? 0 : 1, stdout }
}

async function readRequests(path: string): Promise<{ requests: CapturedRequest[]; isList: boolean } | { problem: string }> {
  let value: unknown
  try {
    value = JSON.parse(await readFile(path, 'utf8'))
  } catch (error) {
    return {
      problem:
        error instanceof SyntaxError ? 'this file is not JSON' : `can't be read (${(error as NodeJS.ErrnoException).code})`,
    }
  }
  const parsed = file.safeParse(value)
  if (!parsed.success)
    return { problem: 'this file is no captured request: it needs headers and body_base64 (the format of the webhook vectors)' }
  const isList = Array.isArray(parsed.data)
  const requests = Array.isArray(parsed.data) ? parsed.data : [parsed.data]
  return requests.length > 0 ? { requests, isList } : { problem: 'this file holds no request' }
}

function judge(captured: CapturedRequest, sources: ReadonlyMap<string, ExplainedSource> | undefined): Result | string {
  const { config = {}, now = Math.floor(Date.now() / 1000), url = '' } = captured
  const named = captured.id === undefined ? {} : { id: captured.id }
  const source = sourceOf(captured, sources)
  if (typeof source === 'string') return source
  const { provider, secrets, toleranceSeconds } = source.explained
  const from = { ...named, ...(source.name !== undefined && { source: source.name }) }

  const query = /\?([^#]*)/.exec(url)?.[1] ?? ''
  if (captured.method?.toUpperCase() === 'GET') {
    const answer = provider.challenge?.(query, secrets)
    return answer === undefined
      ? { ...from, verified: false, reason: 'missing_signature', events: [], explanation: NO_CHALLENGE }
      : { ...from, verified: true, reason: null, events: [], response_body: answer }
  }

  const received: WebhookRequest = {
    headers: lowerCased(captured.headers),
    body: Buffer.from(captured.body_base64, 'base64'),
    query,
  }
  const keyring = keyringOf(config, provider)
  const verdict: Verdict = hasDoubledFact(provider, received.headers)
    ? { ok: false, reason: 'malformed_signature' }
    : verify(provider.scheme, received, secrets, now, toleranceSeconds, keyring)
  if (!verdict.ok) {
    const explanation = explainRefusal({
      source: source.explained,
      request: received,
      reason: verdict.reason,
      nowSeconds: now,
      url,
      // A file that brings its own secrets is judged by what is in it.
      sources: source.name === undefined ? [] : [...(sources?.values() ?? [])],
      ring: () => keyring,
    })
    return { ...from, verified: false, reason: verdict.reason, events: [], ...explanation }
  }
  const { events, unusable } = readEvents(provider, received)
  const answer = provider.answer?.(received)
  return {
    ...from,
    verified: true,
    reason: null,
    events: events.map(({ id, type }) => ({ id, type })),
    ...(unusable && { explanation: UNUSABLE[unusable] }),
    ...(answer !== undefined && { response_body: answer }),
  }
}

/** The source that a request is judged by: as the file describes it, else the one that its URL names, with what the file says instead. */
function sourceOf(
  { provider: providerName, secrets: ownSecrets, config = {}, url = '' }: CapturedRequest,
  sources: ReadonlyMap<string, ExplainedSource> | undefined,
): { name?: string; explained: ExplainedSource } | string {
  const isComplete = providerName !== undefined && ownSecrets !== undefined
  const name = /\/webhooks\/([^/?#]+)/.exec(url)?.[1]
  const source = isComplete || name === undefined ? undefined : sources?.get(name)
  let provider = source?.provider
  let options = source?.options ?? {}
  try {
    if (providerName !== undefined && providerName !== provider?.name) {
      options = optionsOf(providers.get(providerName), config)
      provider = createProvider(providerName, options)
    }
  } catch (error) {
    return (error as Error).message
  }
  // A provider that needs no secrets is judged without, if the file names none.
  const secrets = ownSecrets ?? source?.secrets ?? (provider?.secrets && [])
  if (!provider || !secrets) {
    const lacking = [!provider && '"provider"', !secrets && '"secrets"'].filter(Boolean).join(' and ')
    return `the file has no ${lacking}, and ${name ? `no source "${name}" is configured` : 'its "url" names no source (/webhooks/NAME)'}`
  }
  const toleranceSeconds = config.tolerance_seconds ?? source?.toleranceSeconds ?? provider.toleranceSeconds
  const { mode } = source ?? { mode: 'live' }
  const explained: ExplainedSource = { name: name ?? '', provider, options, secrets, mode, toleranceSeconds }
  return { ...(source && name !== undefined && { name }), explained }
}

/**
 * The options that a file gives a provider: `options` as in the configuration file, and beside it those of the vectors, whose
 * names are written with underscores. What is no option of the provider is a remark there.
 */
function optionsOf(definition: ProviderDefinition | undefined, config: CapturedConfig): Record<string, unknown> {
  const { options = {}, certs: _certs, jwks: _jwks, tolerance_seconds: _tolerance, ...others } = config
  const loose = Object.fromEntries(
    Object.entries(others).map(([name, value]) => [name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()), value]),
  )
  const issues = definition?.options.safeParse(loose).error?.issues ?? []
  const remarks = new Set(issues.flatMap((issue) => (issue.code === 'unrecognized_keys' ? issue.keys : [])))
  return { ...Object.fromEntries(Object.entries(loose).filter(([name]) => !remarks.has(name))), ...options }
}

/** The keys of the file; where it has some, a name that is not among them is known to be none. Nothing is fetched. */
function keyringOf({ certs, jwks }: CapturedConfig, { knownKeys, remoteKeys, postback }: Provider): Keyring {
  const keys = new Map<string, KeyObject | 'unknown'>()
  for (const [name, pem] of Object.entries(certs ?? {}))
    keys.set(
      name,
      orUnknown(() => new X509Certificate(pem).publicKey),
    )
  for (const [name, jwk] of Object.entries(jwks ?? {}))
    keys.set(
      name,
      orUnknown(() => createPublicKey({ key: jwk, format: 'jwk' })),
    )
  return (name, nowSeconds) => {
    const known = knownKeys?.get(name)
    if (known) return nowSeconds <= known.validUntil ? known.key : 'unknown'
    const isElsewhere = !certs && !jwks && (remoteKeys ?? postback) !== undefined
    return keys.get(name) ?? (isElsewhere ? undefined : 'unknown')
  }
}

function orUnknown(key: () => KeyObject): KeyObject | 'unknown' {
  try {
    return key()
  } catch {
    return 'unknown'
  }
}

function lowerCased(headers: CapturedRequest['headers']): Record<string, string[]> {
  const lowered: Record<string, string[]> = Object.create(null)
  for (const [name, value] of Object.entries(headers))
    lowered[name.toLowerCase()] = (lowered[name.toLowerCase()] ?? []).concat(value)
  return lowered
}

/** The verdict on a line, and below it, where it is no expected one, why. */
function text(result: Result, isGood: boolean, isExpectation: boolean, options: OutputOptions): string {
  const { id, source, verified, reason, cause, explanation, detail } = result
  const refusal = `refused: ${reason}${cause === undefined || cause === reason ? '' : `, ${cause}`}`
  const verdict = [
    source && `${source}:`,
    id,
    verified ? 'verified' : refusal,
    result.events.map(({ id, type }) => `${id} (${type ?? 'no type'})`).join(', '),
    isExpectation && !isGood && `(expected ${verified ? 'a refusal' : 'verified'})`,
  ]
  const why = isExpectation && isGood ? [] : [explanation, detail]
  const line = `${isGood ? '✓' : '✕'}  ${visible(verdict.filter(Boolean).join('  '))}`
  return [
    painted({ text: words(line, options), tone: isGood ? 'good' : 'bad' }, options),
    ...why.filter((line) => line !== undefined).map((line) => `   ${visible(line)}`),
  ]
    .map((line) => `${line}\n`)
    .join('')
}
