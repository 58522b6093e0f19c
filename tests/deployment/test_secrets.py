"""Secrets: given to the call that names them, and to be found nowhere afterwards."""

from __future__ import annotations

import asyncio
import base64
import pickle
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from durable import Durable, RunFailed, StepInfo
from durable.redaction import Redaction
from durable.secretstore import SecretStore
from interpreter.deployment import Deployed, load
from interpreter.secrets import EnvironmentSecrets, FileSecrets, TableSecrets, Vault, keys

VALUE = "s3cr3t/+ välue?"
MINE = "tests.deployment.leaky"


def flow(function: str, arguments: str) -> str:
    return f"""
name: leaky
tasks:
  use:
    task_id: use
    operator_type: task
    function: {function}
    {arguments}
"""


async def deployed(runtime: Any, folder: Path, text: str, **work: Any) -> None:
    file = folder / "flow.yaml"
    file.write_text(text)
    (loaded,) = load(file)
    await runtime.client.deploy(loaded.deployment())
    await runtime.work(catalogue=Deployed([MINE], Vault(runtime.dsn)), **work)


def everything(dsn: str) -> str:
    """The whole database as text: every row of every table of every schema of ours."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "select table_schema, table_name from information_schema.tables"
            " where table_schema in ('durable', 'public') and table_type = 'BASE TABLE'"
        ).fetchall()
        rows = []
        for table in tables:
            query = sql.SQL("select t::text from {} t").format(sql.Identifier(*table))
            rows += [f"{table[1]}: {row[0]}" for row in connection.execute(query).fetchall()]
    return "\n".join(rows)


def shown_in(text: str) -> list[str]:
    """The lines that show the secret, in any of its spellings."""
    return [line for line in text.splitlines() if Redaction([VALUE]).shows(line)]


@pytest.fixture
def in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_SECRET_TOKEN", VALUE)


@pytest.mark.usefixtures("in_environment")
@pytest.mark.parametrize("name", ["measured", "measured_in_thread", "measured_in_transaction"])
async def test_a_secret_reaches_the_function_that_names_it(runtime: Any, tmp_path: Path, name: str) -> None:
    """Whole or inside a text, in arguments by place and by name, for every kind of function."""
    arguments = 'args: ["{{secrets.token}}"]\n    kwargs: {header: "Bearer {{secrets.token}}"}'
    await deployed(runtime, tmp_path, flow(f"{MINE}.{name}", arguments))
    run_id = await runtime.client.start("leaky")
    await runtime.client.result(run_id, timeout=30)
    (step,) = await runtime.client.steps(run_id)
    assert step.body == [len(VALUE), len(f"Bearer {VALUE}")]
    assert shown_in(everything(runtime.dsn)) == []


@pytest.mark.usefixtures("in_environment")
@pytest.mark.parametrize(
    "name", ["returned", "raised", "raised_with_cause", "raised_stubbornly", "logged", "raised_in_thread", "spelled"]
)
async def test_no_value_is_found_in_the_store_or_the_logs(
    runtime: Any, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever a function does with it: journal, results, errors, tracebacks, log lines and progress are clean."""
    text = flow(f"{MINE}.{name}", 'args: ["{{secrets.token}}"]')
    await deployed(runtime, tmp_path, text.rstrip() + "\n    retry_policy: {max_retries: 1, delay: PT0S}\n")
    run_id = await runtime.client.start("leaky")
    try:
        await runtime.client.result(run_id, timeout=30)
    except RunFailed as exc:
        assert shown_in(str(exc)) == []  # noqa: PT017
    await runtime.stop()
    dump = everything(runtime.dsn)
    assert run_id in dump
    assert shown_in(dump) == []
    assert "***" in dump
    assert shown_in("\n".join(capfd.readouterr())) == []


@pytest.mark.usefixtures("in_environment")
@pytest.mark.parametrize("name", ["raised_in_thread", "returned_in_thread"])
async def test_a_process_of_its_own_keeps_the_secret_too(runtime: Any, tmp_path: Path, name: str) -> None:
    """A plain function with a timeout runs in a process, which is given the secret and gives nothing of it back."""
    text = flow(f"{MINE}.{name}", 'args: ["{{secrets.token}}"]')
    await deployed(runtime, tmp_path, text.rstrip() + "\n    timeout_policy: {timeout: PT60S}\n")
    run_id = await runtime.client.start("leaky")
    try:
        await runtime.client.result(run_id, timeout=60)
    except RunFailed as exc:
        assert "cannot use" in str(exc)  # noqa: PT017
    dump = everything(runtime.dsn)
    assert shown_in(dump) == []
    assert "***" in dump


@pytest.mark.usefixtures("in_environment")
async def test_every_access_is_audited(runtime: Any, tmp_path: Path) -> None:
    """Each attempt leaves a row with who, when, which run, step and attempt; a replay leaves none."""
    text = flow(f"{MINE}.raised", 'args: ["{{secrets.token}}"]')
    await deployed(runtime, tmp_path, text.rstrip() + "\n    retry_policy: {max_retries: 1, delay: PT0S}\n")
    run_id = await runtime.client.start("leaky")
    with pytest.raises(RunFailed):
        await runtime.client.result(run_id, timeout=30)
    rows = await runtime.sql(
        "select name, provider, run_id::text, step, attempt, who <> '' and at is not null"
        " from durable.secret_access order by id"
    )
    assert rows == [("token", "environment", run_id, "use", attempt, True) for attempt in (1, 2)]


