import { SOURCES } from '../events/sources-of-events.ts'
import { refOf } from '../providers/refs.ts'
import type { SendFilter } from './filters.ts'

// How the list of sends finds its rows: each way to find one is a look-up of its own, in the order of the list and no longer than
// the page, so that neither a very common nor a very rare search reads much more than it shows.

/** A statement's part that gives `dedupe_key` and `queued_at`, and its values from $1 on. */
export interface SendSearch {
  /** Stands before the statement's own `select`. */
  with: string
  text: string
  values: readonly unknown[]
}

/** What is null isn't asked for, and is folded away when the statement is planned. */
const FILTERS = `($2::text is null or lower(recipient) = lower($2)) and ($3::timestamptz is null or queued_at >= $3)
  and ($4::timestamptz is null or queued_at < $4) and ($5::text is null or policy = $5) and ($6::text is null or source = $6)
  and ($7::timestamptz is null or (queued_at, dedupe_key) < ($7, $8::text))`
/** Looked up by the keys: such calls are few. */
const unknownSince = (at: number) =>
  `dedupe_key = any (array(select dedupe_key from send_attempts where outcome = 'unknown' and claimed_at >= $${at}::timestamptz))`
const NEWEST = 'order by queued_at desc, dedupe_key desc limit'

/** As many events as are looked at for one reference: a customer's newest, not all that ever named the account. */
const MOST_NAMED = 1_000

/** The sends of some events: those they asked for, and those they speak of. */
const sendsOf = (
  events: string,
) => `select dedupe_key from ${events} join follow_ups on event = ${events}.id where dedupe_key is not null
    union
    select attempts.dedupe_key from ${events} join delivery_reports reports on event = ${events}.id join send_attempts attempts on attempts.id = attempt`

/** What $10 names exactly, and nothing else is looked for: a key, a message ID, an event ID. Else what refers to it. */
const NAMED = `of_id as materialized (
    select events.id from sources cross join lateral (select id from webhook_events where source = sources.source and event_id = $10) events
  ), exact as materialized (
    select dedupe_key from email_sends where dedupe_key = $10 or message_id = $10
    union
    select dedupe_key from send_attempts where message_id = $10
    union
    ${sendsOf('of_id')}
  ), referring as materialized (
    select event_id as id from event_refs where ref = $11 and not exists (select from exact) order by ref desc, event_id desc limit ${MOST_NAMED}
  ), referred as materialized (
    ${sendsOf('referring')}
  )`

/**
 * A part of a text is looked for among so many of the newest first, where a common one fills the page; only then by its trigrams, as
 * that fetches all that match. Keys lie in the index that is walked, addresses don't.
 */
const PARTS = [
  { way: 'dedupe_key like $12', recent: 10_000, unless: 'select from exact' },
  {
    way: 'lower(recipient) like lower($12)',
    recent: 3_000,
    unless: 'select from exact union all select from email_sends where lower(recipient) = lower($10)',
  },
] as const

/** Finds the sends that a filter wants, the newest `limit` of them, in any order; to be counted, any so many of them. */
export function searchSends(filter: SendFilter, limit: number, isCount = false): SendSearch {
  const { status, recipient, q, since, until, unknown_since, policy, source, cursor, withoutAddresses = false } = filter
  const pattern = q === undefined ? undefined : patternOf(q)
  const values = [
    status ?? null,
    recipient ?? null,
    since ?? null,
    until ?? null,
    policy ?? null,
    source ?? null,
    cursor?.[0] ?? null,
    cursor?.[1] ?? null,
    limit,
    ...(q === undefined ? [] : [q, refOf(q)]),
    ...(pattern === undefined ? [] : [pattern]),
    ...(unknown_since === undefined ? [] : [unknown_since]),
  ]
  const filters = unknown_since === undefined ? FILTERS : `${FILTERS} and ${unknownSince(values.length)}`
  const rows = (where: string, end: string) =>
    `select dedupe_key, queued_at from email_sends where ${where} and ${filters} ${end}`
  // What is common is gone through once for each status: its own index has the list's order.
  const byStatus = status === undefined ? ['$1::text[] is null'] : status.map((_, index) => `status = ($1::text[])[${index + 1}]`)
  if (q === undefined)
    return { with: '', text: byStatus.map((one) => `(${rows(one, `${NEWEST} $9`)})`).join(' union all '), values }

  const recent: string[] = []
  const found = [
    'dedupe_key = any (array(select dedupe_key from exact))',
    'dedupe_key = any (array(select dedupe_key from referred))',
  ].map((way) => rows(`${way} and ($1::text[] is null or status = any ($1))`, `${NEWEST} $9`))
  if (!withoutAddresses)
    found.push(
      rows(
        'lower(recipient) = lower($10) and not exists (select from exact) and ($1::text[] is null or status = any ($1))',
        `${NEWEST} $9`,
      ),
    )
  const parts = pattern === undefined ? [] : PARTS.slice(0, pattern.startsWith('%') && !withoutAddresses ? 2 : 1)
  for (const { way, recent: most, unless } of parts) {
    for (const one of byStatus) {
      const isOpen = `not exists (${unless})`
      if (isCount) {
        found.push(rows(`${way} and ${one} and ${isOpen}`, 'limit $9'))
        continue
      }
      const name = `recent_${recent.length}`
      recent.push(`${name} as materialized (
        select dedupe_key, queued_at from (select * from email_sends where ${one} and ${filters} and ${isOpen} ${NEWEST} ${most}) newest
        where ${way} ${NEWEST} $9)`)
      found.push(`select dedupe_key, queued_at from ${name}`)
      // An order that no index has, so that none is walked in vain.
      found.push(
        rows(
          `${way} and ${one} and ${isOpen} and (select count(*) from ${name}) < $9`,
          `order by queued_at + interval '0' desc, dedupe_key desc limit $9`,
        ),
      )
    }
  }
  return {
    with: `with recursive ${[SOURCES, NAMED, ...recent].join(', ')}`,
    text: found.map((one) => `(${one})`).join(' union '),
    values,
  }
}

/**
 * How `like` finds a part of a text, or for fewer than three characters its beginning, with nothing in it but itself. Undefined for what
 * has no trigram of letters and digits, by which it could be found: then it is only looked for as a whole.
 */
function patternOf(q: string): string | undefined {
  const literal = q.replace(/[\\%_]/g, '\\$&')
  if ([...q].length < 3) return /^[\p{L}\p{N}]/u.test(q) ? `${literal}%` : undefined
  return /[\p{L}\p{N}]{3}|[^\p{L}\p{N}][\p{L}\p{N}]|[\p{L}\p{N}]{2}[^\p{L}\p{N}]/u.test(q) ? `%${literal}%` : undefined
}
