import { createHash } from 'node:crypto'
import type { Delivery } from '../../src/events/store.ts'

/** A verified delivery of one new event that nothing wants, by its ID. */
export function deliveryOf(id: string, content: string | Buffer = `{"id":"${id}"}`): Delivery {
  const body = Buffer.from(content)
  const event = {
    id,
    idBasis: 'provider' as const,
    idIsSigned: true,
    type: null,
    livemode: null,
    occurredAt: null,
    objectRef: null,
    replayKey: null,
    needsPerson: undefined,
    status: 'ignored' as const,
    error: null,
  }
  const sha256 = createHash('sha256').update(body).digest()
  return { source: 'stripe', body, sha256, headers: {}, secretIndex: 0, secretFingerprint: null, events: [event] }
}
