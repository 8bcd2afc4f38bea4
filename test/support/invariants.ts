import type pg from 'pg'
import type { Db } from '../../src/db.ts'
import type { InboxiliSandbox } from '../../src/sandbox/inboxili.ts'

/** What a schedule knows of the world outside of the tables. */
export interface Truth {
  /** Each email's subject is its key. */
  ledger: InboxiliSandbox['ledger']
  /** Every delivery that was answered 2xx: its source and the hash of its bytes. */
  acknowledged: readonly { source: string; sha256: string }[]
}

/** A query for what breaks an invariant: one row, with the offending key, each. */
type Check = readonly [name: string, sql: string]

/** After a sweep: nothing is left behind by a dead worker, and no key has two calls under way. */
const always: readonly Check[] = [
  [
    'I1 two calls of one key are under way',
    `select dedupe_key as key from send_attempts where outcome = 'in_flight' group by dedupe_key having count(*) > 1`,
  ],
  [
    'a call is under way that its send does not know of',
    `select dedupe_key as key from send_attempts join email_sends using (dedupe_key)
     where outcome = 'in_flight' and (state <> 'sending' or claim_token <> id)`,
  ],
]

const afterSweep: readonly Check[] = [
  [
    'I13 a stale claim was not swept',
    `select dedupe_key as key from email_sends
     where (state = 'claimed' and claimed_at < now() - interval '301 s') or (state = 'sending' and sending_at < now() - interval '301 s')`,
  ],
]

/** When all has come to rest. */
const atRest: readonly Check[] = [
  [
    'a send is still open',
    `select dedupe_key || ' ' || state as key from email_sends where state in ('queued', 'claimed', 'sending')`,
  ],
  [
    'I1 I7 a call follows one that nobody knows to have failed',
    `select dedupe_key as key from (
       select dedupe_key, lag(outcome) over (partition by dedupe_key order by number) as before from send_attempts where called_at is not null
     ) calls join email_sends using (dedupe_key) where before <> 'refused'
     group by dedupe_key, policy having count(*) > case when policy = 'prefer_duplicate' then 2 else 0 end
       + (select count(*) from audit_log where subject = 'send:' || dedupe_key and action = 'retry')`,
  ],
  [
    'prefer_duplicate calls more than 3 times by itself',
    `select dedupe_key as key from email_sends join send_attempts using (dedupe_key) where policy = 'prefer_duplicate' and outcome in ('unknown', 'accepted')
     group by dedupe_key having count(*) > 3 + (select count(*) from audit_log where subject = 'send:' || dedupe_key and action = 'retry')`,
  ],
  [
    'I3 a fact was queued more than once',
    `select dedupe_key as key from follow_ups where outcome = 'queued' and dedupe_key is not null group by dedupe_key
     having count(*) > 1 + (select count(*) from send_attempts attempts where attempts.dedupe_key = follow_ups.dedupe_key and outcome = 'refused')`,
  ],
  [
    'I6 an event is neither processed nor visibly failed',
    `select event_id || ' ' || status as key from webhook_events where status = 'pending' or (status = 'failed' and error is null)`,
  ],
  [
    'I6 a processed event has no follow-up',
    `select event_id as key from webhook_events events where source = 'stripe' and status = 'processed'
       and not exists (select from follow_ups where event = events.id)`,
  ],
  [
    'I6 a processed delivery event was not read',
    `select event_id as key from webhook_events events where source = 'inboxili' and status = 'processed'
       and not exists (select from delivery_reports where event = events.id)`,
  ],
  [
    'I7 a send is in front of a person although its calls are all known',
    `select dedupe_key as key from email_sends sends where state = 'needs_review'
       and not exists (select from send_attempts where dedupe_key = sends.dedupe_key and outcome = 'unknown')
       and not exists (select from audit_log where subject = 'send:' || sends.dedupe_key and action = 'reopen')`,
  ],
  [
    'a send is closed by nobody',
    `select dedupe_key || ' ' || state as key from email_sends sends where (state = 'abandoned'
         and not exists (select from audit_log where subject = 'send:' || sends.dedupe_key and action = 'abandoned'))
       or (state = 'sent' and not exists (select from send_attempts where dedupe_key = sends.dedupe_key and outcome = 'accepted')
         and not exists (select from settlements where dedupe_key = sends.dedupe_key and to_state = 'sent'))
       or (state = 'rejected' and not exists (select from send_attempts where dedupe_key = sends.dedupe_key and outcome = 'refused'))`,
  ],
  [
    'I9 an event stands with the send of another recipient',
    `select attempts.dedupe_key as key from delivery_reports reports join send_attempts attempts on attempts.id = reports.attempt
     where reports.match_key <> attempts.match_key or reports.message_id <> attempts.message_id`,
  ],
  [
    'I10 a message has two attempts',
    'select message_id as key from send_attempts group by message_id having count(message_id) > 1',
  ],
  [
    'I10 a message of known attempt lies parked',
    `select reports.message_id as key from delivery_reports reports join send_attempts using (message_id) where reports.attempt is null`,
  ],
  [
    'a decision has no audit, or an audit no reason',
    `select dedupe_key as key from settlements where actor ~ '^(person|token):'
       and not exists (select from audit_log where subject = 'send:' || dedupe_key and reason is not null)`,
  ],
]

