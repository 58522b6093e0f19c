-- record: one journal row of a task that this worker holds and that has no news: what most flushes are while few tasks run, for
-- little more than a bare insert. A statement that workers prepare, not a function: with one step in flight, calling one
-- would be another twentieth of the whole. Nothing is written and nothing answered where it does not apply: `flush` then
-- takes the record, and says why.
-- It has no number. Sent again after a lost answer it meets its own row: the key of the journal is what a flush's number is.
-- Locks: the held row, which a reaper must delete before the task is anybody else's; not against news of it.
-- Worker; run, task, position, epoch, kind, name, frame, body, milliseconds.
insert into durable.journal (run_id, task_id, pos, epoch, kind, name, frame, body, ms, at)
select $2, $3, $4, $5, $6, $7, $8, $9, $10,
       statement_timestamp() + coalesce((select c.shift from durable.clock c), interval '0')
from (
  select from durable.held h
  where h.task_id = $3 and h.worker_id = $1 and h.epoch = $5 and not (h.stop or h.news) for key share) mine
returning true
