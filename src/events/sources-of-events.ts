/** `with recursive`: every source that has events, by one step in the index for each; there are few of them, and millions of events. */
export const SOURCES = `sources (source) as (
    (select source from webhook_events order by source limit 1)
    union all
    select (select events.source from webhook_events events where events.source > sources.source order by events.source limit 1)
    from sources where source is not null
  )`
