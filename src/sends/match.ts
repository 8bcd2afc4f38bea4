import { acceptForm } from './address.ts'
import type { State } from './lifecycle.ts'

/** Counts up when the rules below change; stored with each settlement. */
export const RULE_VERSION = 2

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

/** How far an attempt may lie before and after an event to be looked at at all, and to settle. */
export const CANDIDATE_BEFORE_MS = 14 * DAY_MS
export const CANDIDATE_AFTER_MS = HOUR_MS
/** So many candidates of an ambiguous event, the nearest ones, are shown to people. */
const SHOWN_CANDIDATES = 20
const SETTLES_AFTER_MS = DAY_MS
const SETTLES_BEFORE_MS = 2 * MINUTE_MS
const OTHERS_FROM_MS = HOUR_MS

/** A delivery event with a message ID that no attempt is known for, and one recipient. */
export interface UnknownReport {
  kind: string
  messageId: string
  recipient: string
  occurredAt: Date
  subject: string | null
}

/** An attempt without a message ID that may have been answered, to whoever may be the same recipient, of a send in any state. */
export interface Candidate {
  attempt: string
  recipient: string
  claimedAt: Date
  outcome: 'in_flight' | 'unknown' | 'accepted'
  state: State
  subject: string | null
}

/** What else is known of the recipient and of the account. */
export interface Surroundings {
  /** Other message IDs that nothing explains, parked for the same recipient, with their times. */
  others: readonly { messageId: string; occurredAt: Date }[]
  /** Nobody but this service sends with the account. */
  isExclusive: boolean
  /** No foreign event has shown otherwise, or a person has looked since. */
  isBreakerClosed: boolean
}

/** Why an event belongs to no attempt yet. */
export type Parked =
  | 'no message id'
  | 'no recipient'
  | 'foreign'
  | 'ambiguous'
  | 'in flight'
  | 'decided'
  | 'other address'
  | 'other time'
  | 'other kind'
  | 'other subject'
  | 'other message'
  | 'resend under way'
  | 'account not exclusive'
  | 'breaker open'

export type Match = { parked: Parked; candidates: string[] } | { candidate: Candidate }

/**
 * Tells which attempt an event speaks of. Narrow to accept, wide to exclude: only the one candidate there is, and only when all
 * agrees. That it is the only one left open proves nothing.
 */
export function matchReport(report: UnknownReport, attempts: readonly Candidate[], around: Surroundings): Match {
  const candidates = attempts.filter((attempt) => {
    const after = report.occurredAt.getTime() - attempt.claimedAt.getTime()
    return after >= -CANDIDATE_AFTER_MS && after <= CANDIDATE_BEFORE_MS
  })
  const [candidate, ...more] = candidates
  if (!candidate) return { parked: 'foreign', candidates: [] }
  if (more.length > 0) return { parked: 'ambiguous', candidates: nearest(report, candidates) }
  const parked = reasonAgainst(report, candidate, around)
  return parked ? { parked, candidates: [candidate.attempt] } : { candidate }
}

function nearest({ occurredAt }: UnknownReport, candidates: readonly Candidate[]): string[] {
  const distance = ({ claimedAt }: Candidate) => Math.abs(occurredAt.getTime() - claimedAt.getTime())
  const sorted = candidates.toSorted((a, b) => distance(a) - distance(b) || (a.attempt < b.attempt ? -1 : 1))
  return sorted.slice(0, SHOWN_CANDIDATES).map(({ attempt }) => attempt)
}

function reasonAgainst(report: UnknownReport, candidate: Candidate, around: Surroundings): Parked | undefined {
  if (candidate.outcome === 'in_flight') return 'in flight'
  if (acceptForm(report.recipient) !== acceptForm(candidate.recipient)) return 'other address'
  const after = report.occurredAt.getTime() - candidate.claimedAt.getTime()
  if (after < -SETTLES_BEFORE_MS || after > SETTLES_AFTER_MS) return 'other time'
  const from = candidate.claimedAt.getTime() - OTHERS_FROM_MS
  if (around.others.some(({ messageId, occurredAt }) => messageId !== report.messageId && occurredAt.getTime() >= from))
    return 'other message'
  if (report.subject !== null && candidate.subject !== null && report.subject !== candidate.subject) return 'other subject'
  if (!around.isExclusive) return 'account not exclusive'
  if (!around.isBreakerClosed) return 'breaker open'
  // That it was accepted is known; only its ID was missing.
  if (candidate.outcome === 'accepted') return undefined

  if (candidate.state === 'claimed' || candidate.state === 'sending') return 'resend under way'
  if (candidate.state === 'sent' || candidate.state === 'abandoned') return 'decided'
  return report.kind === 'delivered' || report.kind === 'bounced' ? undefined : 'other kind'
}
