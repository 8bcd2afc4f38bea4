import { hash } from 'node:crypto'
import type { Source } from '../config.ts'
import { reached } from '../fault-points.ts'
import { hasDoubledFact, type WebhookRequest } from '../providers/provider.ts'
import { readEvents } from '../providers/read-events.ts'
import { type Keyring, type Reason, type Verdict, verify } from '../providers/signature.ts'
import type { Fingerprints } from './fingerprint.ts'
import type { Recorder } from './record.ts'
import type { NewEvent, RecordedEvent } from './store.ts'
import type { Tallies } from './tallies.ts'

export interface ReceiveDeps {
  recorder: Recorder
  /** Tells whether anything is to happen on this event, so that it gets a job. */
  isWanted(source: Source, type: string | null): boolean
  keys: RemoteKeyStore
  fingerprints: Fingerprints
  tallies: Pick<Tallies, 'verified'>
  now(): number
}

/** Keys that are fetched from the providers. */
export interface RemoteKeyStore {
  ring(source: Source): Keyring
  /** Fetches what this request's signature can be checked by; the ring, for this request only, still lacks what could not be had. */
  fetch(source: Source, keyName: string, request: WebhookRequest): Promise<Keyring>
}

export type Received =
  | { ok: false; reason: Reason }
  | { ok: false; reason: 'key_unavailable' }
  /** `answer` is the text that the provider wants instead of ours. */
  | { ok: true; status: 'accepted' | 'duplicate' | 'quarantined'; events: RecordedEvent[]; answer?: string | undefined }

/**
 * Verifies a request over its bytes, reads its events and records them; resolves when they are committed. Nothing is stored
 * without a valid signature, and nothing with one is lost: what can't be read is kept raw, as quarantined. The jobs of its events
 * carry the request's ID, for the log.
 */
export async function receive(deps: ReceiveDeps, source: Source, request: WebhookRequest, requestId?: string): Promise<Received> {
  const { provider } = source
  let verdict = judge(deps, source, request, deps.keys.ring(source))
  if (!verdict.ok && verdict.reason === 'key_unavailable') {
    verdict = judge(deps, source, request, await deps.keys.fetch(source, verdict.keyName, request))
  }
  if (!verdict.ok) return verdict
  await reached('ingest.verified')
  const secretIndex = verdict.secretIndex ?? null
  const secretFingerprint = (secretIndex === null ? undefined : deps.fingerprints(source.secrets)[secretIndex]) ?? null
  deps.tallies.verified(source.name, secretFingerprint ?? '')

  const sha256 = hash('sha256', request.body, 'buffer')
  const events = readNewEvents(deps, source, request, sha256)
  const headers = keepHeaders(source, request)
  const recorded = await deps.recorder.record(
    { source: source.name, body: request.body, sha256, headers, secretIndex, secretFingerprint, events, requestId },
    provider,
  )
  await reached('ingest.committed')
  const has = (status: RecordedEvent['status']) => recorded.some((event) => event.status === status)
  const status = has('accepted') ? 'accepted' : has('quarantined') ? 'quarantined' : 'duplicate'
  return { ok: true, status, events: recorded, answer: provider.answer?.(request) }
}

function judge({ now }: ReceiveDeps, source: Source, request: WebhookRequest, ring: Keyring): Verdict {
  const { provider, secrets, toleranceSeconds } = source
  if (hasDoubledFact(provider, request.headers)) return { ok: false, reason: 'malformed_signature' }
  return verify(provider.scheme, request, secrets, Math.floor(now() / 1000), toleranceSeconds, ring)
}

/**
 * The events of a verified request as they are to be stored: quarantined where a person has to look first, with one more for what
 * is no usable event. `delivery` as in `readEvents`.
 */
export function readNewEvents(
  deps: Pick<ReceiveDeps, 'isWanted'>,
  source: Source,
  request: WebhookRequest,
  sha256: Buffer,
  delivery?: string,
): NewEvent[] {
  const { events, unusable, replayKey = null } = readEvents(source.provider, request, delivery)
  const read = events.map((event): NewEvent => {
    if (event.needsPerson !== undefined) return { ...event, status: 'quarantined', error: event.needsPerson }
    const isOtherMode = event.livemode !== null && event.livemode !== (source.mode === 'live')
    if (isOtherMode)
      return {
        ...event,
        status: 'ignored',
        error: event.livemode ? 'live event on a test source' : 'test event on a live source',
      }
    return { ...event, status: deps.isWanted(source, event.type) ? 'pending' : 'ignored', error: null }
  })
  if (unusable === undefined) return read
  return [
    ...read,
    {
      id: `sha256:${sha256.toString('hex')}`,
      idBasis: 'body_hash',
      idIsSigned: true,
      type: null,
      livemode: null,
      occurredAt: null,
      objectRef: null,
      replayKey,
      needsPerson: undefined,
      status: 'quarantined',
      error: unusable,
    },
  ]
}

const keptAlways = ['content-type', 'user-agent']

/** The headers that are stored: those that carry facts of the event, never one that may carry a credential. */
function keepHeaders({ provider }: Source, { headers }: WebhookRequest): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const name of [...keptAlways, ...(provider.factHeaders ?? [])]) {
    const value = headers[name]?.[0]
    if (value !== undefined) kept[name] = value.slice(0, 1_000)
  }
  return kept
}
