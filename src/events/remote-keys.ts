import type { KeyObject } from 'node:crypto'
import type { Source } from '../config.ts'
import type { Log } from '../log.ts'
import type { KnownKey, RemoteKeys, WebhookRequest } from '../providers/provider.ts'
import { providers } from '../providers/registry.ts'
import type { Keyring } from '../providers/signature.ts'
import { createAsker } from './postback.ts'
import { callProvider, type Fetch, type ProviderAnswer } from './provider-calls.ts'
import type { RemoteKeyStore } from './receive.ts'
import type { TestKeys } from './test-keys.ts'

export interface RemoteKeysDeps {
  log: Pick<Log, 'info' | 'warn'>
  fetch?: Fetch
  now?(): number
  /** Public keys that samples are signed with; never in production. */
  testKeys?: TestKeys | undefined
}

/** A key that a provider has withdrawn stops being used after this long. */
const LONGEST_USE_SECONDS = 24 * 60 * 60
const UNKNOWN_SECONDS = 60
/** Names are made up by whoever posts: what is kept of them is bounded, and so is what is asked because of them. */
const MOST_NAMES = 1_000
const MOST_FETCHES_AT_ONCE = 4
const NEW_NAMES_A_MINUTE = 30

/** What is known of the keys of one source. A source that is configured anew starts with nothing. */
interface SourceKeys {
  keys: Map<string, KnownKey>
  unknownUntil: Map<string, number>
  untrustedUntil: Map<string, number>
  fetching: Map<string, Promise<void>>
  mayFetch(nowSeconds: number): boolean
}

/**
 * Keys that are fetched from the providers and kept in memory. One that can't be had now stays missing, so that the provider delivers
 * again; that there surely is none is remembered for a minute.
 */
export function createRemoteKeys({ log, fetch = globalThis.fetch, now = Date.now, testKeys }: RemoteKeysDeps): RemoteKeyStore {
  const known = new WeakMap<Source, SourceKeys>()
  const ask = createAsker({ log, fetch, now })
  let fetches = 0

  function keysOf(source: Source): SourceKeys {
    const found = known.get(source) ?? {
      keys: new Map(),
      unknownUntil: new Map(),
      untrustedUntil: new Map(),
      fetching: new Map(),
      mayFetch: bucket(NEW_NAMES_A_MINUTE),
    }
    known.set(source, found)
    return found
  }

  function ring(source: Source): Keyring {
    const { provider } = source
    return (name, nowSeconds) => {
      const testKey = testKeys && testKeyOf(source, name, testKeys)
      if (testKey) return testKey
      const pinned = provider.knownKeys?.get(name)
      if (pinned) return nowSeconds <= pinned.validUntil ? pinned.key : 'unknown'
      if (provider.postback) return undefined
      if (!provider.remoteKeys) return 'unknown'
      const { keys, unknownUntil } = keysOf(source)
      const fetched = keys.get(name)
      if (fetched && nowSeconds <= fetched.validUntil) return fetched.key
      return nowSeconds < (unknownUntil.get(name) ?? 0) ? 'unknown' : undefined
    }
  }

  async function fetchKey(source: Source, remote: RemoteKeys, name: string): Promise<void> {
    const { keys, unknownUntil, untrustedUntil } = keysOf(source)
    fetches += 1
    const answer = await callProvider(fetch, remote.request(name, source.secrets)).finally(() => {
      fetches -= 1
    })
    const nowSeconds = Math.floor(now() / 1000)
    const found = answer && readKey(remote, answer, name, nowSeconds)
    // Never the name, which is what an unsigned request said.
    const facts = { source: source.name, status: answer?.status }
    if (found === undefined) {
      if (answer?.status === 200) keep(untrustedUntil, name, nowSeconds + UNKNOWN_SECONDS)
      return log.warn(facts, 'a key could not be fetched from the provider, or not be trusted')
    }
    if (found === 'none') {
      keep(unknownUntil, name, nowSeconds + UNKNOWN_SECONDS)
      return log.warn(facts, 'the provider has no key that could be trusted under this name')
    }
    keep(keys, name, { key: found.key, validUntil: Math.min(found.validUntil, nowSeconds + LONGEST_USE_SECONDS) })
    log.info(facts, 'key fetched from the provider')
  }

  return {
    ring,
    async fetch(source: Source, name: string, request: WebhookRequest): Promise<Keyring> {
      const { provider } = source
      if (provider.postback) {
        const word = await ask(source, provider.postback, request)
        return () => word
      }
      const { keys, untrustedUntil, fetching, mayFetch } = keysOf(source)
      let running = fetching.get(name)
      const mayStart = () =>
        now() / 1000 >= (untrustedUntil.get(name) ?? 0) &&
        fetches < MOST_FETCHES_AT_ONCE &&
        (keys.has(name) || mayFetch(now() / 1000))
      if (!running && provider.remoteKeys && mayStart()) {
        running = fetchKey(source, provider.remoteKeys, name).finally(() => fetching.delete(name))
        fetching.set(name, running)
      }
      await running
      return ring(source)
    },
  }
}

function readKey(
  remote: RemoteKeys,
  { status, text }: ProviderAnswer,
  name: string,
  nowSeconds: number,
): KnownKey | 'none' | undefined {
  // What can't be read or trusted may be a proxy's page, or a chain that this machine doesn't know: no word of the provider.
  if (status === 200) return text === undefined ? undefined : remote.read(text, name, nowSeconds)
  const isNone = remote.isNone?.(status, text ?? '') ?? [400, 404, 410].includes(status)
  return isNone ? 'none' : undefined
}

/** The key that this source's samples are signed with, where the name is one of those that they ask for. */
function testKeyOf({ provider, options }: Source, name: string, testKeys: TestKeys): KeyObject | undefined {
  if (!providers.get(provider.name)?.sample.keyNames?.(options).includes(name) || 'isUnsigned' in provider.scheme)
    return undefined
  const kind = provider.scheme.signatures.find((each) => each.secret === 'remote')?.kind
  return kind === 'rsa' || kind === 'ecdsa' || kind === 'ed25519' ? testKeys[kind] : undefined
}

function keep<Value>(map: Map<string, Value>, name: string, value: Value): void {
  map.delete(name)
  map.set(name, value)
  const [oldest] = map.keys()
  if (map.size > MOST_NAMES && oldest !== undefined) map.delete(oldest)
}

/** Says yes so many times a minute, saved up for at most one. */
function bucket(aMinute: number): (nowSeconds: number) => boolean {
  let left = aMinute
  let at = 0
  return (nowSeconds) => {
    left = Math.min(aMinute, left + (Math.max(0, nowSeconds - at) * aMinute) / 60)
    at = nowSeconds
    if (left < 1) return false
    left -= 1
    return true
  }
}
