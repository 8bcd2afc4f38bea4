import { z } from 'zod'
import type { Db } from '../db.ts'
import { asksFor } from '../sends/second-person.ts'
import { findSuggestions, type Suggestion, suggestedNotSent, suggestedSent, verdicts } from '../sends/suggest.ts'
import { cursor, encodeCursor, limit, microseconds, text } from './filters.ts'

// Read-only: the sends that need a decision.

export const reviewFilter = z.strictObject({
  suggestion: z.enum(verdicts).optional(),
  limit,
  cursor: cursor(z.tuple([microseconds, text])).optional(),
})
export type ReviewFilter = z.output<typeof reviewFilter>

/** One send that needs a decision, under the names of its columns. */
export interface ReviewRow {
  dedupe_key: string
  version: number
  recipient: string
  subject: string | null
  policy: string
  queued_at: Date
  /** How it came to that. */
  last_error: string | null
  /** The first who wants it sent again as it is now, where that takes two people. */
  asked_by: string | null
  asked_at: Date | null
  suggestion: Suggestion
}

/** Counts stop here: one more means "and more". */
export const MOST_COUNTED = 10_000

const WHERE: Record<NonNullable<ReviewFilter['suggestion']> | 'all', string> = {
  all: '',
  sent: `and claim_token in (${suggestedSent})`,
  not_sent: `and claim_token in (${suggestedNotSent}) and (claim_token in (${suggestedSent})) is not true`,
  cant_tell: `and (claim_token in (${suggestedSent})) is not true and (claim_token in (${suggestedNotSent})) is not true`,
}

/**
 * The sends that need a decision, the oldest first, each with what the evidence suggests now. The filter goes by what matching has found
 * last, which may lag behind that by half a minute.
 */
export async function listReview(
  db: Db,
  { suggestion, limit, cursor }: ReviewFilter,
  now = new Date(),
): Promise<{ sends: ReviewRow[]; next_cursor: string | null }> {
  const { rows } = await db.query<Omit<ReviewRow, 'suggestion'> & { place: string }>(
    `with page as materialized (
       select dedupe_key from email_sends
       where state = 'needs_review' and ($1::timestamptz is null or (queued_at, dedupe_key) > ($1, $2::text)) ${WHERE[suggestion ?? 'all']}
       order by queued_at, dedupe_key limit $3
     )
     select dedupe_key, version, recipient, message ->> 'subject' as subject, policy, queued_at, last_error, asked.actor as asked_by, asked.at as asked_at,
       to_char(queued_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as place
     from page join email_sends using (dedupe_key)
       left join lateral (select at, actor from (${asksFor('dedupe_key', 'version')}) asks order by at, asker limit 1) asked on true
     order by queued_at, dedupe_key`,
    [cursor?.[0] ?? null, cursor?.[1] ?? null, limit + 1],
  )
  const shown = rows.slice(0, limit)
  const last = rows.length > limit ? shown.at(-1) : undefined
  const keys = shown.map(({ dedupe_key }) => dedupe_key)
  const suggestions = await findSuggestions(db, keys, now)
  const sends = shown.flatMap(({ place: _, ...row }) => {
    const suggested = suggestions.get(row.dedupe_key)
    return suggested ? [{ ...row, suggestion: suggested }] : []
  })
  return { sends, next_cursor: last ? encodeCursor([last.place, last.dedupe_key]) : null }
}

/** How many sends need a decision, by suggestion; `MOST_COUNTED` + 1 stands for that many and more. */
export interface ReviewCounts {
  open: number
  sent: number
  not_sent: number
  cant_tell: number
  /** When the oldest was asked for. */
  oldest_at: Date | null
}

/** Counts the sends that need a decision, by what matching has found last. */
export async function countReview(db: Db): Promise<ReviewCounts> {
  const { rows } = await db.query<ReviewCounts>({
    name: 'count-review',
    text: `with open as materialized (
        select claim_token, queued_at from email_sends where state = 'needs_review' order by queued_at, dedupe_key limit ${MOST_COUNTED + 1}
      ), judged as (
        select case when claim_token in (${suggestedSent}) then 'sent' when claim_token in (${suggestedNotSent}) then 'not_sent' else 'cant_tell' end as verdict
        from open
      )
      select (select count(*)::int from open) as open, (select min(queued_at) from open) as oldest_at,
        count(*) filter (where verdict = 'sent')::int as sent, count(*) filter (where verdict = 'not_sent')::int as not_sent,
        count(*) filter (where verdict = 'cant_tell')::int as cant_tell
      from judged`,
  })
  const [counts] = rows
  if (!counts) throw new Error('counting has answered nothing')
  return counts
}
