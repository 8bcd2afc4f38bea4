import type { CommandResult } from '../cli.ts'
import type { Db } from '../db.ts'
import { problemsOf, sendFilter } from '../ops/filters.ts'
import { findSend, listSends, type Send, type SendRow } from '../ops/send-queries.ts'
import { answerSentence, sendLabels, timeText } from '../ops/words.ts'
import {
  jsonOutput,
  listHint,
  type OutputOptions,
  offsetText,
  painted,
  table,
  tabSeparated,
  tag,
  usageError,
  visible,
  words,
} from './output.ts'

/** Of the settings: how fast the workers call. */
interface Rate {
  sendsPerMinute?: number | undefined
}

export interface ListSendsOptions extends OutputOptions, Rate {
  status?: string | undefined
  recipient?: string | undefined
  q?: string | undefined
  since?: string | undefined
  limit?: number | undefined
  cursor?: string | undefined
}

/** `oncehook sends list`: the same rows as `GET /v1/sends`. */
export async function listSendsCommand(db: Db, options: ListSendsOptions): Promise<CommandResult> {
  const { status, recipient, q, since, limit, cursor } = options
  const filter = sendFilter(() => new Date()).safeParse({ status, recipient, q, since, limit: limit?.toString(), cursor })
  if (!filter.success) return usageError(problemsOf(filter.error))
  const page = await listSends(db, filter.data, options.sendsPerMinute)
  const stderr = listHint(page.sends.length, 'send', page.next_cursor, options)
  return { stdout: options.json ? jsonOutput(page) : rowsText(page.sends, options), stderr, exitCode: 0 }
}

/** `oncehook sends show KEY`: the same send as `GET /v1/sends/:key`, as an answer and a timeline. */
export async function showSendCommand(db: Db, key: string, options: OutputOptions & Rate): Promise<CommandResult> {
  const send = key.includes('\0') ? undefined : await findSend(db, key, options.sendsPerMinute)
  if (!send) return { stdout: '', stderr: `oncehook: no send has the key ${visible(key)}\n`, exitCode: 1 }
  return { stdout: options.json ? jsonOutput(send) : sendText(send, options), stderr: '', exitCode: 0 }
}

function rowsText(sends: readonly SendRow[], options: OutputOptions): string {
  if (options.width === undefined) {
    return tabSeparated(
      sends.map((send) => [
        send.status,
        send.dedupe_key,
        send.recipient,
        send.queued_at.toISOString(),
        send.message_id,
        whyOf(send),
        send.eta?.toISOString() ?? null,
      ]),
    )
  }
  if (sends.length === 0) return ''
  const rows = sends.map((send) => [
    tag(sendLabels[send.status], options),
    { text: send.dedupe_key },
    { text: send.recipient },
    { text: timeText(send.queued_at) },
    { text: [whyOf(send), send.eta && `at about ${timeText(send.eta)}`].filter(Boolean).join(', ') },
  ])
  return table(['STATUS', 'KEY', 'TO', 'ASKED FOR (UTC)', 'WHY'], rows, [4, 1, 2], options)
}

const whyOf = (send: SendRow): string => send.last_error ?? (send.bounce_kind === null ? '' : `${send.bounce_kind} bounce`)

function sendText(send: Send, options: OutputOptions): string {
  const say = (text: string) => words(text, options)
  const [first] = send.timeline
  const times = send.timeline.map(({ at }, index) =>
    index === 0 || !first ? at.toISOString().replace('T', ' ') : offsetText(at.getTime() - first.at.getTime()),
  )
  const timeWidth = Math.max(0, ...times.map((time) => time.length))
  const lines = send.timeline.map(
    ({ kind, text }, index) =>
      `  ${times[index]?.padStart(timeWidth)}  ${kind.replace('_', '-').padEnd(9)}  ${say(visible(text))}`,
  )
  return [
    `${painted(tag(sendLabels[send.status], options), options)}   ${visible(send.dedupe_key)} ${say('→')} ${visible(send.recipient)}`,
    say(visible(answerSentence(send))),
    ...askersOf(send).map((line) => say(visible(line))),
    ...(send.subject === null ? [] : [`Subject: ${visible(send.subject)}`]),
    ...lines,
    '',
  ].join('\n')
}

/** Several events that made one email, and why they did. */
function askersOf({ explanation, events }: Send): string[] {
  if (explanation === null) return []
  return [explanation, ...events.map(({ source, type, event_id }) => `  ${source} ${type ?? '–'} ${event_id}`)]
}
