import { setImmediate as nextTurn } from 'node:timers/promises'
import type pg from 'pg'
import { type Db, inTransaction, type Tx } from '../db.ts'
import { excludeForm } from './address.ts'
import { findAcceptedCalls, minutesOff } from './log-clock.ts'
import { type Coverage, coverLog, type LogReader } from './log-coverage.ts'
import { type Finding, findingOf, findOwners, newsOf, type Owner, type Reading, settleByLine } from './log-line.ts'
import type { LogLine } from './sending-log.ts'
import { rematch } from './settle.ts'

// Settles from the provider's own sending log, read in by a person: by the rule for delivery events, with the whole file before
// its eyes. A line never frees a key and never starts a send.

export interface Run extends LogReader {
  /** Nobody but this service sends with the account. */
  isExclusive: boolean
  onProgress?: ((done: number, of: number) => void) | undefined
}

/** What became of each line, and which open sends the file lacks. */
export interface Reconciled {
  lines: LineFinding[]
  coverage: Coverage
}

/** What became of one line, or would. */
export type LineFinding = { line: number; line_sha256: string } & Finding

type NamedLine = LogLine & { messageId: string }

/** The lines of one message. */
interface LoggedMessage {
  id: string
  lines: readonly NamedLine[]
  /** The recipient that its lines name, if they name one and the same. */
  matchKey: string | null
  hasSeveralRecipients: boolean
  /** When it is last heard of. */
  lastAt: Date
}

/** What a line without a time has to count as when it speaks against others. */
const ANY_TIME = new Date(8.64e15)
const LOOKED_UP_AT_ONCE = 1_000
/** The process that reads a log answers others, too. */
const MESSAGES_A_TURN = 50

/**
 * Goes through a sending log until no line changes anything more, each decision in a transaction of its own; then notes which open sends
 * the file covers and lacks. The same file again changes nothing. A run that ends halfway leaves what it did; the next one does the rest.
 */
export async function reconcile(run: Run, log: readonly LogLine[]): Promise<Reconciled> {
  const accepted = await findAcceptedCalls(run.pool, log)
  const off = minutesOff(log, accepted)
  await nextTurn()
  // Times that are off must neither find a call nor stay as a fact.
  const lines = withoutContradictions(off === null ? log : log.map((line) => ({ ...line, occurredAt: null })))
  await nextTurn()
  const found = new Map<LogLine, Finding>()
  const messages = await messagesOf(lines)
  for (const line of lines) if (line.messageId === null) found.set(line, { ...findingOf('no message id'), dedupe_key: null })
  // Of a dry run, too, whose settlements are in no table.
  const explained = new Set<string>()
  const isOpen = (line: LogLine) => !['settles', 'adds', 'known'].includes(found.get(line)?.outcome ?? 'nothing')

  let due = messages
  while (due.length > 0) {
    const { owners, openRecipients } = await lookUp(run.pool, due)
    for (const id of owners.keys()) explained.add(id)
    const unexplained = Map.groupBy(
      messages.filter(({ id }) => !explained.has(id)),
      ({ matchKey }) => matchKey,
    )
    const changed = new Set<string | null>()
    for (const [index, message] of due.entries()) {
      if (index % MESSAGES_A_TURN === 0) await nextTurn()
      const owner = owners.get(message.id)
      const open = message.lines.filter(isOpen)
      const known = open.map((line) => withoutLook(line, message, owner, openRecipients))
      const findings = known.every((finding) => finding !== undefined)
        ? known
        : await settleByMessage(run, message, open, {
            others: () => (unexplained.get(message.matchKey) ?? []).filter(({ id }) => id !== message.id && !explained.has(id)),
            explained,
          })
      for (const [index, line] of open.entries()) {
        const { owner: changedOwner, ...finding } = findings[index] as Finding & { owner?: Owner }
        found.set(line, finding)
        if (!changedOwner) continue
        explained.add(message.id)
        changed.add(message.matchKey).add(changedOwner.match_key)
      }
      run.onProgress?.(found.size, lines.length)
    }
    // What one line explains may have kept another one from being told.
    due = due.filter((message) => changed.has(message.matchKey) && message.lines.some(isOpen))
  }
  const findings = lines.map((line) => ({ line: line.line, line_sha256: line.sha256, ...(found.get(line) as Finding) })) // each has one by now
  const settled = new Set(findings.flatMap(({ outcome, dedupe_key }) => (outcome === 'settles' && dedupe_key) || []))
  await nextTurn()
  const judged = log.map((line, index) => ({ ...line, isExplained: !isOpen(lines[index] ?? line) }))
  await nextTurn()
  return { lines: findings, coverage: await coverLog(run, { lines: judged, accepted, minutesOff: off, settled }) }
}

/**
 * A message that the file has as sent in one line and as failed in another, and nowhere as arrived or returned, is failed in all: whether
 * it went out is a person's to say.
 */
function withoutContradictions(lines: readonly LogLine[]): readonly LogLine[] {
  const idsOf = (...said: LogLine['says'][]) =>
    new Set(lines.filter(({ says }) => said.includes(says)).map(({ messageId }) => messageId))
  const failed = idsOf('failed')
  const known = idsOf('delivered', 'bounced', 'complained')
  return lines.map((line) => (failed.has(line.messageId) && !known.has(line.messageId) ? { ...line, says: 'failed' } : line))
}

