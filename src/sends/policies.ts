import { randomUUID } from 'node:crypto'
import type { Tx } from '../db.ts'
import { acceptForm, excludeForm } from './address.ts'
import { moves } from './lifecycle.ts'
import type { EnqueueSends } from './trigger.ts'

/** How strict a send is; what each promises stands in docs/sends.md. */
export const policies = ['claim', 'per_period', 'timestamp', 'prefer_duplicate', 'unguarded'] as const
export type Policy = (typeof policies)[number]

/** `unguarded`: so many to one recipient and of one kind, in so many minutes. */
const UNGUARDED_AT_MOST = 5
export const UNGUARDED_WITHIN_MINUTES = 15
/** `prefer_duplicate`: calls in all; then it waits for a person as any other. */
const PREFERRED_CALLS = 3

/** The kind of an email: its key without the last part. */
export function kindOf(key: string): string {
  return key.slice(0, Math.max(key.lastIndexOf(':'), 0))
}

/** Tells whether the last part of a key is a billing period as `period()` makes them. */
export function isPerPeriod(key: string): boolean {
  const [, year, rest = ''] = /:(\d{4})-(\d\d(?:-\d\d)?|W\d\d)$/.exec(key) ?? []
  if (year === undefined) return false
  if (rest.startsWith('W')) return Number(rest.slice(1)) >= 1 && Number(rest.slice(1)) <= 53
  const [month = 0, day = 1] = rest.split('-').map(Number)
  const date = new Date(Date.UTC(Number(year), month - 1, day))
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day
}

/**
 * Takes the mark of policy `timestamp` for a send that is being queued: one email of a kind to a recipient. Answers the key of the
 * send that has it, if that is another one; then nothing may be stored.
 */
export async function takeMark(tx: Tx, key: string, recipient: string): Promise<string | undefined> {
  const values = [kindOf(key), acceptForm(recipient), key]
  // A statement of its own: the next one must see what the sends of those became who held the mark until now.
  // In one order, so that two keys that change places don't deadlock.
  await tx.query(
    'select from email_marks where (kind = $1 and recipient = $2) or dedupe_key = $3 order by kind, recipient for update',
    values,
  )
  // A rejected send whose own job will repeat it keeps the mark.
  const { rowCount } = await tx.query({
    name: 'take-mark',
    text: `insert into email_marks as marks (kind, recipient, dedupe_key) values ($1, $2, $3)
      on conflict on constraint email_marks_once do update set dedupe_key = excluded.dedupe_key
      where marks.sent_at is null and (marks.dedupe_key = excluded.dedupe_key
        or exists (select from email_sends
          where dedupe_key = marks.dedupe_key and (state = 'abandoned' or (state = 'rejected' and send_after is null))))`,
    values,
  })
  if (rowCount === 1) return undefined
  const { rows } = await tx.query<{ dedupe_key: string }>(
    'select dedupe_key from email_marks where kind = $1 and recipient = $2',
    [values[0], values[1]],
  )
  return rows[0]?.dedupe_key === key ? undefined : rows[0]?.dedupe_key
}

/**
 * Gives up the marks that a key has left with other recipients than the one that it is queued to now. After its own is taken. A mark of
 * what was sent stands.
 */
export async function dropOtherMarks(tx: Tx, key: string, recipient: string): Promise<void> {
  await tx.query('delete from email_marks where dedupe_key = $1 and recipient <> $2 and sent_at is null', [
    key,
    acceptForm(recipient),
  ])
}

/** The key of one `unguarded` send: each request is a send of its own. Undefined: this recipient has had as many as may be. */
export async function takeUnguarded(tx: Tx, key: string, recipient: string): Promise<string | undefined> {
  // One after the other, so that two at once can't both be the last one.
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`unguarded:${key}:${excludeForm(recipient)}`])
  // By mailbox: plus-tags make as many addresses of it as anybody likes.
  const { rows } = await tx.query<{ count: number }>(
    `select count(*)::int from email_sends
     where policy = 'unguarded' and match_key = $1 and queued_at > now() - $2::int * interval '1 minute'
       and regexp_replace(dedupe_key, ':[^:]*$', '') = $3`,
    [excludeForm(recipient), UNGUARDED_WITHIN_MINUTES, key],
  )
  return (rows[0]?.count ?? 0) < UNGUARDED_AT_MOST ? `${key}:${randomUUID()}` : undefined
}

/** Closes an `unguarded` send whose outcome is unknown: nobody reviews it, the user asks for a new one. */
export async function closeUnguarded(tx: Tx, keys: readonly string[]): Promise<void> {
  if (keys.length === 0) return
  await tx.query({
    name: 'close-unguarded',
    text: `update email_sends set state = 'abandoned', version = version + 1
      where dedupe_key = any ($1) and policy = 'unguarded' and state = any ($2)`,
    values: [keys, moves.policy.abandoned],
  })
}

/**
 * Queues sends of policy `prefer_duplicate` again whose outcome has stayed unknown for so long: a duplicate is better than a miss.
 * Not while sending is held, not after a person has decided, and at most 3 calls in all; each is kept.
 */
export async function resendPreferred(tx: Tx, enqueue: EnqueueSends, reviewAfterMs: number): Promise<number> {
  const { rows } = await tx.query<{ dedupe_key: string }>(
    `with due as (
       select dedupe_key from email_sends sends
       where policy = 'prefer_duplicate' and state = any ($2)
         and not exists (select from sending_control where held_reason is not null)
         and not exists (select from audit_log where subject = 'send:' || sends.dedupe_key and action <> 'ask_retry')
         and (select count(*) < $3 and max(ended_at) < now() - $1::float8 * interval '1 ms'
              from send_attempts attempts where attempts.dedupe_key = sends.dedupe_key and called_at is not null)
       order by dedupe_key limit 1000 for no key update skip locked
     )
     update email_sends set state = 'queued', version = version + 1, queued_at = clock_timestamp(), send_after = null, rate_limited_calls = 0, unreached_calls = 0
     from due where email_sends.dedupe_key = due.dedupe_key returning email_sends.dedupe_key`,
    [reviewAfterMs, moves.policy.queued, PREFERRED_CALLS],
  )
  await enqueue(
    tx,
    rows.map((row) => ({ key: row.dedupe_key })),
  )
  return rows.length
}
