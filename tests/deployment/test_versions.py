"""Versions: what a deployment changes, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from durable import Durable, DurableContext, RunFailed, Start, workflow
from durable.errors import UnknownVersion, WrongState


async def test_deploying_the_same_again_changes_nothing(runtime: Any, version_of: Any) -> None:
    """The second deployment of a version is no change, and leaves the first one's row as it was."""
    first = version_of("hello", {"returns": 1})
    assert await runtime.client.deploy(first, by="ada") is True
    before = await runtime.client.versions("hello")
    assert await runtime.client.deploy(first, by="bob") is False
    assert before == await runtime.client.versions("hello")
    assert [(each.deployed_by, each.current) for each in before] == [("ada", True)]


async def test_new_runs_get_the_current_version(runtime: Any, catalogue: Any, version_of: Any) -> None:
    """After a deployment every new run is of its version, and each version is made once per worker."""
    one, two = version_of("hello", {"returns": 1}), version_of("hello", {"returns": 2})
    await runtime.client.deploy(one)
    await runtime.work(catalogue=catalogue)
    assert [(await runtime.run("hello"))["returns"] for _ in range(2)] == [1, 1]
    await runtime.client.deploy(two)
    assert [(await runtime.run("hello"))["returns"] for _ in range(2)] == [2, 2]
    assert [one.version, two.version] == catalogue.made


async def test_a_run_keeps_its_version_for_life(runtime: Any, catalogue: Any, version_of: Any) -> None:
    """A run that waits while its workflow is deployed anew ends as what it began as, on another worker too."""
    old, new = version_of("hello", {"returns": 1, "after": "go"}), version_of("hello", {"returns": 2})
    await runtime.client.deploy(old)
    await runtime.work(catalogue=catalogue)
    run_id = await runtime.client.start("hello")
    await runtime.state_is(run_id, "parked")
    await runtime.client.deploy(new)
    await runtime.stop()
    await runtime.work(catalogue=type(catalogue)())
    await runtime.client.emit("go")
    result = await runtime.client.result(run_id, timeout=30)
    assert {"returns": 1, "given": {}, "version": old.version} == result
    assert old.version == (await runtime.client.run(run_id)).version


async def test_an_old_version_can_be_started_by_name(runtime: Any, catalogue: Any, version_of: Any) -> None:
    """`Start(version=...)` pins a run to a version that is not the current one."""
    old, new = version_of("hello", {"returns": 1}), version_of("hello", {"returns": 2})
    await runtime.client.deploy(old)
    await runtime.client.deploy(new)
    await runtime.work(catalogue=catalogue)
    run_id = await runtime.client.start("hello", options=Start(version=old.version))
    assert (await runtime.client.result(run_id, timeout=30))["returns"] == 1


async def test_deploying_an_old_version_makes_it_current_again(runtime: Any, version_of: Any) -> None:
    """A roll-back is a deployment: new runs get the old version, and both stay."""
    old, new = version_of("hello", {"returns": 1}), version_of("hello", {"returns": 2})
    for each in (old, new, old):
        assert await runtime.client.deploy(each) is True
    assert old.version == (await runtime.client.version("hello")).version
    assert len(await runtime.client.versions("hello")) == 2


async def test_a_worker_learns_of_a_new_workflow_while_it_runs(runtime: Any, catalogue: Any, version_of: Any) -> None:
    """What is deployed after a worker has started is served without a restart."""
    await runtime.work(catalogue=catalogue)
    await runtime.client.deploy(version_of("later", {"returns": 3}))
    assert (await runtime.run("later"))["returns"] == 3


async def test_a_worker_finds_new_workflows_without_being_told(runtime: Any, catalogue: Any, version_of: Any) -> None:
    """The notification is a hint; a worker that never hears one finds the deployment at its next look."""
    await runtime.work(catalogue=catalogue, idle_poll_seconds=0.1, poll_seconds=0.1)
    await runtime.client.deploy(version_of("known", {"returns": 1}))
    await runtime.run("known")
    # As by another program: the same rows, and no notification.
    await runtime.sql("insert into durable.workflow (name, version, registered_at) values ('quiet', 'v1', now())")
    await runtime.sql(
        "insert into durable.version (workflow, version, language, source, plan, deployed_at, deployed_by)"
        " values ('quiet', 'v1', 'test', '', '{\"returns\": 4}', now(), 'psql')"
    )
    assert (await runtime.run("quiet"))["returns"] == 4


