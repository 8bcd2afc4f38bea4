-- Up Migration

-- A token is shown once; only its hash is kept.
create table api_tokens (
  id bigint generated always as identity primary key,
  name text not null,
  role text not null constraint api_tokens_role check (role in ('reader', 'operator', 'sender')),
  token_sha256 bytea not null constraint api_tokens_once unique,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz
);

-- Down Migration

drop table api_tokens;
