import type { Config } from '../config.ts'
import { type Db, isStorageAway } from '../db.ts'
import { requestOf } from '../providers/provider.ts'
import { payloadOf } from '../providers/read-events.ts'
import { acceptForm } from '../sends/address.ts'
import { moves, type Status } from '../sends/lifecycle.ts'
import { kindOf } from '../sends/policies.ts'
import { askRule, type Wanted } from './answers.ts'
import { findEvent, findSuperseded, metaOf, rulesFor } from './stored-event.ts'

/** What a replay would find in one event. */
type Prospect =
  | 'wants_emails'
  | 'no_rule'
  /** Its rules want no email. */
  | 'no_email'
  /** A rule throws or builds no usable key, or the event can't be read. */
  | 'fails'
  /** Its source fetches it back first, which a forecast doesn't. */
  | 'needs_confirm'
  /** A delivery event: its facts are added once more, which changes nothing. */
  | 'settles'
  /** Only bytes so far: they are read anew. */
  | 'read_anew'
  | 'pending'
  | 'emptied'
  | 'source_gone'
  | 'not_looked_at'

/** What a replay of some events would do, by counts. Each event is counted once, each email once by its key. */
export interface Forecast {
  events: { [Each in Prospect]?: number }
  emails: {
    would_send: number
    /** The key belongs to a send to another recipient. */
    key_taken: number
    /** Nothing is sent, since a send in this status has the key. */
    held: { [Each in Status]?: number }
  }
}

/** Few, as the process has other things to do; each has one body in memory. */
const AT_ONCE = 2
const LOOKED_UP_AT_ONCE = 1_000

/**
 * Tells what a replay of these events would do, by asking the rules and nobody else: `confirm` isn't called, and nothing is written.
 * What time doesn't suffice for is counted as not looked at.
 */
export async function forecastReplay(db: Db, config: Config, ids: readonly string[], atMostMs: number): Promise<Forecast> {
  const events: Forecast['events'] = {}
  const emails = new Map<string, Email>()
  let taken = 0
  let timer: NodeJS.Timeout | undefined
  let isOver = false
  const timeIsUp = new Promise<Look>((resolve) => {
    timer = setTimeout(() => {
      isOver = true
      resolve({ prospect: 'not_looked_at', wanted: [] })
    }, atMostMs)
  })
  let next = 0
  const lane = async () => {
    while (next < ids.length) {
      const id = ids[next] ?? ''
      next += 1
      const { prospect, wanted } = await (isOver ? timeIsUp : Promise.race([look(db, config, id).catch(failed), timeIsUp]))
      events[prospect] = (events[prospect] ?? 0) + 1
      for (const email of wanted.flatMap((it) => ('send' in it ? [emailOf(it)] : []))) {
        const known = emails.get(email.key)
        if (!known) emails.set(email.key, email)
        else if (known.recipient !== email.recipient) taken += 1
      }
    }
  }
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, lane))
  } finally {
    isOver = true
    clearTimeout(timer)
  }
  const found = await lookUp(db, [...emails.values()])
  return { events, emails: { ...found, key_taken: found.key_taken + taken } }
}

interface Look {
  prospect: Prospect
  wanted: readonly Wanted[]
}

/** What can't even be read fails as it would in the replay. */
function failed(error: unknown): Look {
  if (isStorageAway(error)) throw error
  return { prospect: 'fails', wanted: [] }
}

async function look(db: Db, config: Config, id: string): Promise<Look> {
  const only = (prospect: Prospect): Look => ({ prospect, wanted: [] })
  const event = await findEvent(db, id)
  if (event?.status === 'pending') return only('pending')
  if (!event || event.is_emptied || event.body === null) return only('emptied')
  const source = config.sources.get(event.source)
  if (!source) return only('source_gone')
  if (event.is_only_bytes) return only(event.status === 'quarantined' ? 'read_anew' : 'no_rule')
  if (source.settles) return only('settles')
  const rules = rulesFor(config, source, event)
  if (rules.length === 0) return only('no_rule')
  if (source.confirm) return only('needs_confirm')

  const payload = payloadOf(source.provider, requestOf(event.headers, event.body), event.event_id)
  const [superseded = false] = event.object_ref === null ? [] : await findSuperseded(db, [{ event, source }])
  const meta = metaOf(source, event, superseded)
  const wanted = (await Promise.all(rules.map((rule) => askRule(rule, payload, meta)))).flat()
  if (wanted.some((it) => 'error' in it)) return { prospect: 'fails', wanted }
  return { prospect: wanted.length === 0 ? 'no_email' : 'wants_emails', wanted }
}

/** What of an email tells whether it would be sent. */
interface Email {
  key: string
  recipient: string
  /** Under which policy `timestamp` looks for others. */
  kind: string | null
}

function emailOf({ send: { key, policy, message } }: Extract<Wanted, { send: unknown }>): Email {
  return { key, recipient: acceptForm(message.to), kind: policy === 'timestamp' ? kindOf(key) : null }
}

async function lookUp(db: Db, emails: readonly Email[]): Promise<Forecast['emails']> {
  const found: Forecast['emails'] = { would_send: 0, key_taken: 0, held: {} }
  const marks = new Set<string>()
  for (let from = 0; from < emails.length; from += LOOKED_UP_AT_ONCE) {
    const some = emails.slice(from, from + LOOKED_UP_AT_ONCE)
    // In the words of triggerSend and takeMark: who holds the key, else who holds the mark.
    const { rows } = await db.query<{ number: string; own: string | null; status: Status | null }>(
      `select number, own.recipient as own, coalesce(own.status, holder.status) as status
       from unnest($1::text[], $2::text[], $3::text[]) with ordinality as wanted (key, recipient, kind, number)
       left join email_sends own on own.dedupe_key = wanted.key and own.state <> all ($4)
       left join email_marks marks on own.dedupe_key is null and marks.kind = wanted.kind and marks.recipient = wanted.recipient
         and marks.dedupe_key <> wanted.key
       left join email_sends holder on holder.dedupe_key = marks.dedupe_key and (marks.sent_at is not null
         or not (holder.state = 'abandoned' or (holder.state = 'rejected' and holder.send_after is null)))`,
      [some.map(({ key }) => key), some.map(({ recipient }) => recipient), some.map(({ kind }) => kind), moves.trigger.queued],
    )
    for (const { number, own, status } of rows) {
      const email = some[Number(number) - 1]
      if (!email) continue
      const mark = email.kind === null ? undefined : JSON.stringify([email.kind, email.recipient])
      if (own !== null && acceptForm(own) !== email.recipient) found.key_taken += 1
      else if (status !== null) found.held[status] = (found.held[status] ?? 0) + 1
      // Another one of this very replay would take the mark.
      else if (mark !== undefined && marks.has(mark)) found.held.queued = (found.held.queued ?? 0) + 1
      else {
        found.would_send += 1
        if (mark !== undefined) marks.add(mark)
      }
    }
  }
  return found
}
