-- Up Migration

-- One row per email, for ever: the row is the guard.
create table email_sends (
  dedupe_key text primary key constraint email_sends_key_length check (length(dedupe_key) between 1 and 512),
  state text not null constraint email_sends_state check (state in
    ('queued', 'claimed', 'sending', 'sent', 'rejected', 'needs_review', 'abandoned')),
  version integer not null default 1,
  policy text not null constraint email_sends_policy check (policy in
    ('unguarded', 'timestamp', 'claim', 'prefer_duplicate', 'per_period')),
  recipient text not null,
  message jsonb not null,
  message_sha256 bytea not null,
  source_event bigint references webhook_events (id),
  requested_by text not null,
  queued_at timestamptz not null default now(),
  send_after timestamptz,
  claimed_at timestamptz,
  sending_at timestamptz,
  claim_token uuid,
  -- Calls since the last trigger that provably sent nothing: answered 429, and ended before the first byte.
  rate_limited_calls integer not null default 0,
  unreached_calls integer not null default 0,
  message_id text,
  completed_at timestamptz,
  delivered_at timestamptz,
  bounced_at timestamptz,
  bounce_kind text constraint email_sends_bounce_kind check (bounce_kind in ('hard', 'unknown', 'soft')),
  complained_at timestamptz,
  settled_at timestamptz,
  settled_by text,
  last_error text,
  needs_review boolean not null generated always as (state = 'needs_review') stored,
  status text not null generated always as (
    case
      when state <> 'sent' then state
      when bounced_at is not null and bounce_kind is distinct from 'soft' then 'bounced'
      when delivered_at is not null then 'delivered'
      else 'sent'
    end) stored,
  constraint email_sends_bounce check ((bounced_at is null) = (bounce_kind is null)),
  constraint email_sends_claimed check (state not in ('claimed', 'sending') or (claim_token is not null and claimed_at is not null)),
  -- Sent, and known to be: by the call's own answer, a delivery event or a person.
  constraint email_sends_completed check (state <> 'sent' or completed_at is not null)
) with (fillfactor = 80);

create index email_sends_newest on email_sends (queued_at, dedupe_key);
create index email_sends_by_status on email_sends (status, queued_at, dedupe_key);
create index email_sends_by_recipient on email_sends (lower(recipient), queued_at);
create index email_sends_by_message_id on email_sends (message_id);
-- What the sweeps look through; a rejected send is open only while its own job is to repeat it.
create index email_sends_open on email_sends (state, queued_at)
  where state in ('queued', 'claimed', 'sending') or (state = 'rejected' and send_after is not null);

-- The moves of sends/lifecycle.ts once more, where no code can go round them; a test compares the two.
create function email_sends_check_move() returns trigger language plpgsql as $$
begin
  if (old.state, new.state) not in (
    ('rejected', 'queued'),
    ('queued', 'claimed'), ('rejected', 'claimed'),
    ('claimed', 'sending'), ('claimed', 'queued'),
    ('sending', 'sent'), ('sending', 'rejected'), ('sending', 'needs_review'), ('sending', 'queued'),
    ('needs_review', 'sent'), ('needs_review', 'rejected'), ('needs_review', 'abandoned'), ('needs_review', 'queued'),
    ('queued', 'sent'),
    ('sent', 'needs_review'), ('abandoned', 'needs_review')
  ) then
    raise exception 'email_sends: % to % is not a legal move', old.state, new.state using errcode = 'check_violation';
  end if;
  return new;
end
$$;
create trigger email_sends_legal_move before update of state on email_sends
  for each row when (old.state is distinct from new.state) execute function email_sends_check_move();

