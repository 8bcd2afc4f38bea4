import type { Send } from './send-queries.ts'
import { countText } from './words.ts'

/** One thing that happened to a send. */
export interface Moment {
  at: Date
  kind: 'received' | 'follow_up' | 'queued' | 'claimed' | 'call' | 'answer' | 'report' | 'settled'
  text: string
}

const followUpOutcomes: Record<string, string> = {
  queued: 'this send',
  held: 'no email of its own: the key is already taken',
  key_taken: 'failed: the key belongs to a send to another recipient',
  failed: 'failed',
}

const attemptOutcomes: Record<string, string> = {
  accepted: 'accepted',
  refused: 'refused, nothing was sent',
  unknown: 'unknown whether it was sent',
  never_called: 'given up before the call, nothing was sent',
}

/** Tells what happened, in the order of the times; what happened at the same time stays in the order of cause and effect. */
export function timelineOf(send: Omit<Send, 'timeline' | 'explanation'>): Moment[] {
  const moments: Moment[] = []
  const add = (at: Date | null, kind: Moment['kind'], ...parts: (string | null | false)[]) => {
    if (at) moments.push({ at, kind, text: parts.filter(Boolean).join(' ') })
  }

  for (const event of send.events) {
    const again =
      event.redeliveries > 0 && `(${event.redeliveries} ${event.redeliveries === 1 ? 'redelivery' : 'redeliveries'} later)`
    add(event.received_at, 'received', event.source, event.type, event.event_id, again)
    add(event.at, 'follow_up', `${event.rule} →`, followUpOutcomes[event.outcome] ?? event.outcome)
  }
  add(send.queued_at, 'queued', `asked for by ${send.requested_by}, policy ${send.policy}`)
  for (const attempt of send.attempts) {
    add(attempt.claimed_at, 'claimed', `attempt ${attempt.number} took the key`)
    add(attempt.called_at, 'call', `call ${attempt.number} to Inboxili`)
    const outcome = attemptOutcomes[attempt.outcome] ?? attempt.outcome
    add(
      attempt.ended_at,
      'answer',
      `call ${attempt.number}: ${outcome}${attempt.error ? `: ${attempt.error}` : ''}`,
      attempt.message_id,
    )
  }
  for (const report of send.reports) {
    add(report.received_at, 'report', report.bounce_kind, report.kind, report.message_id, `(call ${report.attempt})`)
  }
  for (const { at, from_state, to_state, grade, actor, event, rule_version, candidates, evidence } of send.settlements) {
    const line = evidence?.line === undefined ? '' : `, line ${evidence.line} of a sending log`
    const by = event === null ? `${actor}${line}` : `event ${event}`
    const count = `${candidates.length} ${candidates.length === 1 ? 'candidate' : 'candidates'}`
    add(at, 'settled', `${from_state} → ${to_state}, grade ${grade}, by ${by}, rule v${rule_version}; ${count}`)
  }
  return moments.sort((a, b) => a.at.getTime() - b.at.getTime())
}

/** Why several events, or a request and events, made one email: how many first. Null where only one asked. */
export function explanationOf({ events, requested_by, policy }: Pick<Send, 'events' | 'requested_by' | 'policy'>): string | null {
  const asked = new Set(events.filter(({ outcome }) => outcome === 'queued' || outcome === 'held').map(({ id }) => id)).size
  const isRequested = !requested_by.startsWith('event:') && events.every(({ outcome }) => outcome !== 'queued')
  if (asked + Number(isRequested) < 2) return null
  const askers = `${countText(asked)} ${asked === 1 ? 'event' : 'events'}${isRequested ? ` and a request by ${requested_by}` : ''}`
  return `${askers} → 1 email, because the key is taken${policy === 'timestamp' ? ', or an email of this kind has gone to this recipient' : ''}.`
}
