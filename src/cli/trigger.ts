import type { CommandResult } from '../cli.ts'
import type { Source } from '../config.ts'
import { providers } from '../providers/registry.ts'
import { sampleRequest } from '../sandbox/samples.ts'
import { readTestKeys } from './test-keys.ts'

export interface TriggerOptions {
  url: string
  /** Without one the types are listed that are known. */
  type?: string
  id?: string
  /** The ID of an earlier sample: another event of the same object. */
  about?: string
  email?: string
  count?: number
  /** Where the keys stand that a running start takes for those of providers that sign by a key of their own. */
  testKeysPath?: string | undefined
}

/** What a sample whose ID is given says of when it happened: whenever it is posted again, its bytes are the same. */
const GIVEN_AT_SECONDS = Date.UTC(2026, 0, 1) / 1000

/** `oncehook trigger`: signs a sample event as its provider would, and posts it. */
export async function triggerCommand(
  source: Source,
  { url, type, id, about, email, count = 1, testKeysPath }: TriggerOptions,
): Promise<CommandResult> {
  if (type === undefined) return { stdout: knownTypes(source), stderr: '', exitCode: 0 }
  if (about !== undefined && !providers.get(source.provider.name)?.sample.tellsAbout)
    return {
      stdout: '',
      stderr: `oncehook: --about: samples of ${source.provider.name} are each of an object of their own\n`,
      exitCode: 2,
    }
  const secret = source.secrets[0] ?? ''
  const { headers, body, query } = sampleRequest({
    provider: source.provider.name,
    options: source.options,
    secret,
    type,
    nowSeconds: Math.floor(Date.now() / 1000),
    livemode: source.mode === 'live',
    ...(testKeysPath !== undefined && { privateKeys: readTestKeys(testKeysPath) }),
    ...(id !== undefined && { id, happenedSeconds: GIVEN_AT_SECONDS }),
    ...(about !== undefined && { about }),
    ...(email !== undefined && { email }),
  })
  const answers = await Promise.all(
    Array.from({ length: count }, async () => {
      const response = await fetch(`${url}/webhooks/${source.name}${query ? `?${query}` : ''}`, {
        method: 'POST',
        headers,
        body: new Uint8Array(body),
      }).catch((error: Error & { cause?: { code?: string } }) => {
        throw new Error(`${url} does not answer (${error.cause?.code ?? error.message}): is the service running there?`)
      })
      return { status: response.status, text: await response.text() }
    }),
  )
  const isRefused = answers.some(({ status }) => status === 401)
  return {
    stdout: answers.map(({ status, text }) => `${`${status} ${text}`.trimEnd()}\n`).join(''),
    stderr: isRefused
      ? `Refused: does the service at ${url} have another configuration, or other secrets, than this folder?\n`
      : '',
    exitCode: answers.every(({ status }) => status >= 200 && status < 300) ? 0 : 1,
  }
}

function knownTypes({ name, provider }: Source): string {
  const types = Object.entries(providers.get(provider.name)?.sample.types ?? {})
  if (types.length === 0) return `${provider.name} has no payment events; name the type of another one.\n`
  const width = Math.max(...types.map(([, type]) => type.length))
  const lines = types.map(([fact, type]) => `  ${type.padEnd(width)}  ${fact}\n`)
  return `The payment events of ${name}; another type gives a sample in the same form.\n${lines.join('')}`
}
