import type { Db } from '../src/db.ts'

// Fills a database with a history of 90 days by set-based SQL: three events for each send, their follow-ups, calls, reports and references.

/** Tables whose indexes are made anew after the filling, which is several times faster than keeping them. */
const BIG = ['webhook_events', 'email_sends', 'send_attempts', 'follow_ups', 'delivery_reports', 'event_refs', 'source_minutes']

// Events n = 0, 1, 2 … (three for each send): one that asks for the send, one that nothing wants or that holds the key, one of its delivery.
const SEND_OF_EVENT = '(n / 3)'
const AT = `$1::timestamptz - ($2::bigint * 3 - n) * (interval '90 days' / ($2::bigint * 3))`
const HASH = `decode(md5(n::text) || md5('x' || n), 'hex')`

const KEY = `case k % 10
    when 8 then 'refund:re_' || substr(md5('r' || k), 1, 10) || ':done'
    when 9 then 'payment_failed:sub_' || substr(md5('s' || k % 50000), 1, 8) || k || ':2026-' || lpad((1 + k % 12)::text, 2, '0')
    when 7 then 'welcome:acme:user_' || k
    else 'invoice:INV-' || k || ':paid' end`
const NAMES = `(array['ada','bob','cy','di','eve','finn','gus','hedy','ivo','jo','kim','lea','max','nora','otto','pia'])`
const RECIPIENT = `${NAMES}[1 + k % 16] || '.' || substr(md5('p' || k % 300000), 1, 6) || '@' || (array['example.com','mail.example','shop.example','Example.org'])[1 + k % 4]`

// Four sources bring most; one went silent long ago, one never verifies anything but rarely.
const SOURCE = `case when n % 3 = 2 then 'inboxili'
    when n < $2::bigint / 5 and n % 7 = 0 then 'retired'
    when n % 100000 = 0 then 'rare'
    when n % 10 < 5 then 'stripe' when n % 10 < 7 then 'shopify' when n % 10 < 8 then 'paypal'
    else 'shop_' || lpad((n % 26)::text, 2, '0') end`
const TYPE = `case when n % 3 = 2 then (case when ${SEND_OF_EVENT} % 100 = 7 then 'email.bounced' else 'email.delivered' end)
    when n % 3 = 0 then (case ${SEND_OF_EVENT} % 10 when 8 then 'charge.refunded' when 9 then 'invoice.payment_failed' when 7 then 'customer.created' else 'invoice.paid' end)
    when n % 50000 = 1 then 'dispute.created'
    else (array['charge.succeeded','payment_intent.succeeded','customer.updated','invoice.finalized','payout.paid'])[1 + n % 5] end`

const STATE = `case when k > $2::bigint - 200 then 'queued'
    when k % 500 = 3 then 'needs_review' when k % 1000 = 4 then 'rejected' when k % 2000 = 5 then 'abandoned' else 'sent' end`

