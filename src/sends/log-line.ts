import type { Db, Tx } from '../db.ts'
import { addFact, bindMessage, closeUnknown, type Evidence, type Fact, joinReports, lockFor } from './join.ts'
import { byPerson, moves, type State } from './lifecycle.ts'
import { ZONES_APART_MS } from './log-clock.ts'
import { type Match, matchReport, type Parked, RULE_VERSION } from './match.ts'
import type { LogLine } from './sending-log.ts'
import { findAttempts, findSurroundings } from './settle.ts'

/** What a line does. In a dry run: what it would do. */
type Outcome =
  /** The send was unknown, and is sent. */
  | 'settles'
  /** A fact or a message ID that was missing is added. */
  | 'adds'
  /** Nothing: all of it is known. */
  | 'known'
  /** Nothing: it has the email as not sent, and what follows from that is a person's to say. */
  | 'look'
  /** Nothing, for this reason. */
  | 'nothing'

/** Why a line does nothing: as of a delivery event, or because of the file. */
export type Reason = Parked | 'no time' | 'several recipients' | 'unclear status' | 'logged as failed'

export interface Finding {
  outcome: Outcome
  reason: Reason | null
  /** The send that it speaks of, as far as that is sure. */
  dedupe_key: string | null
}

/** A line with what the rest of its file says, and who has read it in. */
export interface Reading {
  line: LogLine & { messageId: string }
  /** The one recipient that all lines of this message name, in its widest form, and as this line or another one writes it. */
  matchKey: string | null
  recipient: string | null
  hasSeveralRecipients: boolean
  /** Other messages of the file to this recipient that no attempt is known for. */
  others: readonly { messageId: string; occurredAt: Date }[]
  /** Of what a dry run has found out, too, and has not kept. */
  isExplained(messageId: string): boolean
  isExclusive: boolean
  fileSha256: string
  actor: string
  via: string
  reason: string
}

/** The send that a message belongs to, with what is known of it. */
export interface Owner {
  attempt: string
  dedupe_key: string
  match_key: string
  state: State
  version: number
  is_delivered: boolean
  bounce_kind: string | null
  is_complained: boolean
}

const OWNER = `attempts.id as attempt, dedupe_key, sends.match_key, state, version, delivered_at is not null as is_delivered, bounce_kind,
  complained_at is not null as is_complained`

/** The sends of messages whose attempts are known, by message. */
export async function findOwners(db: Db, messages: readonly string[]): Promise<Map<string, Owner>> {
  const { rows } = await db.query<Owner & { message_id: string }>({
    name: 'find-owners',
    text: `select attempts.message_id, ${OWNER} from send_attempts attempts join email_sends sends using (dedupe_key)
      where attempts.message_id = any ($1)`,
    values: [messages],
  })
  return new Map(rows.map(({ message_id, ...owner }) => [message_id, owner]))
}

/**
 * Settles by one line, as a delivery event would: exactly by the message ID, else by recipient and time under the same rule. It adds
 * only what is missing, as a log is less exact than an event; so it does the same thing never twice.
 */
export async function settleByLine(tx: Tx, reading: Reading): Promise<Finding & { owner?: Owner }> {
  const { line } = reading
  await lockFor(tx, reading.matchKey, line.messageId)
  const exact = await lockOwner(tx, 'attempts.message_id', line.messageId)
  if (exact) {
    const news = newsOf(line, exact)
    if (typeof news !== 'object') return { ...findingOf(news), dedupe_key: exact.dedupe_key }
    return write(tx, reading, exact, news, [exact.attempt], 'message_id')
  }

  const match = await matchLine(tx, reading)
  const [sole, ...more] = 'parked' in match ? match.candidates : [match.candidate.attempt]
  const owner = sole !== undefined && more.length === 0 ? await lockOwner(tx, 'attempts.id', sole) : undefined
  const dedupe_key = owner?.dedupe_key ?? null
  if (line.says === 'failed' && sole !== undefined) return { ...findingOf('logged as failed'), dedupe_key }
  if ('parked' in match) return { ...findingOf(match.parked), dedupe_key }
  if (!owner) throw new Error('a send with an attempt has vanished: rows of email_sends must never be deleted')

  // Of an accepted call only the message ID may be new.
  const news = newsOf(line, owner)
  if (typeof news !== 'object' && news !== 'known') return { ...findingOf(news), dedupe_key: owner.dedupe_key }
  await bindMessage(tx, owner.attempt, line.messageId)
  const written = await write(
    tx,
    reading,
    owner,
    typeof news === 'object' ? news : { isFact: false },
    [owner.attempt],
    'recipient',
  )
  await joinReports(tx, line.messageId)
  return written
}

/** That the log has it as sent shows as much as a delivery does. */
const kindOf = ({ says }: LogLine) => (says === 'sent' ? 'delivered' : says)

