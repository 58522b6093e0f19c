"""The package as people install it: a wheel that needs nothing of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import psycopg

REPOSITORY = Path(__file__).parents[2]

# The packages of this environment, without what points back to the checkout.
OUTSIDE = """
import sys
sys.path = [path for path in sys.path if path != {checkout!r}] + [{packages!r}]
from durablectl.main import main
import durable, durablectl
assert durable.__file__.startswith({target!r}), durable.__file__
main()
"""


def test_a_wheel_migrates_a_database_from_anywhere(tmp_path: Path, durable_dsn: str) -> None:
    """The store's SQL and its migrations are inside; nothing else of the repository is needed."""
    wheel = built(tmp_path)
    target = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    assert not [name for name in target.rglob("*") if name.suffix == ".pyc"]
    with psycopg.connect(durable_dsn, autocommit=True) as connection:
        connection.execute("drop schema durable cascade")
    packages = sysconfig.get_paths()["purelib"]
    program = OUTSIDE.format(checkout=str(REPOSITORY), packages=packages, target=str(target))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(
        # -S: no .pth file of this environment is read, so that an editable install cannot be found by it.
        [sys.executable, "-S", "-c", program, "db", "migrate", "--database-url", durable_dsn],
        cwd=tmp_path, env=environment | {"PYTHONPATH": str(target)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "is at version" in said.stdout
    with psycopg.connect(durable_dsn) as connection:
        assert connection.execute("select count(*) from durable.task").fetchone() == (0,)


def built(into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "wheel", "--no-deps", "--wheel-dir"]
    done = subprocess.run([*command, str(into), str(REPOSITORY)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = into.glob("durable-*.whl")
    return wheel