-- One row per API call that we may have made. Its ID is the claim token of the send. Never deleted early.
create table send_attempts (
  id uuid primary key,
  dedupe_key text not null references email_sends (dedupe_key),
  number integer not null,
  recipient text not null,
  claimed_at timestamptz not null default now(),
  called_at timestamptz,
  ended_at timestamptz,
  outcome text not null default 'claimed' constraint send_attempts_outcome check (outcome in
    ('claimed', 'never_called', 'in_flight', 'accepted', 'refused', 'unknown')),
  http_status integer,
  error text,
  message_id text constraint send_attempts_one_message unique,
  constraint send_attempts_number unique (dedupe_key, number)
);

-- What a call said is written once; only the sweep's "unknown" gives way to the answer that comes after all.
create function send_attempts_check_change() returns trigger language plpgsql as $$
begin
  if old.outcome <> new.outcome and (old.outcome, new.outcome) not in (
    ('claimed', 'in_flight'), ('claimed', 'never_called'),
    ('in_flight', 'accepted'), ('in_flight', 'refused'), ('in_flight', 'unknown'),
    ('unknown', 'accepted'), ('unknown', 'refused')
  ) or old.message_id <> new.message_id or (old.message_id is not null and new.message_id is null) then
    raise exception 'send_attempts: what attempt % says is written once', old.id using errcode = 'restrict_violation';
  end if;
  return new;
end
$$;
create trigger send_attempts_written_once before update of outcome, message_id on send_attempts
  for each row execute function send_attempts_check_change();

-- Which event asked for which email, and what came of it: three events and one email is three rows.
create table follow_ups (
  event bigint not null references webhook_events (id),
  rule text not null,
  dedupe_key text references email_sends (dedupe_key),
  outcome text not null constraint follow_ups_outcome check (outcome in ('queued', 'held', 'key_taken', 'failed')),
  error text,
  at timestamptz not null default now(),
  constraint follow_ups_once unique nulls not distinct (event, rule, dedupe_key)
);
create index follow_ups_by_key on follow_ups (dedupe_key);

-- What an Inboxili event says, read once. Parked: no attempt is known for it yet.
create table delivery_reports (
  event bigint primary key references webhook_events (id),
  kind text not null,
  message_id text,
  recipient text,
  occurred_at timestamptz not null,
  bounce_kind text,
  attempt uuid references send_attempts (id),
  parked text,
  read_at timestamptz not null default now(),
  constraint delivery_reports_parked check ((attempt is null) = (parked is not null))
);
create index delivery_reports_parked_by_message on delivery_reports (message_id) where attempt is null;
create index delivery_reports_by_attempt on delivery_reports (attempt);

-- Evidence of each settlement.
create table settlements (
  id bigint generated always as identity primary key,
  dedupe_key text not null references email_sends (dedupe_key),
  attempt uuid not null references send_attempts (id),
  event bigint references webhook_events (id),
  grade text not null constraint settlements_grade check (grade in ('A', 'B', 'C', 'P')),
  rule_version integer not null,
  from_state text not null,
  to_state text not null,
  candidates jsonb not null,
  event_at timestamptz,
  actor text not null,
  at timestamptz not null default now()
);
create index settlements_by_key on settlements (dedupe_key);

create table audit_log (
  id bigint generated always as identity primary key,
  at timestamptz not null default now(),
  actor text not null,
  via text not null,
  action text not null,
  subject text not null,
  reason text,
  before jsonb,
  after jsonb
);

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% only grows', tg_table_name using errcode = 'restrict_violation';
end
$$;
create trigger settlements_only_grow before update or delete on settlements for each row execute function refuse_change();
create trigger audit_log_only_grows before update or delete on audit_log for each row execute function refuse_change();

-- One row per API key (its hash): the theoretical arrival time of the next call, shared by all processes.
create table rate_slots (
  api_key_sha256 text primary key,
  next_at timestamptz not null
);

-- Down Migration

drop table rate_slots;
drop table audit_log;
drop table settlements;
drop table delivery_reports;
drop table follow_ups;
drop table send_attempts;
drop table email_sends;
drop function email_sends_check_move;
drop function send_attempts_check_change;
drop function refuse_change;
