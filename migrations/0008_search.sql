-- Up Migration

-- Parts of keys and addresses are found by their trigrams. The extension comes with PostgreSQL and is trusted.
do $$
begin
  create extension if not exists pg_trgm;
exception when others then
  raise exception 'Oncehook needs the extension pg_trgm and could not create it (%). Have an administrator install it (it is part of postgresql-contrib) and run: create extension pg_trgm; in this database. Then start again', sqlerrm;
end
$$;

-- The source of the event that asked for it, so that a list of them needn't look for each one's event. Null: asked for by the API.
alter table email_sends add column if not exists source text;
create function fill_source() returns trigger language plpgsql as $$
begin
  new.source := (select source from webhook_events where id = new.source_event);
  return new;
end
$$;
create trigger email_sends_fill_source before insert or update of source_event on email_sends
  for each row execute function fill_source();
update email_sends set source = events.source from webhook_events events where events.id = source_event;

-- An operator may have made the indexes beforehand, with these names and `concurrently`.
create index if not exists email_sends_by_source on email_sends (source, queued_at, dedupe_key) include (status, policy);
create index if not exists email_sends_by_policy on email_sends (policy, queued_at, dedupe_key) include (status, source);
create index if not exists email_sends_key_parts on email_sends using gin (dedupe_key gin_trgm_ops);
create index if not exists email_sends_recipient_parts on email_sends using gin (lower(recipient) gin_trgm_ops);

-- What waits, in the order in which it is called; with all that is asked of it.
create index if not exists email_sends_waiting on email_sends (greatest(queued_at, send_after), dedupe_key) include (queued_at, send_after)
  where state = 'queued';

-- The calls of the last hour, and of each stretch of a chart.
create index if not exists send_attempts_by_time on send_attempts (claimed_at) include (outcome);

-- Sources that are too quiet: what they last verified before a time.
create index source_minutes_verified on source_minutes (source, minute)
  where outcome in ('accepted', 'duplicate', 'quarantined');

-- From here on providers wait: what follows locks the table of events.

-- What an event names: IDs of objects, numbers, addresses, in lower case. Written by the worker with the event's result.
create table event_refs (
  ref text not null constraint event_refs_length check (length(ref) between 1 and 200),
  event_id bigint not null references webhook_events (id),
  constraint event_refs_once primary key (ref, event_id)
);
-- They are forgotten with the body that they came in.
create index event_refs_by_event on event_refs (event_id);

-- Each index costs a little with each event, so they are few: a list that names no source looks into each one's.
create index if not exists webhook_events_by_source on webhook_events (source, status, id);
create index if not exists webhook_events_by_type on webhook_events (type, source, status, id);
create index if not exists webhook_events_of_tests on webhook_events (source, id) where livemode = false;
create index if not exists webhook_events_redelivered on webhook_events (source, id) where redeliveries > 0;

-- Down Migration

drop index webhook_events_redelivered;
drop index webhook_events_of_tests;
drop index webhook_events_by_type;
drop index webhook_events_by_source;
drop index source_minutes_verified;
drop index send_attempts_by_time;
drop index email_sends_waiting;
drop index email_sends_recipient_parts;
drop index email_sends_key_parts;
drop index email_sends_by_policy;
drop index email_sends_by_source;
drop trigger email_sends_fill_source on email_sends;
drop function fill_source;
alter table email_sends drop column source;
drop table event_refs;
