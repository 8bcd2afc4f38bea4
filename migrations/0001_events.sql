-- Up Migration

-- One row per event, for ever: the row is what makes a redelivery harmless.
create table webhook_events (
  id bigint generated always as identity primary key,
  source text not null,
  event_id text not null,
  id_basis text not null constraint webhook_events_id_basis check (id_basis in ('provider', 'message_id+type', 'body_hash')),
  id_signed boolean not null,
  type text,
  livemode boolean,
  occurred_at timestamptz,
  received_at timestamptz not null default now(),
  -- The bytes as received, after content decoding. Null: in webhook_bodies, or emptied by retention (body_emptied_at).
  body bytea,
  body_sha256 bytea not null,
  body_emptied_at timestamptz,
  headers jsonb not null,
  secret_index smallint,
  status text not null
    constraint webhook_events_status check (status in ('pending', 'processed', 'ignored', 'failed', 'quarantined')),
  processed_at timestamptz,
  error text,
  redeliveries integer not null default 0,
  last_redelivered_at timestamptz,
  benign_variants integer not null default 0,
  constraint webhook_events_once unique (source, event_id),
  constraint webhook_events_processed check (status <> 'processed' or processed_at is not null)
) with (fillfactor = 90);

-- Where the ID is not covered by the signature, a captured body must not come back under a new one. The type belongs to
-- the key: Shopify posts one and the same order under several topics.
create unique index webhook_events_body_once on webhook_events (source, type, body_sha256) nulls not distinct
  where not id_signed;

create index webhook_events_open on webhook_events (status, id) where status in ('pending', 'failed', 'quarantined');

-- What retention looks for, oldest first, and the events that still need the shared bytes of their POST.
create index webhook_events_to_empty on webhook_events (received_at)
  where body_emptied_at is null and status in ('processed', 'ignored');
create index webhook_events_sharing_a_body on webhook_events (body_sha256) where body is null and body_emptied_at is null;

-- The bytes of a POST that holds several events, once; their rows find it by body_sha256.
create table webhook_bodies (
  sha256 bytea primary key,
  body bytea,
  received_at timestamptz not null default now()
);

-- The same event ID with truly different content: kept apart for people to see, nothing is sent for it.
create table webhook_conflicts (
  id bigint generated always as identity primary key,
  event bigint not null references webhook_events (id),
  body bytea not null,
  body_sha256 bytea not null,
  received_at timestamptz not null default now(),
  times integer not null default 1,
  constraint webhook_conflicts_once unique (event, body_sha256)
);

-- Down Migration

drop table webhook_conflicts;
drop table webhook_bodies;
drop table webhook_events;
