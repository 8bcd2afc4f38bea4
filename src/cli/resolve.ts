import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { openJobs } from '../follow-ups/queue.ts'
import { createLog } from '../log.ts'
import { decideSend, messageIdSchema, reasonSchema, SECOND_PERSON } from '../ops/decide-send.ts'
import { findSend, type Send } from '../ops/send-queries.ts'
import { exactTimeText, sendLabels } from '../ops/words.ts'
import type { Decided } from '../sends/decide.ts'
import { findOperator } from '../sends/second-person.ts'
import { systemUser } from './environment.ts'
import { jsonOutput, mark, type OutputOptions, painted, tag, usageError, visible } from './output.ts'
import { type Conversation, INTERRUPTED } from './terminal.ts'

export interface ResolveOptions extends OutputOptions, Pick<Partial<Conversation>, 'ask'> {
  decision?: string | undefined
  reopen?: boolean | undefined
  /** Needed, but for a plan, which has its own. */
  reason?: string | undefined
  /** What is for many sends at once. */
  keys?: string[] | undefined
  filter?: string | undefined
  plan?: string | undefined
  dryRun?: boolean | undefined
  messageId?: string | undefined
  /** The version that was seen; without it the send is taken as it is now. */
  version?: number | undefined
  /** The words that a resend wants, where nobody can be asked for them. */
  confirm?: string | undefined
  by?: string | undefined
  /** Of the settings: how fast the workers call. */
  sendsPerMinute?: number | undefined
  /** Of the configuration: nobody but this service sends with the account. */
  isExclusive: boolean
  /** Of the configuration: a resend takes two people. */
  takesTwo: boolean
}

export const decisions = ['sent', 'abandoned', 'retry'] as const
/** What a person types who knows that a resend can't be undone. */
export const CONFIRMATION = 'send again'

/** `oncehook sends resolve KEY`: the same decision as `POST /v1/sends/:key/resolve` and `…/reopen`, audited under a person's name. */
export async function resolveCommand(
  pool: pg.Pool,
  databaseUrl: string,
  key: string,
  options: ResolveOptions,
): Promise<CommandResult> {
  const ofMany = (['keys', 'filter', 'plan', 'dryRun'] as const).find((each) => options[each] !== undefined)
  if (ofMany)
    return usageError([{ path: ofMany === 'dryRun' ? 'dry-run' : ofMany, message: 'is for many: without a key before it' }])
  const decision = options.reopen ? 'reopen' : decisions.find((each) => each === options.decision)
  if (!decision || (options.reopen && options.decision !== undefined))
    return usageError([{ path: 'decision', message: `say one of ${decisions.join(', ')}, or --reopen` }])
  if (options.messageId !== undefined && decision !== 'sent')
    return usageError([{ path: 'message-id', message: 'goes with --decision sent' }])
  const reason = reasonSchema.safeParse(options.reason ?? '')
  if (!reason.success) return usageError(reason.error.issues.map(({ message }) => ({ path: 'reason', message })))
  const messageId = messageIdSchema.optional().safeParse(options.messageId)
  if (!messageId.success) return usageError(messageId.error.issues.map(({ message }) => ({ path: 'message-id', message })))
  const seen = key.includes('\0') ? undefined : await findSend(pool, key, options.sendsPerMinute)
  if (!seen) return notFound(key)
  const actor = await actorFor(pool, decision, options)
  if (typeof actor !== 'string') return actor
  const version = options.version ?? seen.version
  if (decision === 'retry') {
    // Before anybody is asked to risk what can't be done anyway.
    if (!seen.needs_review) return refused({ ...seen, outcome: 'not_allowed' }, version, seen, options)
    const refusal = await confirmed(`If the first email did go out, ${seen.recipient} gets it twice.`, options)
    if (refusal) return refusal
  }
  const by = { reason: reason.data, version, actor, via: 'cli' }
  const { enqueueSends } = await openJobs(databaseUrl)
  const decided = await decideSend(
    { pool, enqueueSends, ...rulesOf(options), log: createLog('silent', 'cli') },
    key,
    decision === 'sent' ? { decision, messageId: messageId.data, ...by } : { decision, ...by },
  )
  const now = await findSend(pool, key, options.sendsPerMinute)
  if (!now) return notFound(key)
  if (decided.outcome !== 'decided' && decided.outcome !== 'asked') return refused(decided, version, now, options)
  if (options.json) return { stdout: jsonOutput(now), stderr: '', exitCode: 0 }
  const status = painted(tag(sendLabels[now.status], options), options)
  const stderr = decided.outcome === 'asked' ? 'Noted: it is sent again when another person says so too.\n' : ''
  return { stdout: `${status}  ${visible(key)}\n`, stderr, exitCode: 0 }
}

