import { userInfo } from 'node:os'
import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { openJobs } from '../follow-ups/queue.ts'
import { messageIdSchema, reasonSchema } from '../ops/decision-routes.ts'
import { findSend } from '../ops/send-queries.ts'
import { sendLabels } from '../ops/words.ts'
import { type Decided, decide } from '../sends/decide.ts'
import { jsonOutput, type OutputOptions, painted, tag, usageError, visible } from './output.ts'

export interface ResolveOptions extends OutputOptions {
  sent?: boolean | undefined
  abandoned?: boolean | undefined
  retry?: boolean | undefined
  reopen?: boolean | undefined
  reason: string
  messageId?: string | undefined
  /** The version that was seen; without it the send is taken as it is now. */
  version?: number | undefined
  by?: string | undefined
  /** Of the settings: how fast the workers call. */
  sendsPerMinute?: number | undefined
}

const decisions = ['sent', 'abandoned', 'retry', 'reopen'] as const

/** `oncehook sends resolve KEY`: the same decision as `POST /v1/sends/:key/resolve` and `…/reopen`, audited under a person's name. */
export async function resolveCommand(
  pool: pg.Pool,
  databaseUrl: string,
  key: string,
  options: ResolveOptions,
): Promise<CommandResult> {
  const [decision, ...more] = decisions.filter((each) => options[each] === true)
  if (!decision || more.length > 0)
    return usageError([{ path: 'decision', message: 'say one of --sent, --abandoned, --retry and --reopen' }])
  if (options.messageId !== undefined && decision !== 'sent')
    return usageError([{ path: 'message-id', message: 'goes with --sent' }])
  const reason = reasonSchema.safeParse(options.reason)
  if (!reason.success) return usageError(reason.error.issues.map(({ message }) => ({ path: 'reason', message })))
  const messageId = messageIdSchema.optional().safeParse(options.messageId)
  if (!messageId.success) return usageError(messageId.error.issues.map(({ message }) => ({ path: 'message-id', message })))
  const seen = key.includes('\0') ? undefined : await findSend(pool, key, options.sendsPerMinute)
  if (!seen) return { stdout: '', stderr: `oncehook: no send has the key ${visible(key)}\n`, exitCode: 1 }

  const by = {
    reason: reason.data,
    version: options.version ?? seen.version,
    actor: options.by ?? userInfo().username,
    via: 'cli',
  }
  const { enqueueSends } = await openJobs(databaseUrl)
  const decided = await decide(
    pool,
    enqueueSends,
    key,
    decision === 'sent' ? { decision, messageId: messageId.data, ...by } : { decision, ...by },
  )
  if (decided.outcome !== 'decided') return { stdout: '', stderr: `oncehook: ${refusalOf(decided)}\n`, exitCode: 1 }
  const send = await findSend(pool, key, options.sendsPerMinute)
  if (!send) throw new Error('a send that was decided has vanished')
  if (options.json) return { stdout: jsonOutput(send), stderr: '', exitCode: 0 }
  const status = painted(tag(sendLabels[send.status], options), options)
  return { stdout: `${status}  ${visible(key)}\n`, stderr: '', exitCode: 0 }
}

function refusalOf(decided: Exclude<Decided, { outcome: 'decided' }>): string {
  if (decided.outcome === 'not_found') return 'no send has this key'
  if (decided.outcome === 'message_taken')
    return 'another call has this message ID, its events name another recipient, or no call of this send can have it'
  if (decided.outcome === 'stale') return `the send has changed since: it is ${decided.status} now, version ${decided.version}`
  return `a send that is ${decided.status} can't be decided so; --reopen first`
}
