import type { Status } from '../sends/lifecycle.ts'
import type { EventStatus } from './filters.ts'
import type { Send, SendRow } from './send-queries.ts'

/** How people read a status: the word is always there, the icon only helps. */
export interface Label {
  word: string
  icon: string
  /** For terminals that can't show the icon. */
  ascii: string
  tone: 'quiet' | 'busy' | 'good' | 'bad' | 'ask'
}

export const sendLabels = {
  queued: { word: 'Waiting to send', icon: '○', ascii: 'o', tone: 'quiet' },
  claimed: { word: 'About to send', icon: '○', ascii: 'o', tone: 'quiet' },
  sending: { word: 'Sending now', icon: '◐', ascii: '~', tone: 'busy' },
  sent: { word: 'Sent, not confirmed', icon: '→', ascii: '>', tone: 'busy' },
  delivered: { word: 'Delivered', icon: '✓', ascii: '+', tone: 'good' },
  bounced: { word: 'Bounced', icon: '✕', ascii: 'x', tone: 'bad' },
  needs_review: { word: 'Needs a decision', icon: '?', ascii: '?', tone: 'ask' },
  rejected: { word: 'Not sent, key free', icon: '⊘', ascii: '!', tone: 'bad' },
  abandoned: { word: 'Closed', icon: '–', ascii: '-', tone: 'quiet' },
} as const satisfies Record<Status, Label>

export const eventLabels = {
  pending: { word: 'Waiting', icon: '○', ascii: 'o', tone: 'quiet' },
  processed: { word: 'Processed', icon: '✓', ascii: '+', tone: 'good' },
  ignored: { word: 'Kept, no rule wants it', icon: '–', ascii: '-', tone: 'quiet' },
  failed: { word: 'Failed', icon: '✕', ascii: 'x', tone: 'bad' },
  quarantined: { word: 'Quarantined', icon: '?', ascii: '?', tone: 'ask' },
} as const satisfies Record<EventStatus, Label>

/** A time as people read it in a list, in UTC. */
export const timeText = (at: Date | null): string => (at === null ? '–' : at.toISOString().slice(0, 19).replace('T', ' '))

/** Did the customer get it? One sentence or two, from the state and the facts alone. */
export function answerSentence(send: SendRow): string {
  const complaint = send.complained_at === null ? '' : ` The recipient complained at ${timeText(send.complained_at)} UTC.`
  return sentences[send.status](send) + complaint
}

/** Why several events, or a request and events, made one email: how many first. Null where only one asked. */
export function explanationOf({ events, requested_by, policy }: Pick<Send, 'events' | 'requested_by' | 'policy'>): string | null {
  const asked = new Set(events.filter(({ outcome }) => outcome === 'queued' || outcome === 'held').map(({ id }) => id)).size
  const isRequested = !requested_by.startsWith('event:') && events.every(({ outcome }) => outcome !== 'queued')
  if (asked + Number(isRequested) < 2) return null
  const askers = `${asked} ${asked === 1 ? 'event' : 'events'}${isRequested ? ` and a request by ${requested_by}` : ''}`
  return `${askers} → 1 email, because the key is taken${policy === 'timestamp' ? ', or an email of this kind has gone to this recipient' : ''}.`
}

const because = (error: string | null) => (error === null ? '' : `: ${error}`)
const utc = (at: Date | null) => `${timeText(at)} UTC`

const sentences: Record<Status, (send: SendRow) => string> = {
  queued: ({ queued_at, send_after, eta, last_error }) =>
    `Waiting to be sent since ${utc(queued_at)}${send_after ? `, not before ${utc(send_after)}` : ''}${eta ? `, at about ${utc(eta)}` : ''}${because(last_error)}.`,
  claimed: ({ claimed_at }) => `About to be sent: a worker took the key at ${utc(claimed_at)}. Nothing has been sent yet.`,
  sending: ({ sending_at }) => `Being sent now: the call to Inboxili began at ${utc(sending_at)}.`,
  sent: ({ completed_at, bounced_at, recipient }) =>
    `Accepted by Inboxili for ${recipient} at ${utc(completed_at)}. ${bounced_at ? `A soft bounce was reported at ${utc(bounced_at)}.` : 'No report of its delivery yet.'}`,
  delivered: ({ recipient, delivered_at }) => `Delivered to ${recipient} at ${utc(delivered_at)}, reported by Inboxili.`,
  bounced: ({ recipient, bounced_at, bounce_kind }) =>
    `Not delivered to ${recipient}: it bounced at ${utc(bounced_at)} (${bounce_kind === 'unknown' ? 'of unknown kind' : bounce_kind}).`,
  needs_review: ({ last_error }) =>
    `We don't know whether this email was sent${because(last_error)}. It will not be sent again unless a person decides.`,
  rejected: ({ last_error, send_after }) =>
    `Not sent${because(last_error)}. ${send_after ? `It is tried again from ${utc(send_after)} on.` : 'The key is free; the next event or a replay sends it.'}`,
  abandoned: () => 'Closed: taken as not sent, and it will not be sent.',
}
