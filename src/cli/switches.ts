import type pg from 'pg'
import type { CommandResult } from '../cli.ts'
import { type Db, inTransaction } from '../db.ts'
import { reasonSchema } from '../ops/decide-send.ts'
import { MOST_COUNTED } from '../ops/filters.ts'
import { findSending, type Sending } from '../ops/sending-queries.ts'
import { countText, zonedTimeText } from '../ops/words.ts'
import { type Switched, switchMatching, switchSending } from '../sends/hold.ts'
import { systemUser } from './environment.ts'
import { jsonOutput, mark, type OutputOptions, usageError, words } from './output.ts'

export interface SwitchOptions extends OutputOptions {
  reason: string
  by?: string | undefined
}

type By = { reason: string; version: number; actor: string; via: string }

/** `oncehook sending show`: the same as `GET /v1/sending`. */
export async function showSendingCommand(db: Db, options: OutputOptions): Promise<CommandResult> {
  return sendingResult(await findSending(db), options)
}

/** `oncehook sending pause|resume`: as `POST /v1/sending`. */
export async function switchSendingCommand(pool: pg.Pool, paused: boolean, options: SwitchOptions): Promise<CommandResult> {
  return switched(pool, options, (by) => inTransaction(pool, (tx) => switchSending(tx, { paused, ...by })))
}

/** `oncehook matching auto|suggest`: as `POST /v1/matching`. */
export async function switchMatchingCommand(
  pool: pg.Pool,
  mode: 'auto' | 'suggest',
  options: SwitchOptions,
): Promise<CommandResult> {
  return switched(pool, options, (by) => inTransaction(pool, (tx) => switchMatching(tx, { mode, ...by })))
}

async function switched(pool: pg.Pool, options: SwitchOptions, decide: (by: By) => Promise<Switched>): Promise<CommandResult> {
  const reason = reasonSchema.safeParse(options.reason)
  if (!reason.success) return usageError(reason.error.issues.map(({ message }) => ({ path: 'reason', message })))
  const { version } = await findSending(pool)
  const done = await decide({ reason: reason.data, version, actor: options.by ?? systemUser(), via: 'cli' })
  const now = await findSending(pool)
  if (done.outcome === 'done') return sendingResult(now, options)
  const text = `Not saved: somebody else decided meanwhile (version ${version} → ${now.version}).`
  return { stdout: '', stderr: `${mark('bad', text, options)}\n${sendingText(now, options)}`, exitCode: 3 }
}

function sendingResult(sending: Sending, options: OutputOptions): CommandResult {
  return { stdout: options.json ? jsonOutput(sending) : sendingText(sending, options), stderr: '', exitCode: 0 }
}

function sendingText(sending: Sending, options: OutputOptions): string {
  const { paused, reason, by, since, next_probe_at, matching, matching_reason, matching_since, waiting, needs_review } = sending
  const at = (time: Date | null) => zonedTimeText(time, options.zone)
  const probe = next_probe_at === null ? 'Only a person resumes it.' : `It is tried again at ${at(next_probe_at)}.`
  const why = matching_reason === null ? '' : ` since ${at(matching_since)}: ${matching_reason}`
  return [
    paused
      ? mark('bad', `Sending is paused since ${at(since)} by ${by}: ${reason}. ${probe}`, options)
      : mark('good', 'Sending runs.', options),
    mark(
      matching === 'auto' ? 'good' : 'ask',
      matching === 'auto' ? `Matching settles by itself${why}` : `Matching only suggests${why}`,
      options,
    ),
    words(
      `${countText(waiting, MOST_COUNTED)} waiting to be sent · ${countText(needs_review, MOST_COUNTED)} need a decision`,
      options,
    ),
    '',
  ].join('\n')
}
