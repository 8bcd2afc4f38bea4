import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import type { Provider, WebhookRequest } from '../providers/provider.ts'
import { readEvents, type Unusable } from '../providers/read-events.ts'
import { createProvider } from '../providers/registry.ts'
import { type Reason, verify } from '../providers/signature.ts'

/** What `oncehook verify` needs of a configured source, looked up by the NAME of /webhooks/NAME. */
export type SourceLookup = (
  name: string,
) => { provider: Provider; secrets: readonly string[]; toleranceSeconds: number } | undefined

const request = z.looseObject({
  id: z.string().optional(),
  provider: z.string().optional(),
  url: z.string().optional(),
  headers: z.record(z.string(), z.union([z.string(), z.array(z.string())])),
  body_base64: z.base64(),
  secrets: z.array(z.string()).optional(),
  config: z.looseObject({ tolerance_seconds: z.number().nonnegative().optional(), options: z.unknown().optional() }).optional(),
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

interface Result {
  id?: string
  verified: boolean
  reason: Reason | null
  source?: string
  events: { id: string; type: string | null }[]
  explanation?: string
}

const EXPLANATIONS: Record<Reason | Unusable, string> = {
  signature_mismatch:
    'No configured secret made this signature over exactly these bytes: the secret is another one, or the body was changed on its way.',
  missing_signature: 'The request has no signature header, or none of a version that this provider is known to sign with.',
  malformed_signature:
    'The signature headers do not have the form that this provider sends, or one of them comes twice or without its time or ID.',
  timestamp_too_old: 'The signature is right, but the signed time lies further in the past than the tolerance allows.',
  timestamp_too_new:
    'The signature is right, but the signed time lies further in the future than the tolerance allows: compare the clocks.',
  no_matching_key: 'No configured secret is of the kind that this signature needs, or there is none at all.',
  empty_body: 'The signature is right, but the body is empty: it would be quarantined.',
  not_json: 'The signature is right, but the body is not JSON: it would be quarantined.',
  too_deep: 'The signature is right, but the body is nested more than 200 levels deep: it would be quarantined.',
  no_events: 'The signature is right, but the body holds no list of events: it would be quarantined.',
  not_an_object: 'The signature is right, but an event is not a JSON object: it would be quarantined.',
  no_id: 'The signature is right, but an event has no ID: it would be quarantined.',
  bad_id: 'The signature is right, but an event has an ID that is no plain text and no exact integer: it would be quarantined.',
  id_too_long: 'The signature is right, but an event has an ID of more than 512 characters: it would be quarantined.',
}

/** Checks the captured requests of a file; exit code 0 says verified, or all as expected, 1 not, 2 that the file can't be judged. */
export async function verifyFile(
  path: string,
  options: { json: boolean; sources?: SourceLookup },
): Promise<{ exitCode: 0 | 1 | 2; stdout: string }> {
  const content = await readRequests(path)
  if ('problem' in content) return { exitCode: 2, stdout: `${path}: ${content.problem}\n` }
  const results: Result[] = []
  for (const each of content.requests) {
    const result = judge(each, options.sources)
    if (typeof result === 'string') return { exitCode: 2, stdout: `${path}: ${each.id ? `${each.id}: ` : ''}${result}\n` }
    results.push(result)
  }
  const isGood = (result: Result, index: number) => result.verified === (content.requests[index]?.expect?.verified ?? true)
  const output = options.json
    ? JSON.stringify(content.isList ? results : results[0], undefined, 2)
    : results
        .map((result, index) => line(result, isGood(result, index), content.requests[index]?.expect !== undefined))
        .join('\n')
  return { exitCode: results.every(isGood) ? 0 : 1, stdout: `${output}\n` }
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

function judge(captured: CapturedRequest, sources: SourceLookup | undefined): Result | string {
  const { config, now = Math.floor(Date.now() / 1000) } = captured
  const isComplete = captured.provider !== undefined && captured.secrets !== undefined
  const name = /\/webhooks\/([^/?#]+)/.exec(captured.url ?? '')?.[1]
  const source = isComplete || name === undefined ? undefined : sources?.(name)
  let provider = source?.provider
  try {
    if (captured.provider !== undefined && captured.provider !== provider?.name)
      provider = createProvider(captured.provider, config?.options)
  } catch (error) {
    return (error as Error).message
  }
  const secrets = captured.secrets ?? source?.secrets
  if (!provider || !secrets) {
    const lacking = [!provider && '"provider"', !secrets && '"secrets"'].filter(Boolean).join(' and ')
    return `the file has no ${lacking}, and ${name ? `no source "${name}" is configured` : 'its "url" names no source (/webhooks/NAME)'}`
  }
  const received: WebhookRequest = { headers: lowerCased(captured.headers), body: Buffer.from(captured.body_base64, 'base64') }
  const tolerance = config?.tolerance_seconds ?? source?.toleranceSeconds ?? provider.toleranceSeconds
  const verdict = verify(provider.scheme, received, secrets, now, tolerance)
  const { events, unusable } = verdict.ok ? readEvents(provider, received) : { events: [], unusable: undefined }
  const reason = verdict.ok ? null : verdict.reason
  const explained = reason ?? unusable
  return {
    ...(captured.id !== undefined && { id: captured.id }),
    verified: verdict.ok,
    reason,
    ...(source && name && { source: name }),
    events: events.map(({ id, type }) => ({ id, type })),
    ...(explained && { explanation: EXPLANATIONS[explained] }),
  }
}

function lowerCased(headers: CapturedRequest['headers']): Record<string, string[]> {
  const lowered: Record<string, string[]> = Object.create(null)
  for (const [name, value] of Object.entries(headers))
    lowered[name.toLowerCase()] = (lowered[name.toLowerCase()] ?? []).concat(value)
  return lowered
}

function line(result: Result, isGood: boolean, isExpectation: boolean): string {
  const events = result.events.map(({ id, type }) => `${id} (${type ?? 'no type'})`).join(', ')
  return [
    isGood ? '✓' : '✕',
    result.id,
    result.verified ? 'verified' : `refused: ${result.reason}`,
    events,
    isExpectation && !isGood && `(expected ${result.verified ? 'a refusal' : 'verified'})`,
    (!isExpectation || !isGood) && result.explanation,
  ]
    .filter(Boolean)
    .join('  ')
}
