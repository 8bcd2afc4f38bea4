import { createHash } from 'node:crypto'
import type { Source } from '../config.ts'
import type { WebhookRequest } from '../providers/provider.ts'
import { readEvents } from '../providers/read-events.ts'
import { type Reason, verify } from '../providers/signature.ts'
import type { Recorder } from './record.ts'
import type { NewEvent, RecordedEvent } from './store.ts'

export interface ReceiveDeps {
  recorder: Recorder
  /** Tells whether anything is to happen on this event, so that it gets a job. */
  isWanted(source: Source, type: string | null): boolean
  now(): number
}

export type Received =
  | { ok: false; reason: Reason }
  | { ok: true; status: 'accepted' | 'duplicate' | 'quarantined'; events: RecordedEvent[] }

/**
 * Verifies a request over its bytes, reads its events and records them; resolves when they are committed. Nothing is stored
 * without a valid signature, and nothing with one is lost: what can't be read is kept raw, as quarantined.
 */
export async function receive(deps: ReceiveDeps, source: Source, request: WebhookRequest): Promise<Received> {
  const { provider, secrets, toleranceSeconds } = source
  const verdict = verify(provider.scheme, request, secrets, Math.floor(deps.now() / 1000), toleranceSeconds)
  if (!verdict.ok) return verdict

  const sha256 = createHash('sha256').update(request.body).digest()
  const events = readNewEvents(deps, source, request, sha256)
  const headers = keepHeaders(source, request)
  const recorded = await deps.recorder.record(
    { source: source.name, body: request.body, sha256, headers, secretIndex: verdict.secretIndex, events },
    provider,
  )
  const has = (status: RecordedEvent['status']) => recorded.some((event) => event.status === status)
  return { ok: true, status: has('accepted') ? 'accepted' : has('quarantined') ? 'quarantined' : 'duplicate', events: recorded }
}

/** The events of a verified request as they are to be stored, with a quarantined one for what is no usable event. */
export function readNewEvents(
  deps: Pick<ReceiveDeps, 'isWanted'>,
  source: Source,
  request: WebhookRequest,
  sha256: Buffer,
): NewEvent[] {
  const { events, unusable } = readEvents(source.provider, request)
  const read = events.map((event): NewEvent => {
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
