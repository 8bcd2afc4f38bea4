-- Up Migration

-- A replay of many events: planned, looked at, then carried out in batches. `done` says how far it got, so that any process goes on.
create table runs (
  id uuid primary key default gen_random_uuid(),
  filter jsonb not null,
  -- The rows of webhook_events that it is about, oldest first; what comes later is not in it.
  events bigint[] not null,
  -- Where the next plan would begin, if more matched than one run takes.
  next_since timestamptz,
  -- What would come of it, by counts; null where nobody asked.
  forecast jsonb,
  state text not null default 'planned' constraint runs_state check (state in ('planned', 'running', 'stopped', 'done')),
  done integer not null default 0,
  -- Events that were queued again, and those that were read anew.
  queued integer not null default 0,
  read_anew integer not null default 0,
  created_at timestamptz not null default now(),
  created_by text not null,
  expires_at timestamptz not null,
  started_at timestamptz,
  started_by text,
  via text,
  ended_at timestamptz,
  stopped_by text,
  constraint runs_progress check (done between 0 and cardinality(events) and queued + read_anew <= done),
  constraint runs_started check (state in ('planned', 'stopped') or (started_at is not null and started_by is not null and via is not null)),
  constraint runs_ended check ((state in ('stopped', 'done')) = (ended_at is not null))
);
create index runs_running on runs (started_at) where state = 'running';

-- Down Migration

drop table runs;
