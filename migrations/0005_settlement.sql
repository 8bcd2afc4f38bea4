-- Up Migration

-- The recipient in the widest form that could be the same mailbox: what may belong together is looked for under it.
-- sends/address.ts makes it; this is for the rows from before, and for those that a process of the version before still writes. A domain
-- outside of ASCII stays as it is.
create function match_key_of(recipient text) returns text language sql immutable as $$
  select case when domain in ('gmail.com', 'googlemail.com') then replace(untagged, '.', '') || '@gmail.com' else untagged || '@' || domain end
  from (select regexp_replace(substring(address from '^(.*)@'), '\+.*$', '') as untagged, substring(address from '@([^@]*)$') as domain
        from (select lower(trim(recipient)) as address) as normal) as parts
$$;
create function fill_match_key() returns trigger language plpgsql as $$
begin
  new.match_key := match_key_of(new.recipient);
  return new;
end
$$;
alter table email_sends add column match_key text;
update email_sends set match_key = match_key_of(recipient);
alter table email_sends alter column match_key set not null;
create trigger email_sends_fill_match_key before insert on email_sends
  for each row when (new.match_key is null) execute function fill_match_key();
alter table send_attempts add column match_key text;
update send_attempts set match_key = match_key_of(recipient);
alter table send_attempts alter column match_key set not null;
create trigger send_attempts_fill_match_key before insert on send_attempts
  for each row when (new.match_key is null) execute function fill_match_key();
create index send_attempts_without_message on send_attempts (match_key, claimed_at)
  where message_id is null and outcome in ('in_flight', 'unknown', 'accepted');

alter table delivery_reports
  add column match_key text,
  -- Whether the event says its time itself; else it is that of its receipt.
  add column has_own_time boolean not null default true,
  add column subject text,
  -- The attempts it might belong to, for the people who look at a parked one.
  add column candidates uuid[];
create index delivery_reports_parked_by_recipient on delivery_reports (match_key, occurred_at) where attempt is null;

alter table settlements add column evidence jsonb;
-- What people decided about one send.
create index audit_log_by_subject on audit_log (subject);

-- One row: what holds all processes.
create table sending_control (
  only_row boolean primary key default true constraint sending_control_once check (only_row),
  version integer not null default 1,
  -- Why nothing is claimed but a probe now and then; null while sending runs.
  held_reason text,
  held_by text,
  held_at timestamptz,
  next_probe_at timestamptz,
  unknown_in_a_row integer not null default 0,
  -- Which server and timeline this was; another one after a restore.
  database_id text not null,
  -- `suggest`: events that name only a recipient settle nothing by themselves, until a person has looked.
  matching text not null default 'auto' constraint sending_control_matching check (matching in ('auto', 'suggest')),
  matching_reason text,
  matching_at timestamptz,
  constraint sending_control_held check ((held_reason is null) = (held_at is null))
);
insert into sending_control (database_id)
  select system_identifier || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) from pg_control_system();

-- Policy `timestamp`: one email of a kind to a recipient, whatever its key. Without a foreign key, as the mark is taken first.
create table email_marks (
  kind text not null,
  recipient text not null,
  dedupe_key text not null,
  sent_at timestamptz,
  constraint email_marks_once primary key (kind, recipient)
);
create index email_marks_by_key on email_marks (dedupe_key);

-- Whoever moves such a send to `sent` (an answer, an event, a person), its mark stands from then on.
create function email_sends_keep_mark() returns trigger language plpgsql as $$
begin
  update email_marks set sent_at = now() where dedupe_key = new.dedupe_key and sent_at is null;
  return null;
end
$$;
create trigger email_sends_marked after update of state on email_sends
  for each row when (new.state = 'sent' and new.policy = 'timestamp') execute function email_sends_keep_mark();

-- Down Migration

drop trigger email_sends_marked on email_sends;
drop function email_sends_keep_mark;
drop table email_marks;

drop table sending_control;
drop index audit_log_by_subject;
alter table settlements drop column evidence;
drop index delivery_reports_parked_by_recipient;
alter table delivery_reports drop column candidates, drop column subject, drop column has_own_time, drop column match_key;
drop index send_attempts_without_message;
drop trigger send_attempts_fill_match_key on send_attempts;
alter table send_attempts drop column match_key;
drop trigger email_sends_fill_match_key on email_sends;
alter table email_sends drop column match_key;
drop function fill_match_key;
drop function match_key_of;
