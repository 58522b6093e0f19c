"""W5: a fresh worker takes over a run with a long past.

Timed from the claim, by the server's clock, and from the moment the worker was ready; both until the first new step.
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Sequence

from bench.probe import Probe
from bench.process import worker
from bench.result import Budget, Result
from bench.stage import Stage
from bench.workloads import looping, many_steps
from durable import Durable

SHORT = 10

# A held row is gone when its run has ended; this remembers when the last claim began.
REMEMBER = """
create table claimed (task_id uuid, at timestamptz);
create function remember() returns trigger language plpgsql as $$
begin
  insert into claimed values (new.task_id, new.claimed_at);
  return null;
end $$;
create trigger remember after insert on durable.held for each row execute function remember()
"""
CLAIMED = "select extract(epoch from max(at)) from claimed where task_id = %s"


async def run(stage: Stage) -> AsyncIterator[Result]:
    sizes = stage.sizes
    cases = [(many_steps, "steps", SHORT), (many_steps, "steps", sizes.resume_steps),
             (looping, "rounds", SHORT), (looping, "rounds", sizes.resume_loops)]  # fmt: skip
    async with stage.database() as dsn, Durable(dsn) as durable, await Probe.open(dsn) as probe:
        await probe.run(REMEMBER)
        runs = [await durable.start_many(workflow, [{unit: past}] * sizes.resumes) for workflow, unit, past in cases]
        async with worker(dsn):
            await probe.parked(len(cases) * sizes.resumes)
        # Short and long pasts in turns: what else the machine does meanwhile then falls on all of them.
        rounds = [[await _resume(dsn, durable, probe, run_id) for run_id in turn] for turn in zip(*runs, strict=True)]
    for (_, unit, past), took in zip(cases, zip(*rounds, strict=True), strict=True):
        yield _result(f"resume after {past:,} {unit}", took)


async def _resume(dsn: str, durable: Durable, probe: Probe, run_id: str) -> tuple[float, float]:
    """Seconds from the claim, and from the moment the worker was ready."""
    await durable.emit(f"go on/{run_id}")
    async with worker(dsn) as process:
        began = float(await durable.result(run_id))
    return began - float(await probe.value(CLAIMED, (run_id,))), began - process.ready_at


def _result(case: str, took: Sequence[tuple[float, float]]) -> Result:
    from_claim, from_ready = zip(*took, strict=True)
    values = {
        "ms from claim": statistics.median(from_claim) * 1000,
        "ms from ready": statistics.median(from_ready) * 1000,
        "worst ms from claim": max(from_claim) * 1000,
    }
    return Result("W5", case, values)


def judge(results: list[Result]) -> None:
    """A long past is compared with one of ten."""
    for short, long in zip(results[::2], results[1::2], strict=True):
        long.budgets = [
            Budget(f"of the resume after {SHORT}, {name}", 3.0, long.values[name] / short.values[name], at_least=False)
            for name in ("ms from claim", "ms from ready")
        ]
