-- Up Migration

-- A name for a filter of a list; it never overrides what the address says.
create table saved_views (
  id bigint generated always as identity primary key,
  screen text not null constraint saved_views_screen check (screen in ('sends', 'events', 'review', 'audit')),
  name text not null constraint saved_views_name check (length(name) between 1 and 100),
  -- The query string of the list, as its own filter reads it.
  query text not null constraint saved_views_query check (length(query) <= 4000),
  created_at timestamptz not null default now(),
  created_by text not null,
  constraint saved_views_once unique (screen, name)
);

-- Each form of the page has an ID that counts once: a double click gets the first one's answer.
create table form_submissions (
  id uuid primary key,
  person text not null,
  -- The path that it was sent to; its answer is not that of another form.
  action text not null,
  at timestamptz not null default now(),
  -- Where its answer leads and what it says; null while it is being carried out, and for ever if the process ended meanwhile.
  location text,
  notice jsonb
);
create index form_submissions_oldest on form_submissions (at);

-- Down Migration

drop table form_submissions;
drop table saved_views;
