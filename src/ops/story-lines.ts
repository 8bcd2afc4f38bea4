import type { Config } from '../config.ts'
import type { Fingerprints } from '../events/fingerprint.ts'
import type { State } from '../sends/lifecycle.ts'
import type { AuditRow } from './audit-queries.ts'
import type { SendEvidence } from './evidence.ts'
import type { Send } from './send-queries.ts'
import { countText, durationText, followUpWords } from './words.ts'

// How the story of a send is told: each thing that happened is a line or a few.

/** `parked` and `decided` are told where the evidence and the audit are. */
export type MomentKind =
  | 'received'
  | 'dedupe'
  | 'follow_up'
  | 'queued'
  | 'claimed'
  | 'call'
  | 'report'
  | 'parked'
  | 'settled'
  | 'decided'

/** A word that leads to an event. */
export interface EventLink {
  text: string
  event: string
}

export interface StoryLine {
  at: Date
  kind: MomentKind
  /** When it was over, for what takes time. */
  until: Date | null
  title: string
  pieces: readonly (string | EventLink)[]
  /** What stands behind it. */
  call?: Send['attempts'][number]
  settlement?: Send['settlements'][number]
}

/** One event of the story, as it lies in the database. */
export interface EventFacts {
  id: string
  source: string
  event_id: string
  /** Null once the body has been emptied. */
  bytes: number | null
  body_sha256: string
  secret_fingerprint: string | null
  benign_variants: number
  /** How often its ID came with other content, as far as that was kept. */
  conflicts: number
}

/** Which of a source's secrets has this fingerprint. */
export type SecretText = (source: string, fingerprint: string) => string

/** Tells it by what is configured when it is asked. */
export function secretTextOf(sources: () => Config['sources'], fingerprints: Fingerprints): SecretText {
  return (source, fingerprint) => {
    const secrets = sources().get(source)?.secrets ?? []
    const place = fingerprints(secrets).indexOf(fingerprint)
    return place < 0
      ? `a secret that is not configured any more (${fingerprint})`
      : `secret ${place + 1} of ${secrets.length} (${fingerprint})`
  }
}

/** How an event came, what was decided of it, and what its rule made of it. */
export function eventLines(event: Send['events'][number], facts: EventFacts | undefined, secretText: SecretText): StoryLine[] {
  const { id, source, type, event_id, received_at, occurred_at, rule, outcome, error, at } = event
  const link = { text: event_id, event: id }
  const received = [
    facts?.bytes != null && `${countText(facts.bytes)} bytes`,
    facts && `sha256 ${facts.body_sha256.slice(0, 4)}…${facts.body_sha256.slice(-4)}`,
    facts?.secret_fingerprint != null && secretText(source, facts.secret_fingerprint),
    occurred_at && occurred_at <= received_at && `created ${durationText(received_at.getTime() - occurred_at.getTime())} before`,
  ].filter(Boolean)
  return [
    line(
      received_at,
      'received',
      'Event received',
      `${source} ${type ?? '–'} `,
      link,
      received.length > 0 && `, ${received.join(', ')}`,
    ),
    line(received_at, 'dedupe', 'Decision', 'New: first time we see ', link, laterText(event, facts)),
    line(
      at,
      'follow_up',
      'Follow-up',
      `rule "${rule}" for `,
      link,
      ` ${followUpWords[outcome] ?? outcome}${error === null ? '' : `: ${error}`}`,
    ),
  ]
}

/** What came under the event's ID after it. */
function laterText({ redeliveries: all }: Send['events'][number], facts: EventFacts | undefined): string {
  const { benign_variants: variants = 0, conflicts = 0 } = facts ?? {}
  // What came with other content is counted there too.
  const redeliveries = Math.max(0, all - conflicts)
  const same =
    variants === 0 ? 'same bytes' : `${variants === redeliveries ? 'the' : `${variants} of them the`} same JSON in other bytes`
  const later = redeliveries > 0 && `${counted(redeliveries, 'redelivery', 'redeliveries')} later: ${same}`
  const other =
    conflicts > 0 && `${counted(conflicts, 'conflict', 'conflicts')}: same ID, different content, kept apart, nothing sent`
  const texts = [later, other].filter(Boolean)
  return texts.length === 0 ? '' : ` (${texts.join('; ')})`
}

/** That it was asked for is a line of its own unless an event did so: then its follow-up says it. */
export function queuedLines({
  queued_at,
  requested_by,
  policy,
  events,
  attempts,
}: Pick<Send, 'queued_at' | 'requested_by' | 'policy' | 'events' | 'attempts'>): StoryLine[] {
  if (events.some(({ id, outcome }) => outcome === 'queued' && requested_by === `event:${id}`)) return []
  // Only the last time is kept.
  const isAgain = attempts.some(({ claimed_at }) => claimed_at < queued_at)
  return [
    line(
      queued_at,
      'queued',
      isAgain ? 'Queued again' : 'Asked for',
      `${isAgain ? 'asked for ' : ''}by ${requested_by}, policy ${policy}`,
    ),
  ]
}

/** A claim, and the call under it. */
export function callLines(call: Send['attempts'][number], policy: string): StoryLine[] {
  const { number, claimed_at, called_at, ended_at } = call
  const givenUp = call.outcome === 'never_called' ? '; given up before the call, nothing was sent' : ''
  const claim = line(
    claimed_at,
    'claimed',
    'Claim',
    `${number === 1 ? 'key was free → claimed' : 'claimed again'} for call ${number}, policy ${policy}${givenUp}`,
  )
  if (!called_at) return [claim]
  return [claim, { ...line(called_at, 'call', `Call ${number}`, `${CALLED} · `, callText(call)), until: ended_at, call }]
}

