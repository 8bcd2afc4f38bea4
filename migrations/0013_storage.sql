-- Up Migration

-- Bodies up to some 8 kB stay in their rows as they came: compressing one takes a third of the time of its insert and saves a quarter
-- of the disk. Rows that are there already stay as they are. The table only grows, so a fifth of it, which is when it would be
-- vacuumed and analyzed, gets longer and longer in coming.
alter table webhook_events set (
  toast_tuple_target = 8160, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- Counters that each process adds to every few seconds: their pages keep room for the next version of a row.
alter table source_minutes set (fillfactor = 70);
alter table ack_minutes set (fillfactor = 70);
alter table source_secrets set (fillfactor = 50, autovacuum_vacuum_threshold = 500);

-- Down Migration

alter table source_secrets reset (fillfactor, autovacuum_vacuum_threshold);
alter table ack_minutes reset (fillfactor);
alter table source_minutes reset (fillfactor);
alter table webhook_events reset (toast_tuple_target, autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
