/** How a row names the person, or the token, that has decided about it; who has no name of a kind is a person at the command line. */
export const byPerson = (actor: string): string => (/^(person|token):/.test(actor) ? actor : `person:${actor}`)

/** The states of a send. `delivered` and `bounced` are no states but facts beside `sent`: event order must not matter. */
export const states = ['queued', 'claimed', 'sending', 'sent', 'rejected', 'needs_review', 'abandoned'] as const
export type State = (typeof states)[number]

/** What ops read: the state, or for `sent` the strongest delivery fact. Computed by the database from the row itself. */
export const statuses = [...states, 'delivered', 'bounced'] as const
export type Status = (typeof statuses)[number]

/**
 * Every legal move: by whom, to which state, from which. A late answer must not do what a person may. The same moves are
 * checked in the database and drawn in docs/sends.md. No other file writes `state`.
 */
export const moves = {
  trigger: { queued: ['rejected'] },
  claim: { claimed: ['queued', 'rejected'], sending: ['claimed'] },
  answer: {
    sent: ['sending', 'needs_review', 'queued', 'rejected'],
    rejected: ['sending', 'needs_review'],
    needs_review: ['sending'],
    queued: ['sending'],
  },
  policy: { queued: ['needs_review'], abandoned: ['needs_review'] },
  sweep: { queued: ['claimed'], needs_review: ['sending'] },
  event: { sent: ['needs_review', 'queued', 'rejected'] },
  person: {
    sent: ['needs_review'],
    abandoned: ['needs_review'],
    queued: ['needs_review'],
    needs_review: ['sent', 'abandoned'],
  },
} as const satisfies Record<string, { [To in State]?: readonly State[] }>