/** The rule for events, with what the file says of the recipient. */
async function matchLine(tx: Tx, reading: Reading): Promise<Match | { parked: Reason; candidates: string[] }> {
  const { line, matchKey, recipient, isExclusive } = reading
  const { messageId, occurredAt, namesZone, subject } = line
  if (line.says === 'unclear') return { parked: 'unclear status', candidates: [] }
  if (reading.hasSeveralRecipients) return { parked: 'several recipients', candidates: [] }
  if (matchKey === null || recipient === null) return { parked: 'no recipient', candidates: [] }
  if (occurredAt === null) return { parked: 'no time', candidates: [] }
  const attempts = await findAttempts(tx, matchKey, occurredAt, new Date(occurredAt.getTime() + (namesZone ? 0 : ZONES_APART_MS)))
  // In another zone than was said it may be of any of them.
  if (!namesZone && attempts.length > 1) return { parked: 'ambiguous', candidates: attempts.map(({ attempt }) => attempt) }
  const { others, isBreakerClosed } = await findSurroundings(tx, matchKey)
  const around = {
    others: [...others.filter((other) => !reading.isExplained(other.messageId)), ...reading.others],
    isExclusive,
    isBreakerClosed,
  }
  const report = { kind: kindOf(line), messageId, recipient, occurredAt, subject }
  const match = matchReport(report, attempts, around)
  if ('parked' in match) return match
  // Held from here on, so that no resend of it is claimed between the look and the settling.
  const owner = await lockOwner(tx, 'attempts.id', match.candidate.attempt)
  return owner ? matchReport(report, [{ ...match.candidate, state: owner.state }], around) : match
}

async function lockOwner(tx: Tx, column: 'attempts.id' | 'attempts.message_id', value: string): Promise<Owner | undefined> {
  const { rows } = await tx.query<Owner>({
    name: `lock-owner-by-${column}`,
    text: `select ${OWNER} from send_attempts attempts join email_sends sends using (dedupe_key)
      where ${column} = $1 for no key update of sends`,
    values: [value],
  })
  return rows[0]
}

/** What a line would change: whether there is a fact to add. A text says why nothing. */
export type News = { isFact: boolean } | 'known' | Reason

/** What is new in a line about the send that it belongs to. */
export function newsOf(line: LogLine, owner: Owner): News {
  if (line.says === 'unclear') return 'unclear status'
  if (line.says === 'failed') return 'logged as failed'
  const { state } = owner
  if (state === 'abandoned') return 'decided'
  const isFact = isMissing(line, owner) && line.occurredAt !== null
  const isProof = line.says !== 'complained'
  if (isFact || (isProof && (moves.event.sent as readonly State[]).includes(state))) return { isFact }
  if (isMissing(line, owner)) return 'no time'
  return isProof && (state === 'claimed' || state === 'sending') ? 'resend under way' : 'known'
}

const bounceKinds = [null, 'soft', 'unknown', 'hard']

function isMissing({ says, bounceKind }: LogLine, owner: Owner): boolean {
  if (says === 'delivered') return !owner.is_delivered
  if (says === 'complained') return !owner.is_complained
  return says === 'bounced' && bounceKinds.indexOf(owner.bounce_kind) < bounceKinds.indexOf(bounceKind)
}

/** What a line that changes nothing comes to. */
export function findingOf(why: 'known' | Reason): Omit<Finding, 'dedupe_key'> {
  if (why === 'known') return { outcome: 'known', reason: null }
  return { outcome: why === 'logged as failed' ? 'look' : 'nothing', reason: why }
}

/** Adds the fact, closes the send if it was unknown, and keeps the line as evidence and the reader in the audit log. */
async function write(
  tx: Tx,
  reading: Reading,
  owner: Owner,
  { isFact }: { isFact: boolean },
  candidates: readonly string[],
  by: 'message_id' | 'recipient',
): Promise<Finding & { owner: Owner }> {
  const { line, fileSha256, actor } = reading
  const { attempt, dedupe_key, state } = owner
  const person = byPerson(actor)
  const evidence: Evidence = {
    grade: 'P',
    candidates,
    facts: { file_sha256: fileSha256, line: line.line, line_sha256: line.sha256, says: line.says, by },
  }
  const fact: Omit<Fact, 'occurred_at'> = { event: null, kind: kindOf(line), bounce_kind: line.bounceKind, attempt, dedupe_key }
  if (isFact && line.occurredAt) await addFact(tx, { ...fact, occurred_at: line.occurredAt }, person)
  const isClosed = await closeUnknown(tx, line.messageId, { ...fact, occurred_at: line.occurredAt }, evidence, person)
  if (!isClosed) await keepLine(tx, owner, line, evidence, person)
  await tx.query({
    name: 'audit-line',
    text: `insert into audit_log (actor, via, action, subject, reason, before, after)
      select $1, $2, 'reconcile', 'send:' || dedupe_key, $4, jsonb_build_object('state', $5::text, 'version', $6::int),
        jsonb_build_object('state', state, 'version', version)
      from email_sends where dedupe_key = $3`,
    values: [actor, reading.via, dedupe_key, reading.reason, state, owner.version],
  })
  return { outcome: isClosed ? 'settles' : 'adds', reason: null, dedupe_key, owner }
}

async function keepLine(tx: Tx, owner: Owner, line: LogLine, evidence: Evidence, person: string): Promise<void> {
  await tx.query({
    name: 'keep-line',
    text: `insert into settlements (dedupe_key, attempt, grade, rule_version, from_state, to_state, candidates, evidence, event_at, actor)
      values ($1, $2, $3, $4, $5, $5, $6, $7, $8, $9)`,
    values: [
      owner.dedupe_key,
      owner.attempt,
      evidence.grade,
      RULE_VERSION,
      owner.state,
      JSON.stringify(evidence.candidates),
      JSON.stringify(evidence.facts),
      line.occurredAt,
      person,
    ],
  })
}