async function messagesOf(lines: readonly LogLine[]): Promise<LoggedMessage[]> {
  const named = lines.filter((line): line is NamedLine => line.messageId !== null)
  const messages: LoggedMessage[] = []
  for (const [id, lines] of Map.groupBy(named, ({ messageId }) => messageId)) {
    if (messages.length % MESSAGES_A_TURN === 0) await nextTurn()
    const recipients = new Set(lines.flatMap(({ recipient }) => (recipient === null ? [] : [excludeForm(recipient)])))
    const [matchKey = null] = recipients
    const times = lines.map(({ occurredAt }) => occurredAt ?? ANY_TIME)
    messages.push({
      id,
      lines,
      matchKey: recipients.size === 1 ? matchKey : null,
      hasSeveralRecipients: recipients.size > 1,
      lastAt: new Date(Math.max(...times.map((time) => time.getTime()))),
    })
  }
  return messages
}

/** Whose messages they are, and which recipients have an attempt without one: all others need no look of their own. */
async function lookUp(db: Db, messages: readonly LoggedMessage[]) {
  const owners = new Map<string, Owner>()
  const openRecipients = new Set<string>()
  for (let at = 0; at < messages.length; at += LOOKED_UP_AT_ONCE) {
    const some = messages.slice(at, at + LOOKED_UP_AT_ONCE)
    for (const [id, owner] of await findOwners(
      db,
      some.map(({ id }) => id),
    ))
      owners.set(id, owner)
    const { rows } = await db.query<{ match_key: string }>({
      name: 'find-open-recipients',
      text: `select distinct match_key from send_attempts
        where match_key = any ($1) and message_id is null and outcome in ('in_flight', 'unknown', 'accepted')`,
      values: [some.map(({ matchKey }) => matchKey)],
    })
    for (const { match_key } of rows) openRecipients.add(match_key)
  }
  return { owners, openRecipients }
}

/** What a line comes to if that can be told without locking anything: that it changes nothing. */
function withoutLook(
  line: LogLine,
  { matchKey, hasSeveralRecipients }: LoggedMessage,
  owner: Owner | undefined,
  openRecipients: ReadonlySet<string>,
): Finding | undefined {
  if (owner) {
    const news = newsOf(line, owner)
    return typeof news === 'object' ? undefined : { ...findingOf(news), dedupe_key: owner.dedupe_key }
  }
  if (line.says === 'unclear') return { ...findingOf('unclear status'), dedupe_key: null }
  if (hasSeveralRecipients) return { ...findingOf('several recipients'), dedupe_key: null }
  if (matchKey === null) return { ...findingOf('no recipient'), dedupe_key: null }
  return openRecipients.has(matchKey) ? undefined : { ...findingOf('foreign'), dedupe_key: null }
}

interface SoFar {
  others(): readonly LoggedMessage[]
  explained: ReadonlySet<string>
}

async function settleByMessage(run: Run, message: LoggedMessage, open: readonly NamedLine[], soFar: SoFar) {
  const { pool, by } = run
  const read = (tx: Tx, line: NamedLine) => settleByLine(tx, readingOf(run, message, line, soFar))
  if (!by) {
    // Together, as the later lines of a message meet what the earlier ones have done; those of an earlier pass, too.
    const earlier = message.lines.filter((line) => !open.includes(line))
    return inTransactionUndone(pool, async (tx) => {
      for (const line of earlier) await read(tx, line)
      const findings = []
      for (const line of open) findings.push(await read(tx, line))
      return findings
    })
  }
  const findings = []
  for (const line of open) {
    const finding = await inTransaction(pool, (tx) => read(tx, line))
    findings.push(finding)
    // Parked events may be told by now.
    if (finding.owner) await rematch(pool, finding.owner.match_key, run.isExclusive)
  }
  return findings
}

function readingOf(run: Run, message: LoggedMessage, line: NamedLine, { others, explained }: SoFar): Reading {
  const { matchKey, hasSeveralRecipients } = message
  return {
    line,
    matchKey,
    hasSeveralRecipients,
    recipient: line.recipient ?? message.lines.find(({ recipient }) => recipient !== null)?.recipient ?? null,
    others: others().map(({ id, lastAt }) => ({ messageId: id, occurredAt: lastAt })),
    isExplained: (messageId) => explained.has(messageId),
    isExclusive: run.isExclusive,
    fileSha256: run.fileSha256,
    ...(run.by ?? { actor: 'nobody', via: 'dry run', reason: 'dry run' }),
  }
}

/** What the work would do: all of it is undone. */
async function inTransactionUndone<Result>(pool: pg.Pool, work: (tx: Tx) => Promise<Result>): Promise<Result> {
  const undo = new Error('undo')
  let result: { value: Result } | undefined
  await inTransaction(pool, async (tx) => {
    result = { value: await work(tx) }
    throw undo
  }).catch((error: unknown) => {
    if (error !== undo) throw error
  })
  if (!result) throw new Error('a dry run has found nothing out')
  return result.value
}