export const rulesOf = ({ isExclusive, takesTwo }: ResolveOptions) => ({
  isExclusive: () => isExclusive,
  takesTwo: () => takesTwo,
})

/** Under whose name it is decided. A resend that takes two people is of an operator who is named: a system's user proves nobody. */
export async function actorFor(
  pool: pg.Pool,
  decision: string,
  { by, takesTwo }: Pick<ResolveOptions, 'by' | 'takesTwo'>,
): Promise<string | CommandResult> {
  if (!takesTwo || decision !== 'retry') return by ?? systemUser()
  if (by === undefined) return usageError([{ path: 'by', message: `say by --by who you are: ${SECOND_PERSON}` }])
  return (
    (await findOperator(pool, by)) ??
    usageError([{ path: 'by', message: `no operator who may sign in has the name "${visible(by)}": ${SECOND_PERSON}` }])
  )
}

const notFound = (key: string): CommandResult => ({
  stdout: '',
  stderr: `oncehook: no send has the key ${visible(key)}\n`,
  exitCode: 1,
})

/** A resend can't be undone: whoever wants it says so in words. Answers how the command ends if they don't. */
export async function confirmed(
  risk: string,
  { confirm, ask, ...options }: Pick<ResolveOptions, 'confirm' | 'ask'> & OutputOptions,
): Promise<CommandResult | undefined> {
  if (confirm === CONFIRMATION) return undefined
  if (confirm !== undefined || !ask)
    return usageError([{ path: 'confirm', message: `${visible(risk)} Say --confirm '${CONFIRMATION}' if it is to be so` }])
  const answer = await ask(`${mark('ask', `${risk} Type "${CONFIRMATION}":`, options)} `)
  if (answer === undefined) return { stdout: '', stderr: '\nInterrupted: nothing was changed.\n', exitCode: INTERRUPTED }
  if (answer.trim() === CONFIRMATION) return undefined
  return { stdout: '', stderr: 'Nothing was changed.\n', exitCode: 1 }
}

function refused(
  decided: Exclude<Decided, { outcome: 'decided' | 'asked' }>,
  version: number,
  now: Send,
  options: OutputOptions,
): CommandResult {
  const result = (text: string, exitCode: 1 | 3) => ({
    stdout: '',
    stderr: `${mark('bad', `Not saved: ${text}`, options)}\n`,
    exitCode,
  })
  if (decided.outcome === 'stale') return result(`changed while you decided. ${changeText(version, now, options)}`, 3)
  if (decided.outcome === 'not_allowed')
    return result(`it is "${sendLabels[now.status].word}" by now, which can't be decided so; --reopen first.`, 3)
  if (decided.outcome === 'second_person_needed') return result(`you have asked for it already: ${SECOND_PERSON}.`, 1)
  if (decided.outcome === 'no_person') return result(`you are no operator any more: ${SECOND_PERSON}.`, 1)
  return result('another call has this message ID, its events name another recipient, or no call of this send can have it.', 1)
}

/** What has happened to a send since it was seen in this version. */
function changeText(version: number, now: Send, { zone }: OutputOptions): string {
  const versions = `(version ${version} → ${now.version})`
  const settlement = now.settlements.at(-1)
  // Written in one transaction, so that both have its time.
  if (!settlement || now.settled_at?.getTime() !== settlement.at.getTime())
    return `It is "${sendLabels[now.status].word}" now ${versions}.`
  const who = settlement.event === null ? settlement.actor.replace(/^person:/, '') : 'a delivery report'
  const time = exactTimeText(settlement.at, zone).replace(/^\S+ (\S{8})\.\d{3}/, '$1')
  return `${time} ${who} settled it as ${settlement.to_state} ${versions}.`
}