async function broken(db: Db, checks: readonly Check[]): Promise<string[]> {
  const { rows } = await db.query<{ broken: string }>(
    checks
      .map(([name, sql]) => `select '${name.replaceAll("'", "''")}: ' || key as broken from (${sql}) as one`)
      .join(' union all '),
  )
  return rows.map((row) => row.broken)
}

/** What is broken at any moment, or must not be so after a sweep. */
export const brokenNow = (db: Db, isSwept: boolean) => broken(db, isSwept ? [...always, ...afterSweep] : always)

interface Sent {
  dedupe_key: string
  state: string
  policy: string
  called: number
  retries: number
  decisions: number
  is_called_sent: boolean
  recipient: string
}

/** What is broken when all has come to rest, in the tables and between them and the world. */
export async function brokenAtRest(pool: pg.Pool, { ledger, acknowledged }: Truth): Promise<string[]> {
  const found = await broken(pool, [...always, ...atRest])
  const { rows: sends } = await pool.query<Sent>(
    `select dedupe_key, state, policy, recipient,
       (select count(*)::int from send_attempts where dedupe_key = sends.dedupe_key and called_at is not null) as called,
       (select count(*)::int from audit_log where subject = 'send:' || dedupe_key and action = 'retry') as retries,
       (select count(*)::int from audit_log where subject = 'send:' || dedupe_key) as decisions,
       exists (select from audit_log where subject = 'send:' || dedupe_key and action = 'sent') as is_called_sent
     from email_sends sends`,
  )
  const callsOf = Map.groupBy(ledger, ({ message }) => message?.subject ?? '')
  for (const send of sends) {
    const calls = callsOf.get(send.dedupe_key) ?? []
    const accepted = calls.filter((call) => call.accepted).length
    const most = 1 + send.retries + (send.policy === 'prefer_duplicate' ? 2 : 0)
    const say = (what: string) =>
      found.push(`${what}: ${send.dedupe_key} (${send.state}, ${calls.length} calls, ${accepted} accepted)`)
    if (calls.length > send.called) say('I1 Inboxili was called more often than the attempts say')
    if (accepted > most) say('I1 sent more often than anybody wanted')
    if (send.state === 'sent' && accepted === 0 && !send.is_called_sent) say('I9 counts as sent and was not')
    if (send.state === 'rejected' && accepted > 0 && most === 1) say('I8 counts as rejected and was sent')
  }
  const known = new Set(sends.map(({ dedupe_key }) => dedupe_key))
  for (const key of callsOf.keys()) if (!known.has(key)) found.push(`a call has no send: ${key}`)

  const marked = Map.groupBy(
    sends.filter(({ policy, decisions }) => policy === 'timestamp' && decisions === 0),
    ({ recipient }) => recipient,
  )
  for (const [recipient, same] of marked) {
    const sent = same.filter(({ dedupe_key }) => callsOf.get(dedupe_key)?.some((call) => call.accepted))
    if (sent.length > 1) found.push(`timestamp sent two of a kind to ${recipient}`)
  }

  const keyOfMessage = new Map(
    ledger.filter(({ accepted }) => accepted).map(({ messageId, message }) => [messageId, message?.subject]),
  )
  const { rows: messages } = await pool.query<{ message_id: string; dedupe_key: string }>(
    `select message_id, dedupe_key from send_attempts where message_id is not null
     union select message_id, dedupe_key from email_sends where message_id is not null`,
  )
  for (const { message_id, dedupe_key } of messages)
    if (keyOfMessage.get(message_id) !== dedupe_key) found.push(`I9 the message ${message_id} is not of ${dedupe_key}`)

  const { rows: stored } = await pool.query<{ name: string }>(
    `select source || ' ' || encode(sha256(body), 'hex') as name from webhook_events
     union select source || ' ' || encode(sha256(conflicts.body), 'hex') from webhook_conflicts conflicts join webhook_events events on events.id = event`,
  )
  const has = new Set(stored.map(({ name }) => name))
  for (const { source, sha256 } of acknowledged)
    if (!has.has(`${source} ${sha256}`)) found.push(`I2 acknowledged and lost: ${source} ${sha256}`)
  return found
}

/** Rejected keys of which the next trigger would not be taken. */
export async function brokenKeys(rejected: readonly string[], trigger: (key: string) => Promise<string>): Promise<string[]> {
  const found: string[] = []
  for (const key of rejected) if ((await trigger(key)) !== 'queued') found.push(`I8 rejected and still taken: ${key}`)
  return found
}
