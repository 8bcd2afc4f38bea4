-- Up Migration

-- A person says that a report is none of ours: nothing matches it by its recipient any more. Attaching it takes that back.
alter table delivery_reports
  add column dismissed_at timestamptz,
  add column dismissed_by text;
-- What people look through, the newest first; and, by the call, what the rule would settle by if it might.
create index delivery_reports_unmatched on delivery_reports (event) where attempt is null and dismissed_at is null;
create index delivery_reports_suggesting on delivery_reports ((candidates[1]))
  where attempt is null and dismissed_at is null and parked in ('account not exclusive', 'breaker open');

-- The sends that need a decision, the oldest first; and those of them that a person has reopened although a report had come.
create index email_sends_to_review on email_sends (queued_at, dedupe_key) include (claim_token) where state = 'needs_review';
create index email_sends_reopened on email_sends (claim_token)
  where state = 'needs_review' and (message_id is not null or delivered_at is not null or bounced_at is not null);

-- What a sending log that a person has read in covers, and whether it can be trusted to be whole; by its last reading, those before it
-- are in the audit log.
create table sending_logs (
  id bigint generated always as identity primary key,
  file_sha256 text not null constraint sending_logs_once unique,
  -- Its first and its last time; null where no line has one.
  from_at timestamptz,
  until_at timestamptz,
  lines integer not null,
  -- Emails of that time which Inboxili has accepted from us, and how many of those the file lacks: a whole file lacks none.
  known integer not null,
  missing integer not null,
  -- The zone of times that name none, and the column of each field.
  zone text not null default 'UTC',
  columns jsonb not null default '{}',
  read_at timestamptz not null default now(),
  read_by text not null,
  via text not null,
  reason text not null,
  constraint sending_logs_counts check (missing between 0 and known and from_at <= until_at)
);

-- Calls of unknown outcome that a whole sending log of their time lacks.
create table log_absences (
  attempt uuid not null references send_attempts (id),
  log bigint not null references sending_logs (id),
  at timestamptz not null default now(),
  primary key (attempt, log)
);

-- Decisions about many sends: what would change, looked at, then carried out, each by itself.
create table decision_plans (
  id uuid primary key default gen_random_uuid(),
  decision text not null constraint decision_plans_decision check (decision in ('sent', 'abandoned', 'retry')),
  reason text not null,
  -- Whether more sends matched than one plan takes.
  has_more boolean not null,
  state text not null default 'planned' constraint decision_plans_state check (state in ('planned', 'running', 'done')),
  created_at timestamptz not null default now(),
  created_by text not null,
  expires_at timestamptz not null,
  started_at timestamptz,
  started_by text,
  via text,
  ended_at timestamptz,
  constraint decision_plans_started check ((state = 'planned') = (started_at is null) and (started_at is null) = (started_by is null)
    and (started_at is null) = (via is null)),
  constraint decision_plans_ended check ((state = 'done') = (ended_at is not null))
);
create index decision_plans_open on decision_plans (created_at) where state <> 'done';

-- One send of a plan, as it was when it was looked at. What came of it is written once, with the decision itself.
create table decision_plan_sends (
  plan uuid not null references decision_plans (id) on delete cascade,
  number integer not null,
  dedupe_key text not null,
  version integer,
  suggestion text,
  -- The message that the suggestion rests on.
  message_id text,
  -- Why nothing is decided about it.
  skipped text,
  decided_at timestamptz,
  primary key (plan, number),
  constraint decision_plan_sends_once unique (plan, dedupe_key),
  constraint decision_plan_sends_result check (skipped is null or decided_at is null)
);

-- Down Migration

drop table decision_plan_sends;
drop table decision_plans;
drop table log_absences;
drop table sending_logs;
drop index email_sends_reopened;
drop index email_sends_to_review;
drop index delivery_reports_suggesting;
drop index delivery_reports_unmatched;
alter table delivery_reports drop column dismissed_by, drop column dismissed_at;
