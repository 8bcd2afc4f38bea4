import type { CommandResult } from '../cli.ts'
import type { Db } from '../db.ts'
import { type EventRow, findEvent, listEvents, type WebhookEvent } from '../ops/event-queries.ts'
import { eventFilter, problemsOf, readRowId } from '../ops/filters.ts'
import { countText, dedupeLabels, eventLabels, sendLabels, timeText, zonedTimeText } from '../ops/words.ts'
import {
  jsonOutput,
  listHint,
  manyText,
  type OutputOptions,
  painted,
  table,
  tabSeparated,
  tag,
  usageError,
  visible,
  words,
} from './output.ts'

export interface ListEventsOptions extends OutputOptions {
  source?: string | undefined
  eventId?: string | undefined
  type?: string | undefined
  ref?: string | undefined
  mode?: string | undefined
  has?: string | undefined
  status?: string | undefined
  since?: string | undefined
  until?: string | undefined
  limit?: number | undefined
  cursor?: string | undefined
}

/** `oncehook events list`: the same rows as `GET /v1/events`. */
export async function listEventsCommand(db: Db, options: ListEventsOptions): Promise<CommandResult> {
  const { source, eventId, type, ref, mode, has, status, since, until, limit, cursor } = options
  const given = { source, event_id: eventId, type, ref, mode, has, status, since, until, limit: limit?.toString(), cursor }
  const filter = eventFilter(() => new Date()).safeParse(given)
  if (!filter.success) return usageError(problemsOf(filter.error))
  const page = await listEvents(db, filter.data)
  const stderr = listHint(page.events.length, 'event', page.next_cursor, options)
  return { stdout: options.json ? jsonOutput(page) : rowsText(page.events, options), stderr, exitCode: 0 }
}

/** `oncehook events show ID`: the same event as `GET /v1/events/:id`; by the provider's own ID too, where one event has it. */
export async function showEventCommand(db: Db, id: string, options: OutputOptions): Promise<CommandResult> {
  const rowId = readRowId(id)
  const byRow = rowId === undefined ? undefined : await findEvent(db, rowId)
  const named = byRow ? [] : await listNamed(db, id)
  const [only, ...more] = named
  if (only && more.length > 0) {
    const stderr = `oncehook: several events have the id ${visible(id)}; name one by its row\n`
    return { stdout: options.json ? jsonOutput({ events: named }) : rowsText(named, options), stderr, exitCode: 1 }
  }
  const event = byRow ?? (only && (await findEvent(db, only.id)))
  if (!event) return { stdout: '', stderr: `oncehook: no event has the id ${visible(id)}\n`, exitCode: 1 }
  return { stdout: options.json ? jsonOutput(event) : eventText(event, options), stderr: '', exitCode: 0 }
}

/** The newest events that their providers named so. */
async function listNamed(db: Db, id: string): Promise<EventRow[]> {
  const filter = eventFilter(() => new Date()).safeParse({ event_id: id, limit: '20' })
  return filter.success ? (await listEvents(db, filter.data)).events : []
}

function rowsText(events: readonly EventRow[], options: OutputOptions): string {
  if (options.width === undefined) {
    return tabSeparated(
      events.map((event) => [
        event.id,
        event.status,
        event.source,
        event.type,
        event.event_id,
        event.received_at.toISOString(),
        String(event.redeliveries),
        event.error,
      ]),
    )
  }
  if (events.length === 0) return ''
  const rows = events.map((event) => [
    { text: event.id },
    tag(eventLabels[event.status], options),
    { text: event.source },
    { text: event.type ?? words('–', options) },
    { text: event.event_id },
    { text: timeText(event.received_at, options.zone) },
    { text: countText(event.redeliveries), isFigure: true },
    { text: event.error ?? '' },
  ])
  const headers = ['ID', 'STATUS', 'SOURCE', 'TYPE', 'EVENT ID', `RECEIVED (${options.zone ?? 'UTC'})`, 'AGAIN', 'WHY']
  return table(headers, rows, [7, 4, 3, 2], options)
}

function eventText(event: WebhookEvent, options: OutputOptions): string {
  const say = (text: string) => words(text, options)
  const mode = event.livemode === null ? undefined : event.livemode ? 'live mode' : 'test mode'
  const at = (time: Date | null) => zonedTimeText(time, options.zone)
  const body = event.body_bytes === null ? 'body emptied by retention' : `body of ${manyText(event.body_bytes, 'byte')}`
  const facts = [`Received ${at(event.received_at)}`, mode, `id from ${event.id_basis}`, body, `sha256 ${event.body_sha256}`]
  const again = [
    `${countText(event.redeliveries)} ${event.redeliveries === 1 ? 'redelivery' : 'redeliveries'}, last ${at(event.last_redelivered_at)}`,
    event.benign_variants > 0 && `${countText(event.benign_variants)} × ${dedupeLabels.same_json.word}`,
  ]
  const { report } = event
  return [
    `${painted(tag(eventLabels[event.status], options), options)}   ${visible([event.source, event.type, event.event_id].filter(Boolean).join(' '))}   event ${event.id}`,
    say(visible(facts.filter(Boolean).join(' · '))),
    ...(event.error === null ? [] : [`Why: ${visible(event.error)}`]),
    ...(event.redeliveries === 0 ? [] : [say(again.filter(Boolean).join(' · '))]),
    ...event.conflicts.map(
      (conflict) =>
        `${dedupeLabels.conflict.word}, at ${at(conflict.received_at)}, ${manyText(conflict.times, 'time')}, sha256 ${conflict.body_sha256}`,
    ),
    ...(report === null
      ? []
      : [
          say(visible(`Report: ${report.kind} ${report.message_id ?? '–'} → ${report.dedupe_key ?? `parked: ${report.parked}`}`)),
        ]),
    ...(event.object === null ? [] : objectLines(event, event.object, options)),
    ...event.sends.map(({ rule, outcome, dedupe_key, status, recipient, error }) => {
      const state = status === null ? '' : `${painted(tag(sendLabels[status], options), options)}   `
      const send = dedupe_key === null ? '' : ` ${say('→')} ${visible(dedupe_key)} ${say('→')} ${visible(recipient ?? '')}`
      return `  ${state}${visible(rule)}: ${outcome}${send}${error === null ? '' : `: ${visible(error)}`}`
    }),
    '',
  ].join('\n')
}

/** Other events of its object, so that an older one can be told from the newest, which has the object's state. */
function objectLines(
  event: WebhookEvent,
  { ref, events }: NonNullable<WebhookEvent['object']>,
  options: OutputOptions,
): string[] {
  const lines = events.map(({ id, type, event_id, occurred_at, received_at }) => {
    const zoned = (time: Date) => zonedTimeText(time, options.zone)
    const at = occurred_at === null ? `received ${zoned(received_at)}` : zoned(occurred_at)
    return words(visible(`  ${at}  ${type ?? '–'}  ${event_id}  event ${id}${id === event.id ? ' (this one)' : ''}`), options)
  })
  return [`Object ${visible(ref)}, its newest event first:`, ...lines]
}
