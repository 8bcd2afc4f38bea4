-- Up Migration

-- How often an event came again, apart from its row, which would be written anew with its body each time. The key also leads to the
-- redelivered events of a source. No reference to webhook_events, where no row is ever deleted: its check would take a third of the
-- time of a first count.
create table webhook_redeliveries (
  source text not null,
  event bigint not null,
  last_redelivered_at timestamptz not null,
  redeliveries integer not null,
  benign_variants integer not null default 0,
  constraint webhook_redeliveries_once primary key (source, event)
) with (
  -- A page has room for the next version of each of its rows, and then no index is touched.
  fillfactor = 45
);

-- The columns of webhook_events and their index stay for the version before. What it still counts beside this one isn't told: a
-- redelivery is answered all the same.
insert into webhook_redeliveries (source, event, last_redelivered_at, redeliveries, benign_variants)
select source, id, coalesce(last_redelivered_at, received_at), redeliveries, benign_variants
from webhook_events where redeliveries > 0 order by source, id;

-- Down Migration

update webhook_events events
set redeliveries = greatest(events.redeliveries, again.redeliveries),
  last_redelivered_at = greatest(events.last_redelivered_at, again.last_redelivered_at),
  benign_variants = greatest(events.benign_variants, again.benign_variants)
from webhook_redeliveries again where again.source = events.source and again.event = events.id;
drop table webhook_redeliveries;
