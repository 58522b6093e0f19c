"""`durable runs why`, in its own words: for runs that ended, wait or have not begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durable.errors import Refused
from durablectl.explaining import Reason, explained, told_of
from interpreter.deployment import Deployed, load
from interpreter.secrets import Vault

FLOW = """
name: waits
max_active_runs: 9
tasks:
  first: {task_id: first, operator_type: task, function: tools.echo, args: ["{{inputs.n}}"], result_key: n}
  big:
    task_id: big
    operator_type: condition
    condition: "{{n}} > 100"
    if_true: ask
    if_false: small
    dependencies: [first]
  ask:
    task_id: ask
    operator_type: wait_for_event
    event_name: "approved_{{n}}"
    timeout_seconds: 3600
    dependencies: [big]
  small: {task_id: small, operator_type: task, function: tools.fail, args: ["too small"], dependencies: [big]}
  nap: {task_id: nap, operator_type: wait, wait_for: PT2H, dependencies: [first]}
  loop:
    task_id: loop
    operator_type: foreach
    items: "{{[1, 2]}}"
    dependencies: [big]
    loop_body:
      - {task_id: inside, operator_type: task, function: tools.echo, args: ["{{item}}"]}
  end: {task_id: end, operator_type: task, function: tools.echo, dependencies: [loop, nap]}
"""


@pytest.fixture
async def deployed(runtime: Any, tmp_path: Path) -> Any:
    """The store with the workflow in it."""
    file = tmp_path / "waits.yaml"
    file.write_text(FLOW)
    (loaded,) = load(file)
    await runtime.client.deploy(loaded.deployment())
    return runtime


async def why(runtime: Any, run_id: str, task: str | None = None) -> dict[str, Reason]:
    return {reason.node: reason for reason in await explained(await told_of(runtime.client, run_id), task)}


async def parked(deployed: Any, n: int) -> str:
    await deployed.work(catalogue=Deployed([], Vault(deployed.dsn)))
    run_id = await deployed.client.start("waits", n=n)
    await deployed.state_is(run_id, "parked")
    return str(run_id)


async def test_a_parked_run_names_what_it_waits_for(deployed: Any) -> None:
    """The event with its limit, the time, and for what has not begun the tasks in front of it."""
    found = await why(deployed, await parked(deployed, 500))
    assert found["ask"].state == found["nap"].state == "waiting"
    assert found["ask"].waits_for[0].startswith("event 'approved_500', until 20")
    assert found["nap"].waits_for[0].startswith("its time, 20")
    assert found["loop"].state == "not begun"
    assert found["loop"].waits_for == [f"ask: {found['ask'].waits_for[0]}"]
    assert {wait.partition(":")[0] for wait in found["end"].waits_for} == {"ask", "nap"}
    assert found["ask"].because == "big chose 'true' when n = 500, and this is 'true'"
    assert found["small"].state == "skipped"
    assert "big.end" not in found


async def test_a_task_inside_of_what_has_not_begun_is_explained_by_it(deployed: Any) -> None:
    """It has no state of its own yet; a name that the workflow does not have is refused with those it has."""
    run_id = await parked(deployed, 500)
    (inside,) = (await why(deployed, run_id, "inside")).values()
    assert (inside.state, inside.because.startswith("loop is not begun")) == ("not begun", True)
    assert inside.waits_for[0].startswith("ask: event 'approved_500'")
    with pytest.raises(Refused, match="has no task 'nobody'; it has first, big, ask"):
        await why(deployed, run_id, "nobody")


async def test_a_task_that_failed_is_named_by_what_it_stopped(deployed: Any) -> None:
    """Also while the rest of the run still waits."""
    found = await why(deployed, await parked(deployed, 5))
    assert (found["small"].state, "too small" in found["small"].because) == ("failed", True)
    assert (found["loop"].state, "too small" in found["loop"].because) == ("upstream_failed", True)
    assert found["loop"].waits_for == []


async def test_items_are_seen_one_by_one(deployed: Any) -> None:
    """Each iteration has its own line, under the task's name."""
    run_id = await parked(deployed, 500)
    await deployed.client.emit("approved_500", {})
    await deployed.until(lambda: has_steps(deployed, run_id, "loop[1]/inside"))
    assert set(await why(deployed, run_id, "inside")) == {"loop[0]/inside", "loop[1]/inside"}


async def has_steps(runtime: Any, run_id: str, name: str) -> bool:
    return name in {step.name for step in await runtime.client.steps(run_id)}


async def test_a_run_that_no_worker_took_says_so(deployed: Any) -> None:
    """What it waits for is a worker, by its queue; a cancelled run waits for nothing."""
    run_id = str(await deployed.client.start("waits", n=1))
    found = await why(deployed, run_id)
    assert found["first"].waits_for == ["a free slot, and a worker that serves queue 'default'"]
    assert found["end"].waits_for == ["first: a free slot, and a worker that serves queue 'default'"]
    await deployed.work(catalogue=Deployed([], Vault(deployed.dsn)))
    await deployed.state_is(run_id, "parked")
    await deployed.client.cancel(run_id)
    await deployed.state_is(run_id, "cancelled")
    ended = await why(deployed, run_id)
    assert (ended["nap"].state, ended["nap"].waits_for) == ("cancelled", [])
    assert ended["nap"].because.startswith("the run was cancelled")
    assert ended["end"].because.startswith("the run was cancelled")


CHILDREN = """
name: parent
tasks:
  call:
    task_id: call
    operator_type: child_workflow
    children: {one: {workflow_name: waits, inputs: {n: 500}}}
  after: {task_id: after, operator_type: task, function: tools.echo, args: ["{{call}}"], dependencies: [call]}
"""


async def test_a_run_that_waits_for_another_names_it(deployed: Any, tmp_path: Path) -> None:
    """By its id and its workflow, so that it can be asked itself; with its result the walk goes on."""
    (tmp_path / "parent.yaml").write_text(CHILDREN)
    (loaded,) = load(tmp_path / "parent.yaml")
    await deployed.client.deploy(loaded.deployment())
    await deployed.work(catalogue=Deployed([], Vault(deployed.dsn)))
    run_id = str(await deployed.client.start("parent"))
    await deployed.state_is(run_id, "parked")
    (child,) = await deployed.client.runs(workflow="waits")
    await deployed.state_is(str(child.run_id), "parked")
    found = await why(deployed, run_id)
    assert found["call"].waits_for == [f"run {child.run_id} of waits (parked)"]
    assert found["after"].waits_for == [f"call: run {child.run_id} of waits (parked)"]
    await deployed.client.emit("approved_500", {})
    await deployed.sql("select durable.skip_time(interval '3 hours')")
    await deployed.client.result(run_id, timeout=30)
    ended = await why(deployed, run_id)
    assert (ended["call"].state, ended["after"].state) == ("done", "done")
