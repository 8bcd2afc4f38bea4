import type { Status } from '../sends/lifecycle.ts'
import type { Send, SendRow } from './send-queries.ts'
import { zonedTimeText } from './words.ts'

/** The facts that an answer comes from: the send, and its calls where they are known. */
export type AnswerFacts = SendRow & { attempts?: Pick<Send['attempts'][number], 'outcome' | 'called_at'>[] }

/** Did the customer get it? One sentence or two, from the state and the facts alone. */
export function answerSentence(send: AnswerFacts, zone = 'UTC'): string {
  const at = (time: Date | null) => zonedTimeText(time, zone)
  const complaint = send.complained_at === null ? '' : ` The recipient complained at ${at(send.complained_at)}.`
  return sentences[send.status](send, at) + complaint
}

type Sentence = (send: AnswerFacts, at: (time: Date | null) => string) => string

const bare = (text: string) => text.replace(/\.$/, '')
const because = (error: string | null) => (error === null ? '' : `: ${bare(error)}`)

const sentences: Record<Status, Sentence> = {
  queued: ({ queued_at, send_after, eta, last_error, ...send }, at) =>
    `Waiting to be sent${callsOf(send).mayHaveSent > 0 ? ' again' : ''} since ${at(queued_at)}${send_after ? `, not before ${at(send_after)}` : ''}${
      eta ? `, at about ${at(eta)}` : ''
    }.${last_error === null ? '' : ` Before: ${bare(last_error)}.`}`,
  claimed: ({ claimed_at }, at) => `About to be sent: a worker took the key at ${at(claimed_at)}. This call has not begun.`,
  sending: ({ sending_at }, at) => `Being sent now: the call to Inboxili began at ${at(sending_at)}.`,
  sent: (send, at) => {
    const { completed_at, bounced_at, recipient, settled_by } = send
    const person = personOf(settled_by)
    const how =
      person === undefined ? `Accepted by Inboxili for ${recipient}` : `Taken as sent to ${recipient}, as ${person} decided`
    const report = bounced_at ? `A soft bounce was reported at ${at(bounced_at)}.` : 'No report of its delivery yet.'
    return `${how} at ${at(completed_at)}. ${report}${callsText(send)}`
  },
  delivered: (send, at) => `Delivered to ${send.recipient} at ${at(send.delivered_at)}, reported by Inboxili.${callsText(send)}`,
  bounced: (send, at) =>
    `Not delivered to ${send.recipient}: it bounced at ${at(send.bounced_at)} (${
      send.bounce_kind === 'hard' ? 'hard' : 'of unknown kind'
    }).${send.delivered_at ? ` A delivery was reported too, at ${at(send.delivered_at)}.` : ''}${callsText(send)}`,
  needs_review: ({ last_error, policy, ...facts }, at) =>
    `We don't know whether this email was sent${because(last_error)}. ${
      policy === 'prefer_duplicate'
        ? 'Its policy may send it again, at most 3 calls in all, unless a person decides first.'
        : 'It will not be sent again unless a person decides.'
    }${factsText(facts, at)}`,
  rejected: ({ last_error, send_after, ...facts }, at) => {
    // An answer begins with its status; all else kept the call from being made.
    const why = /^\d{3} /.test(last_error ?? '') ? `. Inboxili refused it: ${bare(last_error ?? '')}` : because(last_error)
    const next = send_after
      ? `It is tried again from ${at(send_after)} on.`
      : 'The key is free; the next event or a replay sends it.'
    return callsOf(facts).mayHaveSent === 0
      ? `Not sent${why}. ${next}${factsText(facts, at)}`
      : `Not sent by its last call${why}. An earlier call may have sent it. ${next}${factsText(facts, at)}`
  },
  abandoned: ({ policy, settled_by, settled_at, ...facts }, at) => {
    const person = personOf(settled_by)
    if (person === undefined && policy === 'unguarded')
      return `Closed: we don't know whether it was sent, and its policy asks nobody; a new request sends a new email.${factsText(facts, at)}`
    const who = person === undefined ? '' : ` by ${person} at ${at(settled_at)}`
    return `Closed${who}: taken as not sent, and it will not be sent.${factsText(facts, at)}`
  },
}

/** Who decided; older rows name tokens and people as a person's, too. */
function personOf(settledBy: string | null): string | undefined {
  return /^(person|token):/.test(settledBy ?? '') ? settledBy?.replace(/^(person:){1,2}/, '') : undefined
}

/** Facts that came for a send which isn't taken as sent. */
function factsText(
  { delivered_at, bounced_at }: Pick<SendRow, 'delivered_at' | 'bounced_at'>,
  at: (time: Date | null) => string,
) {
  const delivered = delivered_at === null ? '' : ` A delivery was reported at ${at(delivered_at)}.`
  return delivered + (bounced_at === null ? '' : ` A bounce was reported at ${at(bounced_at)}.`)
}

function callsOf({ attempts = [] }: Pick<AnswerFacts, 'attempts'>) {
  const mayHaveSent = attempts.filter(({ outcome }) => ['accepted', 'unknown', 'in_flight'].includes(outcome)).length
  return { called: attempts.filter(({ called_at }) => called_at !== null).length, mayHaveSent }
}

function callsText(send: AnswerFacts): string {
  const { called, mayHaveSent } = callsOf(send)
  if (called === 0) return ''
  if (mayHaveSent > 1) return ` ${mayHaveSent} of its ${called} calls may have sent it.`
  return ` Sent once, ${called} ${called === 1 ? 'call' : 'calls'}.`
}
