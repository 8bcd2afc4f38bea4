import type { CommandResult } from '../cli.ts'
import type { Config } from '../config.ts'
import type { Db } from '../db.ts'
import { createFingerprints, readFingerprintKey } from '../events/fingerprint.ts'
import { answerSentence } from '../ops/answer.ts'
import { problemsOf, sendFilter } from '../ops/filters.ts'
import { findSend, listSends, type Send, type SendRow } from '../ops/send-queries.ts'
import { findStory, type SendStory } from '../ops/send-story.ts'
import { secretTextOf } from '../ops/story-lines.ts'
import { durationText, exactTimeText, sendLabels, timeText } from '../ops/words.ts'
import type { Suggestion } from '../sends/suggest.ts'
import { resolveLine } from './command-line.ts'
import {
  jsonOutput,
  listHint,
  type OutputOptions,
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
  until?: string | undefined
  unknownSince?: string | undefined
  policy?: string | undefined
  source?: string | undefined
  limit?: number | undefined
  cursor?: string | undefined
}

/** `oncehook sends list`: the same rows as `GET /v1/sends`. */
export async function listSendsCommand(db: Db, options: ListSendsOptions): Promise<CommandResult> {
  const { status, recipient, q, since, until, unknownSince, policy, source, limit, cursor } = options
  const given = {
    status,
    recipient,
    q,
    since,
    until,
    unknown_since: unknownSince,
    policy,
    source,
    limit: limit?.toString(),
    cursor,
  }
  const filter = sendFilter(() => new Date()).safeParse(given)
  if (!filter.success) return usageError(problemsOf(filter.error))
  const page = await listSends(db, filter.data, options.sendsPerMinute)
  const stderr = listHint(page.sends.length, 'send', page.next_cursor, options)
  return { stdout: options.json ? jsonOutput(page) : rowsText(page.sends, options), stderr, exitCode: 0 }
}

/**
 * `oncehook sends show KEY`: the same send as `GET /v1/sends/:key`, as an answer and a timeline; one that needs a decision with what the
 * evidence suggests.
 */
export async function showSendCommand(
  db: Db,
  key: string,
  { sources = new Map(), ...options }: OutputOptions & Rate & { sources?: Config['sources'] | undefined },
): Promise<CommandResult> {
  const send = key.includes('\0') ? undefined : await findSend(db, key, options.sendsPerMinute)
  if (!send) return { stdout: '', stderr: `oncehook: no send has the key ${visible(key)}\n`, exitCode: 1 }
  if (options.json) return { stdout: jsonOutput(send), stderr: '', exitCode: 0 }
  const story = await findStory(
    db,
    send,
    secretTextOf(() => sources, createFingerprints(await readFingerprintKey(db))),
  )
  return { stdout: sendText(send, story, options), stderr: '', exitCode: 0 }
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
    { text: timeText(send.queued_at, options.zone) },
    {
      text: [isOver(send) ? '' : whyOf(send), send.eta && `at about ${timeText(send.eta, options.zone)}`]
        .filter(Boolean)
        .join(', '),
    },
  ])
  return table(['STATUS', 'KEY', 'TO', `ASKED FOR (${options.zone ?? 'UTC'})`, 'WHY'], rows, [4, 1, 2], options)
}

/** What went wrong before has been settled since. */
const isOver = ({ status }: SendRow) => status === 'sent' || status === 'delivered'
const whyOf = (send: SendRow): string => send.last_error ?? (send.bounce_kind === null ? '' : `${send.bounce_kind} bounce`)

function sendText(send: Send, { lines, evidence }: SendStory, options: OutputOptions): string {
  const say = (text: string) => words(visible(text), options)
  const [first] = lines
  const offset = (at: Date) => `+${durationText(at.getTime() - (first?.at.getTime() ?? 0))}`
  const times = lines.map(({ at, until }, index) =>
    say((index === 0 ? exactTimeText(at, options.zone) : offset(at)) + (until === null ? '' : ` → ${offset(until)}`)),
  )
  const width = (texts: readonly string[]) => Math.max(0, ...texts.map((text) => text.length))
  const titles = lines.map(({ title }) => title.toLowerCase())
  return [
    `${painted(tag(sendLabels[send.status], options), options)}   ${visible(send.dedupe_key)} ${words('→', options)} ${visible(send.recipient)}`,
    say(answerSentence(send, options.zone)),
    ...askersOf(send).map(say),
    ...(send.subject === null ? [] : [`Subject: ${visible(send.subject)}`]),
    ...lines.map(({ pieces }, index) => {
      const text = pieces.map((piece) => (typeof piece === 'string' ? piece : piece.text)).join('')
      return `  ${times[index]?.padStart(width(times))}  ${titles[index]?.padEnd(width(titles))}  ${say(text)}`
    }),
    ...(evidence?.suggestion ? suggestionLines(send, evidence.suggestion) : []).map(say),
    '',
  ].join('\n')
}

/** What the evidence suggests, and the very command that does it. */
function suggestionLines({ dedupe_key: key }: Send, { verdict, grade, message_id, explanation }: Suggestion): string[] {
  if (verdict === 'cant_tell')
    return [`Can't tell: ${explanation}`, `  ${resolveLine(key, { decision: 'sent|abandoned|retry' })}`]
  const line =
    verdict === 'sent'
      ? resolveLine(key, { decision: 'sent', ...(message_id !== null && { messageId: message_id }) })
      : resolveLine(key, { decision: 'abandoned' })
  return [`Suggested: ${verdict === 'sent' ? `sent (grade ${grade})` : 'not sent'}   ${line}`, `  ${explanation}`]
}

/** Several events that made one email, and why they did. */
function askersOf({ explanation, events }: Send): string[] {
  if (explanation === null) return []
  return [explanation, ...events.map(({ source, type, event_id }) => `  ${source} ${type ?? '–'} ${event_id}`)]
}
