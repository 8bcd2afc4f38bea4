-- Up Migration

alter table webhook_events
  -- Which secret verified it: what `secret_index` counts changes with each rotation, a fingerprint doesn't.
  add column secret_fingerprint text,
  -- The provider's object that the event is about, so that an older event can tell that a newer one has come.
  add column object_ref text,
  -- What a sender signs once only, where it signs nothing of the event (Mailgun's token).
  add column replay_key text,
  drop constraint webhook_events_id_basis,
  add constraint webhook_events_id_basis
    check (id_basis in ('provider', 'message_id+type', 'derived', 'body_hash', 'delivery'));

-- In the order in which people see them, the object's newest event first.
create index webhook_events_of_object on webhook_events (source, object_ref, occurred_at desc nulls last)
  where object_ref is not null;

create unique index webhook_events_replay_once on webhook_events (source, replay_key) where replay_key is not null;

-- The key of the fingerprints: without it a leaked list of them would let short secrets be guessed.
create table installation (
  only_row boolean primary key default true constraint installation_once check (only_row),
  fingerprint_key bytea not null
    default decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')
);
insert into installation default values;

-- What the sources answered, by the minute; each process adds its own now and again, off the ack path.
create table source_minutes (
  source text not null,
  minute timestamptz not null,
  outcome text not null,
  -- Why it was refused; empty where it wasn't.
  cause text not null default '',
  count integer not null,
  -- The minute leads: the last day is read for all sources at once, and the oldest days are forgotten.
  constraint source_minutes_once primary key (minute, source, outcome, cause)
);

create table source_secrets (
  source text not null,
  -- Empty where no secret says whom to trust.
  fingerprint text not null,
  verified bigint not null,
  first_verified_at timestamptz not null,
  last_verified_at timestamptz not null,
  constraint source_secrets_once primary key (source, fingerprint)
);

-- Down Migration

drop table source_secrets;
drop table source_minutes;
drop table installation;
drop index webhook_events_replay_once;
drop index webhook_events_of_object;
alter table webhook_events drop column replay_key, drop column object_ref, drop column secret_fingerprint,
  drop constraint webhook_events_id_basis,
  add constraint webhook_events_id_basis check (id_basis in ('provider', 'message_id+type', 'body_hash')) not valid;