async def test_a_secret_that_is_nowhere_fails_the_step_and_is_audited(runtime: Any, tmp_path: Path) -> None:
    """The error names the secret and who was asked."""
    await deployed(runtime, tmp_path, flow("tools.echo", 'args: ["{{secrets.absent}}"]'))
    with pytest.raises(RunFailed, match=r"no secret 'absent'; asked were: environment, table"):
        await runtime.run("leaky")
    assert await runtime.sql("select name, provider from durable.secret_access") == [("absent", None)]


@pytest.mark.usefixtures("in_environment")
async def test_text_that_looks_like_a_reference_stays_text(runtime: Any, tmp_path: Path) -> None:
    """Whoever can start a run cannot name a secret that the workflow does not."""
    await deployed(runtime, tmp_path, flow(f"{MINE}.length", 'args: ["{{inputs.text}}"]'))
    forged = ["\ue000secret:token\ue001", "\ue000secret:token:0\ue001", "{{secrets.token}}"]
    for text in forged:
        run_id = await runtime.client.start("leaky", text=text)
        await runtime.client.result(run_id, timeout=30)
        (step,) = await runtime.client.steps(run_id)
        assert step.body == len(text)
    assert await runtime.sql("select * from durable.secret_access") == []


def test_a_reference_holds_for_its_run_in_every_process(durable_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker opens what one has written, for the same run; for another run it stays text."""
    monkeypatch.setenv("DURABLE_SECRET_TOKEN", VALUE)
    one, other = "0190b6c4-7e1a-7cc3-9f6e-2d1f0a3b4c5d", "0190b6c4-7e1a-7cc3-9f6e-2d1f0a3b4c5e"
    reference = Vault(durable_dsn).reference("token", one)
    reader = pickle.loads(pickle.dumps(Vault(durable_dsn)))
    assert reader.reveal([reference], StepInfo(one, one, "use", 1))[0] == [VALUE]
    assert reader.reveal([reference], StepInfo(other, other, "use", 1))[0] == [reference]


def test_providers_are_asked_in_their_order(durable_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment, file, table: the first that has a secret gives it."""
    monkeypatch.setenv(keys.VARIABLE, keys.new_key())
    (tmp_path / "one").write_text("from a file\n")
    (tmp_path / "two").write_text("from a file")
    monkeypatch.setenv("DURABLE_SECRET_ONE", "from the environment")
    with SecretStore(durable_dsn) as store:
        for name in ("one", "two", "three"):
            store.put(name, keys.encrypted("from the table"))
        providers = [EnvironmentSecrets(), FileSecrets(str(tmp_path)), TableSecrets()]
        found = [
            next(value for each in providers if (value := each.get(name, store))) for name in ("one", "two", "three")
        ]
    assert found == ["from the environment", "from a file", "from the table"]


def test_the_table_holds_nothing_readable(durable_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key a secret cannot be opened, and the error shows neither key nor value."""
    key = keys.new_key()
    monkeypatch.setenv(keys.VARIABLE, key)
    with SecretStore(durable_dsn) as store:
        store.put("token", keys.encrypted(VALUE))
        assert shown_in(everything(durable_dsn)) == []
        monkeypatch.setenv(keys.VARIABLE, keys.new_key())
        with pytest.raises(keys.NoKey, match="not in DURABLE_SECRETS_KEY") as refused:
            TableSecrets().get("token", store)
        assert key not in str(refused.value)
        monkeypatch.setenv(keys.VARIABLE, "nonsense")
        with pytest.raises(keys.NoKey, match="no key"):
            TableSecrets().get("token", store)


def test_keys_are_rotated_without_losing_a_secret(durable_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the new key in front of the old one everything is encrypted anew, and the old key can go."""
    old, new = keys.new_key(), keys.new_key()
    monkeypatch.setenv(keys.VARIABLE, old)
    with SecretStore(durable_dsn) as store:
        store.put("token", keys.encrypted(VALUE))
        monkeypatch.setenv(keys.VARIABLE, f"{new},{old}")
        assert TableSecrets().get("token", store) == VALUE
        for name, body in store.bodies():
            assert store.swap(name, body, keys.rotated(name, body))
        monkeypatch.setenv(keys.VARIABLE, new)
        assert TableSecrets().get("token", store) == VALUE


def test_a_rotation_never_undoes_a_new_value(durable_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that was set anew in between is left alone, and the rotation is told."""
    monkeypatch.setenv(keys.VARIABLE, keys.new_key())
    with SecretStore(durable_dsn) as store:
        store.put("token", keys.encrypted("old"))
        before = store.bodies()[0][1]
        store.put("token", keys.encrypted("new"))
        assert store.swap("token", before, keys.rotated("token", before)) is False
        assert TableSecrets().get("token", store) == "new"


def test_redaction_hides_every_spelling() -> None:
    """As it is, quoted, escaped and in base64, in texts, keys and nested values."""
    hide = Redaction([VALUE])
    coded = base64.b64encode(VALUE.encode()).decode()
    value = {"a": [f"x{VALUE}y", 1, None], VALUE: coded, "u": "q=s3cr3t%2F%2B%20v%C3%A4lue%3F"}
    assert hide.value(value) == {"a": ["x***y", 1, None], "***": "***", "u": "q=***"}


async def test_a_client_sees_references_and_masks_only(runtime: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """What the store keeps of the workflow is the reference that its author wrote."""
    monkeypatch.setenv("DURABLE_SECRET_TOKEN", VALUE)
    await deployed(runtime, tmp_path, flow("tools.echo", 'args: ["{{secrets.token}}"]'))
    async with Durable(runtime.dsn) as client:
        run_id = await client.start("leaky")
        await asyncio.wait_for(client.result(run_id), 30)
        assert [step.body for step in await client.steps(run_id)] == ["***"]
        assert "{{secrets.token}}" in (await client.version("leaky")).source
