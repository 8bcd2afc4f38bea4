-- Up Migration

-- How long the answers 2xx took, by the minute; each process adds its own now and again, off the ack path.
create table ack_minutes (
  -- Empty: all sources together, so that a chart of them reads one row a minute.
  source text not null,
  minute timestamptz not null,
  -- One count for each bound of events/ack-buckets.ts, and one for what took longer.
  counts integer[] not null constraint ack_minutes_buckets check (cardinality(counts) = 19),
  constraint ack_minutes_once primary key (source, minute)
);

-- Who runs on this database, and who has in the last days: a chart tells a time without events from one without processes.
create table processes (
  id uuid primary key,
  kind text not null constraint processes_kind check (kind in ('serve', 'worker')),
  host text not null,
  pid integer not null,
  version text not null,
  started_at timestamptz not null default now(),
  seen_at timestamptz not null default now(),
  -- Its clean end; null too in one that was killed.
  ended_at timestamptz,
  -- When it last looked for what dead workers have left; null in a process that doesn't.
  swept_at timestamptz,
  -- By how much its clock was ahead of the database's when it was last seen.
  clock_ahead_ms integer not null
);

-- What settled in the last day, by grade.
create index settlements_by_time on settlements (at, grade);

-- Down Migration

drop index settlements_by_time;
drop table processes;
drop table ack_minutes;
