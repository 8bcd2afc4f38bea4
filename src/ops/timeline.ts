import type { Send } from './send-queries.ts'
import {
  CALLED,
  callLines,
  callText,
  type EventFacts,
  eventLines,
  lineText,
  type MomentKind,
  queuedLines,
  reportLine,
  type StoryLine,
  settledLine,
} from './story-lines.ts'
import { countText } from './words.ts'

/** One thing that happened to a send. */
export interface Moment {
  at: Date
  kind: Exclude<MomentKind, 'parked' | 'decided'> | 'answer'
  text: string
}

/**
 * Tells what happened in the words of its story, in the order of the times; what happened at the same time stays in the order of cause
 * and effect. What people decided is in the audit, which not every role may read.
 */
export function timelineOf(send: Omit<Send, 'timeline' | 'explanation'>, events: ReadonlyMap<string, EventFacts>): Moment[] {
  const lines = [
    ...send.events.flatMap((event) => eventLines(event, events.get(event.id), (_source, fingerprint) => `secret ${fingerprint}`)),
    ...queuedLines(send),
    ...send.attempts.flatMap((attempt) => callLines(attempt, send.policy)),
    ...send.reports.map((report) => reportLine(report, send.settlements)),
    ...send.settlements.map((settlement) => settledLine(settlement, events)),
  ]
  return lines.flatMap(momentsOf).sort((a, b) => a.at.getTime() - b.at.getTime())
}

/** A call and its answer are two. */
function momentsOf(line: StoryLine): Moment[] {
  const { at, until, kind, title, call } = line
  if (kind === 'parked' || kind === 'decided') return []
  if (!call) return [{ at, kind, text: lineText(line) }]
  const called: Moment = { at, kind, text: `${title}: ${CALLED}` }
  return until ? [called, { at: until, kind: 'answer', text: `${title}: ${callText(call)}` }] : [called]
}

/** Why several events, or a request and events, made one email: how many first. Null where only one asked. */
export function explanationOf({ events, requested_by, policy }: Pick<Send, 'events' | 'requested_by' | 'policy'>): string | null {
  const asked = new Set(events.filter(({ outcome }) => outcome === 'queued' || outcome === 'held').map(({ id }) => id)).size
  const isRequested = !requested_by.startsWith('event:') && events.every(({ outcome }) => outcome !== 'queued')
  if (asked + Number(isRequested) < 2) return null
  const askers = `${countText(asked)} ${asked === 1 ? 'event' : 'events'}${isRequested ? ` and a request by ${requested_by}` : ''}`
  return `${askers} → 1 email, because the key is taken${policy === 'timestamp' ? ', or an email of this kind has gone to this recipient' : ''}.`
}
