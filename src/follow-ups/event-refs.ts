import type { Tx } from '../db.ts'
import { refsOf } from '../providers/refs.ts'
import type { StoredEvent } from './stored-event.ts'

/** What an event names, so that people find it by that. */
export function refsIn(event: StoredEvent, payload: unknown): string[] {
  return refsOf(payload, event.object_ref, [event.event_id])
}

/** Keeps that; in the transaction of the event's result. A replay changes nothing. */
export async function noteRefs(tx: Tx, event: StoredEvent, payload: unknown): Promise<void> {
  const refs = refsIn(event, payload)
  if (refs.length === 0) return
  await tx.query({
    name: 'note-refs',
    text: 'insert into event_refs (ref, event_id) select ref, $2::bigint from unnest($1::text[]) ref on conflict do nothing',
    values: [refs, event.id],
  })
}