const steps: [name: string, sql: string][] = [
  [
    'events',
    `insert into webhook_events (id, source, event_id, id_basis, id_signed, type, livemode, occurred_at, received_at, body, body_sha256,
       body_emptied_at, headers, status, processed_at, error, object_ref, secret_fingerprint)
     overriding system value
     select n + 1, source, case when n % 3 = 2 then 'm_' || md5(${SEND_OF_EVENT}::text) || ':delivered' else 'evt_' || md5('e' || n) end, 'provider', true,
       type, case when source in ('stripe', 'retired') then n % 200 <> 11 end, at - interval '2 s', at,
       case when at > $1::timestamptz - interval '30 days' then convert_to('{"id":"evt_' || md5('e' || n) || '","type":"' || type
         || '","number":"INV-' || ${SEND_OF_EVENT} || '","customer":"cus_' || md5('c' || n % 300000) || '","amount":' || n % 99999
         || ',"lines":"' || repeat(md5(n::text), 4 + (n % 17)::int) || '"}', 'UTF8') end,
       ${HASH}, case when at <= $1::timestamptz - interval '30 days' then at + interval '60 days' end, '{"content-type":"application/json"}',
       status, case when status in ('processed', 'ignored') then at + interval '90 ms' end,
       case status when 'failed' then 'receipts: the customer has no address' when 'quarantined' then 'not JSON' end,
       case when n % 3 <> 2 then 'in_' || substr(md5('o' || n / 2), 1, 14) end, 'f1'
     from (select n, ${SOURCE} as source, ${TYPE} as type, ${AT} as at,
         case when n % 3 = 1 and n % 4 <> 0 then 'ignored' when n % 20011 = 9 then 'failed' when n % 30011 = 9 then 'quarantined'
           when n > $2::bigint * 3 - 40 then 'pending' else 'processed' end as status
       from generate_series(0::bigint, $2::bigint * 3 - 1) n) given`,
  ],
  [
    'sends',
    `insert into email_sends (dedupe_key, match_key, state, policy, recipient, message, message_sha256, source_event, source, requested_by,
       queued_at, claimed_at, sending_at, completed_at, message_id, delivered_at, bounced_at, bounce_kind, last_error)
     select key, lower(recipient), state, case k % 10 when 9 then 'per_period' when 7 then 'timestamp' else 'claim' end, recipient,
       jsonb_build_object('to', recipient, 'from_email', 'billing@example.com', 'subject', 'Your receipt INV-' || k,
         'template_id', 'b7d9', 'template_data', jsonb_build_object('number', 'INV-' || k, 'text', repeat(md5(k::text), 3))),
       decode(md5(k::text) || md5('y' || k), 'hex'), k * 3 + 1, source, 'event:' || k * 3 + 1, at, at, at,
       case when state = 'sent' then at + interval '400 ms' end, case when state = 'sent' then 'm_' || md5(k::text) end,
       case when state = 'sent' and k % 100 <> 7 and k % 40 <> 11 then at + interval '5 s' end,
       case when state = 'sent' and k % 100 = 7 then at + interval '9 s' end, case when state = 'sent' and k % 100 = 7 then 'hard' end,
       case state when 'needs_review' then 'no answer in 15 s' when 'rejected' then '422 sender_not_verified' end
     from (select k, ${KEY} as key, ${RECIPIENT} as recipient, ${STATE} as state, events.source, events.received_at + interval '90 ms' as at
       from generate_series(0::bigint, $2::bigint - 1) k join webhook_events events on events.id = k * 3 + 1) given
     where $1::timestamptz is not null order by k`,
  ],
  [
    'attempts',
    `insert into send_attempts (id, dedupe_key, number, recipient, match_key, claimed_at, called_at, ended_at, outcome, http_status, error, message_id)
     select md5('a' || dedupe_key)::uuid, dedupe_key, 1, recipient, match_key, queued_at, queued_at, queued_at + interval '400 ms',
       case state when 'sent' then 'accepted' when 'rejected' then 'refused' else 'unknown' end,
       case state when 'sent' then 200 when 'rejected' then 422 end, last_error, message_id
     from email_sends where state <> 'queued' and $1::timestamptz is not null and $2::bigint > 0`,
  ],
  [
    'follow-ups',
    `insert into follow_ups (event, rule, dedupe_key, outcome, at)
     select source_event, 'receipts', dedupe_key, 'queued', queued_at from email_sends
     where $1::timestamptz is not null and $2::bigint > 0
     union all
     select source_event + 1, 'receipts', dedupe_key, 'held', queued_at from email_sends where source_event % 5 = 0`,
  ],
  [
    'reports',
    `insert into delivery_reports (event, kind, message_id, recipient, match_key, occurred_at, attempt, parked, read_at, joined_at)
     select source_event + 2, case when bounced_at is null then 'delivered' else 'bounced' end, message_id, recipient, match_key,
       coalesce(delivered_at, bounced_at), md5('a' || dedupe_key)::uuid, null, coalesce(delivered_at, bounced_at), coalesce(delivered_at, bounced_at)
     from email_sends where coalesce(delivered_at, bounced_at) is not null and $1::timestamptz is not null and $2::bigint > 0`,
  ],
  [
    'references',
    `insert into event_refs (ref, event_id)
     select distinct ref, id from (
       select unnest(array['inv-' || (id / 3), 'in_' || substr(md5('o' || id / 2), 1, 14), 'cus_' || substr(md5('c' || id % 300000), 1, 14),
         'ch_' || substr(md5('h' || id), 1, 14)]) as ref, id
       from webhook_events where id % 3 = 1 and $1::timestamptz is not null and $2::bigint > 0
       union all
       select unnest(array['cus_' || substr(md5('c' || id % 300000), 1, 14), 'acct_1acme']), id from webhook_events where id % 3 = 2 and id % 4 = 2
       union all
       select unnest(array[reports.message_id, lower(recipient)]), event from delivery_reports reports where recipient is not null
     ) given where ref is not null`,
  ],
  [
    'minutes',
    `insert into source_minutes (source, minute, outcome, cause, count)
     select source, minute, outcome, case outcome when 'refused' then 'wrong_secret' else '' end, 1 + (extract(epoch from minute)::bigint % 17)::int
     from generate_series(date_trunc('minute', $1::timestamptz) - least(34, $2::int / 1000) * interval '1 day', date_trunc('minute', $1::timestamptz), interval '1 min') minute
       cross join (select 'shop_' || lpad(s::text, 2, '0') as source, 5 + s * 7 as every from generate_series(0, 25) s
         union all values ('stripe', 1), ('shopify', 2), ('paypal', 4), ('inboxili', 1)) sources
       cross join (values ('accepted'), ('duplicate'), ('refused')) outcomes (outcome)
     where (extract(epoch from minute) / 60)::bigint % every = 0 and (outcome = 'accepted' or (extract(epoch from minute) / 60)::bigint % 3 = 0) and $2::bigint > 0`,
  ],
  [
    'secrets',
    `insert into source_secrets (source, fingerprint, verified, first_verified_at, last_verified_at)
     select source, 'f1', sum(count), min(minute), max(minute) from source_minutes where outcome = 'accepted' and $1::timestamptz is not null
       and $2::bigint > 0 group by source`,
  ],
  [
    'ack times',
    `insert into ack_minutes (source, minute, counts)
     select source, minute, array[0,0,1,4,9,5,2,1,0,0,0,0,0,0,0,0,0,0,0] from (
       select distinct source, minute from source_minutes union select '', minute from source_minutes) given
     where $1::timestamptz is not null and $2::bigint > 0`,
  ],
  [
    'settlements',
    `insert into settlements (dedupe_key, attempt, event, grade, rule_version, from_state, to_state, candidates, actor, at)
     select dedupe_key, attempts.id, source_event + 2, 'B', 3, 'needs_review', 'sent', jsonb_build_array(attempts.id), 'event', delivered_at
     from email_sends join send_attempts attempts using (dedupe_key)
     where source_event % 301 = 1 and delivered_at is not null and $1::timestamptz is not null and $2::bigint > 0`,
  ],
  [
    'redeliveries',
    `insert into webhook_redeliveries (source, event, last_redelivered_at, redeliveries)
     select source, id, received_at + interval '1 min', 1 + (id - 1) % 3 from webhook_events
     where (id - 1) % 50 = 13 and $1::timestamptz is not null and $2::bigint > 0`,
  ],
  [
    'conflicts',
    `insert into webhook_conflicts (event, body, body_sha256, received_at)
     select id, '{}', body_sha256, received_at from webhook_events where id % 3001 = 1 and $1::timestamptz is not null and $2::bigint > 0`,
  ],
  [
    'parked reports',
    `insert into delivery_reports (event, kind, message_id, recipient, match_key, occurred_at, parked)
     select id, 'delivered', 'm_' || md5('f' || id), 'x' || id || '@example.net', 'x' || id || '@example.net', received_at, 'foreign'
     from webhook_events where id % 3 = 2 and id % 4003 = 2 and $1::timestamptz is not null and $2::bigint > 0 on conflict do nothing`,
  ],
]

/** Fills the empty, migrated database with so many sends and three times as many events; what comes of it is like a database of 90 days. */
export async function fillHistory(db: Db, sends: number, now: Date, say: (line: string) => void): Promise<void> {
  const { rows: indexes } = await db.query<{ name: string; definition: string }>(
    `select indexname as name, indexdef as definition from pg_indexes
     where schemaname = 'public' and tablename = any ($1) and indexname not in (select conname from pg_constraint)`,
    [BIG],
  )
  // Triggers and foreign keys are checked row by row otherwise.
  await db.query('set session_replication_role = replica')
  for (const { name } of indexes) await db.query(`drop index ${name}`)
  for (const [name, sql] of steps) {
    const started = performance.now()
    const { rowCount } = await db.query(sql, [now, sends])
    say(`${name}: ${rowCount} rows in ${((performance.now() - started) / 1_000).toFixed(1)} s`)
  }
  for (const { name, definition } of indexes) {
    const started = performance.now()
    await db.query(definition)
    say(`index ${name} in ${((performance.now() - started) / 1_000).toFixed(1)} s`)
  }
  await db.query('set session_replication_role = origin')
  await db.query(`select setval(pg_get_serial_sequence('webhook_events', 'id'), (select max(id) from webhook_events))`)
}
