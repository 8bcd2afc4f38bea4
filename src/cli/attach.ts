import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { createLog } from '../log.ts'
import { reasonSchema } from '../ops/decide-send.ts'
import { readRowId } from '../ops/filters.ts'
import { findSend } from '../ops/send-queries.ts'
import { sendLabels } from '../ops/words.ts'
import { type Attached, attachReport } from '../sends/attach.ts'
import { systemUser } from './environment.ts'
import { jsonOutput, mark, type OutputOptions, painted, tag, usageError, visible } from './output.ts'

export interface AttachOptions extends OutputOptions {
  /** The row of the report's event. */
  event: string
  reason: string
  otherMailbox?: boolean | undefined
  version?: number | undefined
  by?: string | undefined
  sendsPerMinute?: number | undefined
  isExclusive: boolean
}

/** `oncehook sends attach KEY --event ID`: the same as `POST /v1/sends/:key/attach`. */
export async function attachCommand(pool: pg.Pool, key: string, options: AttachOptions): Promise<CommandResult> {
  const event = readRowId(options.event)
  if (event === undefined) return usageError([{ path: 'event', message: "must be the number of an event's row" }])
  const reason = reasonSchema.safeParse(options.reason)
  if (!reason.success) return usageError(reason.error.issues.map(({ message }) => ({ path: 'reason', message })))
  const seen = key.includes('\0') ? undefined : await findSend(pool, key, options.sendsPerMinute)
  if (!seen) return { stdout: '', stderr: `oncehook: no send has the key ${visible(key)}\n`, exitCode: 1 }
  const attached = await attachReport({ pool, isExclusive: () => options.isExclusive, log: createLog('silent', 'cli') }, key, {
    event,
    version: options.version ?? seen.version,
    reason: reason.data,
    isOtherMailbox: options.otherMailbox,
    actor: options.by ?? systemUser(),
    via: 'cli',
  })
  const now = await findSend(pool, key, options.sendsPerMinute)
  if (!now || attached.outcome !== 'attached') {
    const isChanged = attached.outcome === 'stale' || attached.outcome === 'not_allowed'
    const text = `Not saved: ${refusals[attached.outcome]}.`
    return { stdout: '', stderr: `${mark('bad', text, options)}\n`, exitCode: isChanged ? 3 : 1 }
  }
  if (options.json) return { stdout: jsonOutput(now), stderr: '', exitCode: 0 }
  return {
    stdout: `${painted(tag(sendLabels[now.status], options), options)}  ${visible(key)}\n`,
    stderr: '',
    exitCode: 0,
  }
}

const refusals: Record<Attached['outcome'], string> = {
  attached: 'it has vanished',
  not_found: 'no send has this key',
  report_not_found: 'no delivery report is in this event',
  stale: 'the send has changed since it was seen',
  not_allowed: 'it is being sent just now',
  report_taken: 'the report belongs to a send already',
  message_taken: 'its message belongs to another call',
  other_mailbox: "the report names another address; say --other-mailbox if it is this send's all the same",
  no_call: 'no call of this send may have sent anything',
}
