import type { Db } from '../db.ts'
import type { LogLine } from './sending-log.ts'

// Whether the times of a sending log are those that we would write: Inboxili logs an email that it has accepted when it was called,
// or soon after, and we know when that was.

/** When the calls were made that Inboxili has accepted, by the messages that the file names. */
export type AcceptedCalls = ReadonlyMap<string, Date>

/** A list is made a text in one piece, in which nobody else is answered. */
const LOOKED_UP_AT_ONCE = 5_000
const MINUTE_MS = 60_000
/** How far two zones are apart at most: by so much a time that names none may be another one. */
export const ZONES_APART_MS = 26 * 60 * MINUTE_MS
/** Clocks differ a little, and some logs leave out the seconds. */
const EARLIEST_MS = -2 * MINUTE_MS
/** The quickest of all emails is logged within a day. */
const LATEST_MS = 24 * 60 * MINUTE_MS

/** Finds the calls whose messages the file names, and which Inboxili has accepted. */
export async function findAcceptedCalls(db: Db, lines: readonly Pick<LogLine, 'messageId'>[]): Promise<AcceptedCalls> {
  const named = [...new Set(lines.flatMap(({ messageId }) => messageId ?? []))]
  const accepted = new Map<string, Date>()
  for (let at = 0; at < named.length; at += LOOKED_UP_AT_ONCE) {
    const { rows } = await db.query<{ message_id: string; claimed_at: Date }>(
      `select message_id, claimed_at from send_attempts where outcome = 'accepted' and message_id = any ($1)`,
      [named.slice(at, at + LOOKED_UP_AT_ONCE)],
    )
    for (const { message_id, claimed_at } of rows) accepted.set(message_id, claimed_at)
  }
  return accepted
}

/** By how many minutes the times of a log are off, less than 0 where they are early; null where they fit, or nothing can tell. */
export function minutesOff(lines: readonly Pick<LogLine, 'messageId' | 'occurredAt'>[], accepted: AcceptedCalls): number | null {
  let quickest: number | undefined
  for (const { messageId, occurredAt } of lines) {
    const calledAt = messageId === null ? undefined : accepted.get(messageId)
    if (!calledAt || occurredAt === null) continue
    const after = occurredAt.getTime() - calledAt.getTime()
    if (quickest === undefined || after < quickest) quickest = after
  }
  if (quickest === undefined || (quickest >= EARLIEST_MS && quickest <= LATEST_MS)) return null
  const minutes = Math.round(quickest / MINUTE_MS)
  // Zones differ by half hours; what is beside that is how long the email took.
  return Math.abs(minutes) < 30 ? minutes : Math.round(minutes / 30) * 30
}
