-- Up Migration

-- When an event found its attempt: what was known before a resend was asked for is no reason to drop that.
alter table delivery_reports add column joined_at timestamptz;
update delivery_reports set joined_at = read_at where attempt is not null;

-- A resend that was refused, or is to be repeated, is closed when an earlier call of the same email proves to have sent it.
create or replace function email_sends_check_move() returns trigger language plpgsql as $$
begin
  if (old.state, new.state) not in (
    ('rejected', 'queued'),
    ('queued', 'claimed'), ('rejected', 'claimed'),
    ('claimed', 'sending'), ('claimed', 'queued'),
    ('sending', 'sent'), ('sending', 'rejected'), ('sending', 'needs_review'), ('sending', 'queued'),
    ('needs_review', 'sent'), ('needs_review', 'rejected'), ('needs_review', 'abandoned'), ('needs_review', 'queued'),
    ('queued', 'sent'), ('rejected', 'sent'),
    ('sent', 'needs_review'), ('abandoned', 'needs_review')
  ) then
    raise exception 'email_sends: % to % is not a legal move', old.state, new.state using errcode = 'check_violation';
  end if;
  return new;
end
$$;

-- Down Migration

alter table delivery_reports drop column joined_at;
create or replace function email_sends_check_move() returns trigger language plpgsql as $$
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
