// Each a query that finds what must not be there. One statement a check and so one moment: what a transaction changes in several
// tables is seen as a whole. The tables of sends are read from end to end; of the events only what an index leads to, and those whose
// follow-ups failed.

import { EVENTS_OF_JOBS } from '../follow-ups/queue.ts'

/** Something that must hold of all rows. */
export interface Check {
  /** What is wrong. */
  name: string
  /** As reliability's list numbers it. */
  invariant: string
  /** Selects the column `subject`; of the checks of the rows alone, $1 is the time in ms after which what is under way is stale. */
  sql: string
}

/** Beyond the time after which something is stale: the sweep that sees it, and one that was missed. */
const SWEEPS = `interval '90 s'`
const STALE = `($1::float8 * interval '1 ms' + ${SWEEPS})`
/** Sweeps may be set to run less often, and take 1,000 at once. */
const SEVERAL_SWEEPS = `interval '10 min'`
/** Over all processes. */
const MOST_CALLS_IN_60_S = 120

const decidedSince = (action: string, since: string) =>
  `exists (select from audit_log where subject = 'send:' || sends.dedupe_key and action = '${action}' and at >= ${since})`

/** Each call that was made, beside the one before it of the same key. */
const SUCCESSIVE_CALLS = `(select dedupe_key, claimed_at, lag(outcome) over calls as last_outcome, lag(called_at) over calls as last_called_at
  from send_attempts where called_at is not null window calls as (partition by dedupe_key order by number)) attempts`

const rank = (table: string) => `array_position('{soft,unknown,hard}'::text[], coalesce(${table}.bounce_kind, 'unknown'))`