async def test_a_worker_claims_no_run_of_a_language_it_does_not_know(
    runtime: Any, catalogue: Any, version_of: Any
) -> None:
    """Runs of other languages wait for a worker that knows them, while its own go on."""
    await runtime.client.deploy(version_of("foreign", {"returns": 1}, language="klingon"))
    await runtime.client.deploy(version_of("ours", {"returns": 2}))
    await runtime.work(catalogue=catalogue)
    foreign = await runtime.client.start("foreign")
    assert (await runtime.run("ours"))["returns"] == 2
    assert await runtime.client.state(foreign) == "ready"


async def test_a_worker_without_a_catalogue_serves_programs_only(runtime: Any, version_of: Any) -> None:
    """A worker that was not told to serve deployed workflows leaves them to others."""

    @workflow
    async def program(ctx: DurableContext) -> str:
        return "done"

    await runtime.client.deploy(version_of("deployed", {"returns": 1}))
    await runtime.work(program)
    waiting = await runtime.client.start("deployed")
    await runtime.client.start(program)
    assert await runtime.client.result(await runtime.client.start(program), timeout=30) == "done"
    assert await runtime.client.state(waiting) == "ready"


async def test_programs_and_deployed_workflows_share_a_worker(runtime: Any, catalogue: Any, version_of: Any) -> None:
    """A program may start a deployed workflow as its child, and gets its result."""

    @workflow
    async def parent(ctx: DurableContext) -> int:
        result = await ctx.wait_for(await ctx.spawn("child", n=7))
        return int(result["returns"] + result["given"]["n"])

    await runtime.client.deploy(version_of("child", {"returns": 1}))
    await runtime.work(parent, catalogue=catalogue)
    run_id = await runtime.client.start(parent)
    assert await runtime.client.result(run_id, timeout=30) == 8


async def test_a_version_that_cannot_run_fails_its_runs_and_says_why(
    runtime: Any, catalogue: Any, version_of: Any
) -> None:
    """The worker goes on, and the run says what is wrong with its version."""
    await runtime.client.deploy(version_of("bad", {"broken": True}))
    await runtime.client.deploy(version_of("good", {"returns": 1}))
    await runtime.work(catalogue=catalogue)
    with pytest.raises(RunFailed, match="cannot be made to run"):
        await runtime.run("bad")
    assert (await runtime.run("good"))["returns"] == 1


async def test_a_program_and_a_deployment_cannot_have_one_name(runtime: Any, version_of: Any) -> None:
    """Whichever comes second is refused, and told to take another name."""

    @workflow(name="mine")
    async def mine(ctx: DurableContext) -> None: ...

    @workflow(name="theirs")
    async def theirs(ctx: DurableContext) -> None: ...

    await runtime.client.register(mine)
    with pytest.raises(WrongState, match="another name"):
        await runtime.client.deploy(version_of("mine", {"returns": 1}))
    await runtime.client.deploy(version_of("theirs", {"returns": 1}))
    async with Durable(runtime.dsn) as other:
        with pytest.raises(WrongState, match="another name"):
            await other.register(theirs)


async def test_a_refused_deployment_leaves_nothing(runtime: Any, version_of: Any) -> None:
    """A deployment without a version is refused, and its workflow stays unknown."""
    with pytest.raises(Exception, match="needs the name"):
        await runtime.client.deploy(version_of("half", {"returns": 1}).model_copy(update={"version": ""}))
    with pytest.raises(UnknownVersion, match="half"):
        await runtime.client.version("half")
    assert await runtime.client.versions() == []


async def test_settings_of_a_version_hold_for_its_workflow(runtime: Any, catalogue: Any, version_of: Any) -> None:
    """A cap that comes with a version counts runs as a program's own would."""
    capped = version_of("capped", {"returns": 1, "after": "go"}, settings={"max_active_runs": 1, "deadline": 3600})
    await runtime.client.deploy(capped)
    await runtime.work(catalogue=catalogue)
    first = await runtime.client.start("capped")
    await runtime.state_is(first, "parked")
    second = await runtime.client.start("capped")
    await runtime.state_is(second, "queued")
    assert (await runtime.client.run(first)).deadline_at is not None
    await runtime.client.emit("go")
    await runtime.client.result(first, timeout=30)
    await runtime.client.result(second, timeout=30)
