-- record: one journal row and nothing else: what a flush is while few tasks run, at four fifths of its cost. A statement that
-- workers prepare, not a function: with one step in flight, calling one would be another twentieth of the whole.
-- Answers whether `flush` has something to tell; null: this very write was applied before. Locks: fence.
-- Worker, channel, flush number; run, task, position, epoch, kind, name, frame, body, milliseconds.
with f as (
  update durable.fence f set flush_no = $3
  where f.worker_id = $1 and f.channel = $2 and f.flush_no < $3
  returning statement_timestamp() + coalesce((select c.shift from durable.clock c), interval '0') as now
), j as (
  insert into durable.journal (run_id, task_id, pos, epoch, kind, name, frame, body, ms, at)
  select $4, $5, $6, $7, $8, $9, $10, $11, $12, f.now from f
)
select coalesce(
  (select exists (select from durable.held h where h.worker_id = $1 and (h.stop or h.news)) from f),
  durable.check_fence($1, $2))