/** What is asked of the email API. */
export const CALLED = 'POST /api/v1/transactional/send'

/** What a call came to. */
export function callText({ outcome, error, message_id, http_status }: Send['attempts'][number]): string {
  const status = http_status === null || error?.startsWith(String(http_status)) ? '' : `${http_status} `
  const said = `${status}${error ?? ''}`.trim()
  const end: Record<string, string> = {
    in_flight: 'no answer yet',
    accepted: said === '' ? 'accepted' : `${said} → accepted all the same, as was found later`,
    refused: `${said} → refused, nothing was sent`,
    unknown: `${said} → unknown`,
  }
  return `${end[outcome] ?? outcome}${message_id === null ? '' : `, ${message_id}`}`
}

/** A report of its delivery that was found to be of this send. */
export function reportLine(report: Send['reports'][number], settlements: Send['settlements']): StoryLine {
  const { kind, bounce_kind, message_id, event, event_id, received_at, attempt } = report
  const grade = settlements.find((settlement) => settlement.event === event)?.grade
  const what = [bounce_kind, kind].filter(Boolean).join(' ')
  return line(
    received_at,
    'report',
    'Report',
    [what, message_id, `of call ${attempt}`, grade && `${grades[grade] ?? grade} (grade ${grade})`].filter(Boolean).join(', '),
    ', ',
    { text: event_id, event },
  )
}

const grades: Record<string, string> = {
  A: 'by its own ID',
  B: 'by recipient and time',
  C: 'by recipient and time of receipt',
  P: 'by a person',
}

/** A report that may be of this send. */
export function parkedLine({
  kind,
  message_id,
  occurred_at,
  parked,
  dismissed_at,
  event,
  event_id,
}: SendEvidence['candidates'][number]): StoryLine {
  const why = dismissed_at ? 'a person said: not ours' : `parked: ${parked}`
  return line(
    occurred_at,
    'parked',
    'Report',
    `${[kind, message_id].filter(Boolean).join(', ')}, perhaps of this send, ${why}, `,
    {
      text: event_id,
      event,
    },
  )
}

/** A decision has its line from the audit, with its reason. */
export const isOfAudit = ({ grade, event, at }: Send['settlements'][number], audit: readonly AuditRow[]) =>
  grade === 'P' && event === null && audit.some((row) => row.at.getTime() === at.getTime())

/** What closed it. */
export function settledLine(settlement: Send['settlements'][number], events: ReadonlyMap<string, EventFacts>): StoryLine {
  const { at, event, from_state, to_state, grade, rule_version, candidates, actor, evidence } = settlement
  const text = `${stateWords[from_state as State] ?? from_state} → ${stateWords[to_state as State] ?? to_state}, by `
  const log = typeof evidence?.line === 'number' ? `, line ${evidence.line} of a sending log` : ''
  const by = event === null ? `${actor}${log}` : { text: `report ${events.get(event)?.event_id ?? event}`, event }
  return {
    ...line(
      at,
      'settled',
      'Settled',
      text,
      by,
      `, grade ${grade}, rule v${rule_version}; ${counted(candidates.length, 'candidate', 'candidates')}`,
    ),
    settlement,
  }
}

/** A state in the middle of a sentence. */
const stateWords: Record<State, string> = {
  queued: 'waiting',
  claimed: 'about to send',
  sending: 'sending',
  sent: 'sent',
  rejected: 'not sent',
  needs_review: 'needs a decision',
  abandoned: 'closed',
}

/** How people read what the audit calls an action on a send. */
export const decisionWords: Record<string, string> = {
  sent: 'it was sent',
  abandoned: 'not sent, leave it',
  retry: 'send it again',
  ask_retry: 'send it again, if another person says so too',
  reopen: 'look at it again',
  attach: 'the report is of this send',
  reconcile: 'settled by a line of a sending log',
}

/** A line without its links. */
export const lineText = ({ title, pieces }: StoryLine) =>
  `${title}: ${pieces.map((piece) => (typeof piece === 'string' ? piece : piece.text)).join('')}`

/** What somebody decided or asked for, and why. */
export const decidedLine = (row: AuditRow): StoryLine =>
  line(
    row.at,
    'decided',
    isAsk(row) ? 'Asked' : 'Decided',
    `${personOf(row.actor)}: ${decisionWords[row.action] ?? row.action}${plannerText(row)}${reasonText(row)} (${row.via})`,
  )

/** A wish that another person has to share; nothing is decided by it. */
export const isAsk = ({ action }: Pick<AuditRow, 'action'>): boolean => action === 'ask_retry'

/** Who made the plan that somebody else has carried out: the reason is theirs. */
export const plannerText = ({ after }: Pick<AuditRow, 'after'>): string =>
  typeof after === 'object' && after !== null && 'planned_by' in after
    ? `, as planned by ${personOf(String(after.planned_by))}`
    : ''

const reasonText = ({ reason }: AuditRow) => (reason === null ? '' : `, because "${reason}"`)

const personOf = (actor: string) => actor.replace(/^person:/, '')

const line = (at: Date, kind: MomentKind, title: string, ...pieces: (string | false | EventLink)[]): StoryLine => ({
  at,
  kind,
  until: null,
  title,
  pieces: pieces.flatMap((piece) => (piece === false || piece === '' ? [] : [piece])),
})

const counted = (count: number, one: string, more: string) => `${countText(count)} ${count === 1 ? one : more}`
