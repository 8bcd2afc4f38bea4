-- Up Migration

-- Who signs in on the ops page. A password is kept as its argon2id hash only; without one a person signs in by a one-time link.
create table people (
  id bigint generated always as identity primary key,
  name text not null constraint people_name check (name <> '' and length(name) <= 100),
  role text not null constraint people_role check (role in ('reader', 'operator')),
  password_hash text,
  settings jsonb not null default '{}',
  created_at timestamptz not null default now(),
  disabled_at timestamptz,
  last_signed_in_at timestamptz
);
create unique index people_once on people (lower(name));

-- A browser that is signed in: the hash of what its cookie holds.
create table sessions (
  token_sha256 bytea primary key,
  person bigint not null references people (id),
  started_by text not null constraint sessions_started_by check (started_by in ('password', 'link')),
  created_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index sessions_by_person on sessions (person, created_at);

-- Signs its person in, once.
create table sign_in_links (
  code_sha256 bytea primary key,
  person bigint not null references people (id),
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at timestamptz
);
create index sign_in_links_by_person on sign_in_links (person);

-- Tries of a password since `since`, by name and by address. Hashes, as people type passwords into the wrong field.
create table sign_in_attempts (
  kind text not null constraint sign_in_attempts_kind check (kind in ('address', 'name')),
  subject_sha256 bytea not null,
  tries int not null,
  since timestamptz not null default now(),
  primary key (kind, subject_sha256)
);

alter table api_tokens
  add column created_by text,
  add column revoked_by text,
  add column revoked_reason text;

create index audit_log_by_time on audit_log (at, id);
create index audit_log_by_actor on audit_log (actor, at, id);
create index audit_log_by_action on audit_log (action, at, id);

-- Down Migration

drop index audit_log_by_action;
drop index audit_log_by_actor;
drop index audit_log_by_time;
alter table api_tokens drop column created_by, drop column revoked_by, drop column revoked_reason;
drop table sign_in_attempts;
drop table sign_in_links;
drop table sessions;
drop table people;