export const checks: readonly Check[] = [
  {
    name: 'two calls of one send are open',
    invariant: 'I1',
    sql: `select dedupe_key as subject from send_attempts where outcome in ('claimed', 'in_flight') group by dedupe_key having count(*) > 1`,
  },
  {
    name: 'an open call is not the one that its send is about',
    invariant: 'I1',
    sql: `select sends.dedupe_key as subject from send_attempts attempts join email_sends sends using (dedupe_key)
      where (outcome = 'claimed' and not (state = 'claimed' and claim_token = id) or outcome = 'in_flight' and not (state = 'sending' and claim_token = id))
        and not exists (select from send_attempts other where other.dedupe_key = attempts.dedupe_key and other.id <> attempts.id
          and other.outcome in ('claimed', 'in_flight'))`,
  },
  {
    name: 'a send is being called without an open call',
    invariant: 'I1',
    sql: `select dedupe_key as subject from email_sends sends where state in ('claimed', 'sending') and not exists (
        select from send_attempts where dedupe_key = sends.dedupe_key and outcome in ('claimed', 'in_flight'))`,
  },
  {
    name: 'an answer without a call, or a call without an end',
    invariant: 'I1',
    sql: `select dedupe_key as subject from send_attempts
      where outcome in ('in_flight', 'accepted', 'refused', 'unknown') and called_at is null
        or outcome in ('accepted', 'refused', 'unknown', 'never_called') and ended_at is null`,
  },
  {
    name: 'a call after an accepted one, without a decision',
    invariant: 'I1',
    sql: `select sends.dedupe_key as subject from ${SUCCESSIVE_CALLS} join email_sends sends using (dedupe_key)
      where last_outcome = 'accepted' and policy <> 'prefer_duplicate' and not ${decidedSince('retry', 'last_called_at')}`,
  },
  {
    name: 'a call after its email was settled as sent, without a decision',
    invariant: 'I1',
    sql: `select distinct sends.dedupe_key as subject from settlements join send_attempts later using (dedupe_key) join email_sends sends using (dedupe_key)
      where to_state = 'sent' and later.called_at is not null and later.claimed_at > settlements.at
        and not ${decidedSince('retry', 'settlements.at')}`,
  },
  {
    name: 'a call after an event had told that its email is out, without a decision',
    invariant: 'I1',
    sql: `select distinct sends.dedupe_key as subject from delivery_reports reports join send_attempts proven on proven.id = attempt
      join send_attempts later using (dedupe_key) join email_sends sends using (dedupe_key)
      where kind in ('delivered', 'bounced') and later.id <> proven.id and later.called_at is not null and later.claimed_at > joined_at
        and lower(later.recipient) = lower(proven.recipient) and not ${decidedSince('retry', 'joined_at')}`,
  },
  {
    name: 'a call after an unknown one, without a decision',
    invariant: 'I7',
    sql: `select sends.dedupe_key as subject from ${SUCCESSIVE_CALLS} join email_sends sends using (dedupe_key)
      where last_outcome = 'unknown' and policy <> 'prefer_duplicate' and not ${decidedSince('retry', 'last_called_at')}`,
  },
  {
    name: 'a send of unknown outcome waits to be called again, without a decision',
    invariant: 'I7',
    sql: `select sends.dedupe_key as subject from email_sends sends join send_attempts attempts on attempts.id = claim_token
      where state = 'queued' and outcome = 'unknown' and policy <> 'prefer_duplicate' and not ${decidedSince('retry', 'called_at')}`,
  },
  {
    name: 'a send counts as sent without an accepted call, an event or a person',
    invariant: 'I7',
    sql: `select dedupe_key as subject from email_sends sends where state = 'sent'
        and not exists (select from send_attempts where dedupe_key = sends.dedupe_key and outcome = 'accepted')
        and not exists (select from settlements where dedupe_key = sends.dedupe_key and to_state = 'sent')`,
  },
  {
    name: 'a send waits for a decision though nothing about it is unknown',
    invariant: 'I7',
    sql: `select dedupe_key as subject from email_sends sends where state = 'needs_review'
        and not exists (select from send_attempts where dedupe_key = sends.dedupe_key and outcome = 'unknown')
        and not ${decidedSince('reopen', `'-infinity'`)}`,
  },
  {
    name: 'a send that nobody reviews waits for a decision',
    invariant: 'I7',
    sql: `select dedupe_key as subject from email_sends sends where state = 'needs_review' and policy = 'unguarded'
        and not ${decidedSince('reopen', `'-infinity'`)}`,
  },
  {
    name: 'a rejected send whose call was not refused',
    invariant: 'I8',
    sql: `select dedupe_key as subject from email_sends sends where state = 'rejected' and not exists (
        select from send_attempts where dedupe_key = sends.dedupe_key and id = claim_token and outcome = 'refused')`,
  },
  {
    name: 'an event counts as processed though a follow-up of it failed',
    invariant: 'I6',
    sql: `select distinct 'event:' || event as subject from follow_ups join webhook_events events on events.id = event
      where outcome in ('failed', 'key_taken') and status in ('processed', 'ignored')`,
  },
  {
    name: 'a follow-up that queued an email, without its send',
    invariant: 'I6',
    sql: `select distinct 'event:' || event as subject from follow_ups where outcome in ('queued', 'held') and dedupe_key is null`,
  },
  {
    name: 'an event failed without a word why',
    invariant: 'I6',
    sql: `select 'event:' || id as subject from webhook_events where status in ('failed', 'quarantined') and error is null`,
  },
  {
    name: 'an event waits that no job will process',
    invariant: 'I6',
    // A job that has just ended may be replaced by the next sweep.
    sql: `select 'event:' || id as subject from webhook_events where status = 'pending' and received_at < now() - ${SWEEPS}
      and id::text not in (select event from ${EVENTS_OF_JOBS} jobs where event is not null
        and (state < 'completed' or completed_on > now() - ${SWEEPS}))`,
  },
  {
    name: 'a send is due that no job will call',
    invariant: 'I6',
    // Right after a long hold some may still wait for their sweep.
    sql: `select dedupe_key as subject from email_sends
      where (state = 'queued' or state = 'rejected' and send_after is not null) and greatest(queued_at, send_after) < now() - ${SEVERAL_SWEEPS}
        and not exists (select from sending_control where held_reason is not null)
        and dedupe_key not in (select data ->> 'key' from pgboss.job where name = 'send' and data ->> 'key' is not null
          and (state < 'completed' or completed_on > now() - ${SEVERAL_SWEEPS}))`,
  },
  {
    name: "a send has the message of somebody else's call",
    invariant: 'I9',
    sql: `select dedupe_key as subject from email_sends sends where message_id is not null and not exists (
        select from send_attempts where dedupe_key = sends.dedupe_key and message_id = sends.message_id)`,
  },
  {
    name: "a settlement names somebody else's call",
    invariant: 'I9',
    sql: `select settlements.dedupe_key as subject from settlements join send_attempts attempts on attempts.id = attempt
      where attempts.dedupe_key <> settlements.dedupe_key`,
  },
  {
    name: 'a delivery event is joined to a call with another message',
    invariant: 'I9',
    sql: `select 'event:' || event as subject from delivery_reports reports join send_attempts attempts on attempts.id = attempt
      where reports.message_id is distinct from attempts.message_id`,
  },
  {
    name: 'two calls have one message',
    invariant: 'I10',
    sql: `select dedupe_key as subject from send_attempts join (
        select message_id from send_attempts where message_id is not null group by message_id having count(*) > 1) doubled using (message_id)`,
  },
  {
    name: 'what a delivery event says is missing in its send',
    invariant: 'I12',
    sql: `select distinct sends.dedupe_key as subject from delivery_reports reports join send_attempts attempts on attempts.id = attempt
      join email_sends sends using (dedupe_key)
      where lower(attempts.recipient) = lower(sends.recipient) and case kind
        when 'delivered' then delivered_at is null or delivered_at > occurred_at
        when 'complained' then complained_at is null or complained_at > occurred_at
        when 'bounced' then bounced_at is null or ${rank('sends')} < ${rank('reports')} or ${rank('sends')} = ${rank('reports')} and bounced_at > occurred_at
        else false end`,
  },
  {
    name: 'a fact without the event or the settlement that it came from',
    invariant: 'I12',
    sql: `select distinct dedupe_key as subject from email_sends sends,
        lateral (values ('delivered', delivered_at), ('bounced', bounced_at), ('complained', complained_at)) facts (kind, at)
      where at is not null
        and not exists (select from settlements where dedupe_key = sends.dedupe_key and evidence ->> 'says' = facts.kind)
        and not exists (select from send_attempts attempts join delivery_reports reports on attempt = attempts.id
          where attempts.dedupe_key = sends.dedupe_key and reports.kind = facts.kind)`,
  },
  {
    name: "a person's decision without its audit",
    invariant: 'I12',
    sql: `select dedupe_key as subject from email_sends sends
      where (state = 'abandoned' and policy <> 'unguarded' or settled_by ~ '^(person|token):')
        and not exists (select from audit_log where subject = 'send:' || dedupe_key and action <> 'ask_retry')`,
  },
  {
    name: 'a claim or a call is stale, and no sweep has come by',
    invariant: 'I13',
    sql: `select dedupe_key as subject from email_sends
      where state = 'claimed' and claimed_at < now() - ${STALE} or state = 'sending' and sending_at < now() - ${STALE}`,
  },
  {
    name: `more than ${MOST_CALLS_IN_60_S} calls within 60 s`,
    invariant: 'I14',
    sql: `select to_char(called_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as subject from (
        select called_at, count(*) over (order by called_at range between interval '59.999 s' preceding and current row) as calls
        from send_attempts where called_at > now() - interval '7 days') counted
      where calls > ${MOST_CALLS_IN_60_S}`,
  },
  {
    name: 'two decisions on one version of a send',
    invariant: 'I16',
    sql: `select substr(subject, 6) as subject from audit_log where subject like 'send:%' and before ? 'version'
      group by subject, before ->> 'version' having count(*) > 1`,
  },
  {
    name: 'one of the calls of a send is missing',
    invariant: 'I20',
    sql: `select dedupe_key as subject from send_attempts group by dedupe_key having max(number) <> count(*)`,
  },
  {
    name: 'an event whose bytes are still needed has lost them',
    invariant: 'I20',
    sql: `select 'event:' || id as subject from webhook_events where status in ('pending', 'failed', 'quarantined') and body_emptied_at is not null
      union all
      select 'event:' || id from webhook_events events left join webhook_bodies bodies on bodies.sha256 = body_sha256
      where events.body is null and body_emptied_at is null and bodies.body is null`,
  },
  {
    name: 'a mark names a send that is not there',
    invariant: 'I20',
    sql: `select dedupe_key as subject from email_marks marks where not exists (select from email_sends where dedupe_key = marks.dedupe_key)`,
  },
  {
    name: 'a mark does not know that its send has gone out',
    invariant: 'I12',
    sql: `select dedupe_key as subject from email_marks join email_sends using (dedupe_key)
      where state = 'sent' and policy = 'timestamp' and sent_at is null`,
  },
  {
    name: 'a send has gone out without its mark',
    invariant: 'I12',
    // One that was abandoned may have given its mark away before a person reopened it.
    sql: `select dedupe_key as subject from email_sends sends where state = 'sent' and policy = 'timestamp'
        and not exists (select from email_marks where dedupe_key = sends.dedupe_key)
        and not ${decidedSince('reopen', `'-infinity'`)}`,
  },
]

/**
 * What the email API accepted ($1 its recipients, $2 its message IDs) has calls of ours that may have made it. Whether a second call
 * of one key was allowed is told by the rows, above.
 */
export const ledgerChecks: readonly Check[] = [
  {
    name: 'more emails were accepted than calls may have made',
    invariant: 'I1',
    sql: `select coalesce((select min(dedupe_key) from email_sends where recipient = requests.recipient), 'no send') as subject
      from (select recipient, count(*) as times from unnest($1::text[], $2::text[]) as ledger (recipient, message_id) group by recipient) requests
      where times > (select count(*) from send_attempts attempts
        where attempts.recipient = requests.recipient and outcome in ('in_flight', 'unknown', 'accepted'))`,
  },
  {
    name: 'a call has the message that somebody else was sent',
    invariant: 'I9',
    sql: `select dedupe_key as subject from unnest($1::text[], $2::text[]) as ledger (recipient, message_id)
      join send_attempts attempts using (message_id) where attempts.recipient <> ledger.recipient`,
  },
]
