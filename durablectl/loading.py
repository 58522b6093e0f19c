"""Workflows from modules: `package.module`, `package.module:name` or `path/to/file.py`, seen from where one stands."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from durablectl.exits import WrongUse

if TYPE_CHECKING:
    from durable import Workflow


def workflows_of(targets: Sequence[str]) -> list[Workflow]:
    """Every workflow in the modules named, each once."""
    look_here()
    found = {id(workflow): workflow for target in targets for workflow in _of_target(target)}
    _refuse_namesakes(found.values())
    return list(found.values())


def module_of(file: str) -> ModuleType:
    """A Python file as a module, so that what it defines can be found by name."""
    look_here()
    return _imported(_module_name(file))


def look_here() -> None:
    """Let modules be found where one stands, as for `python`."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)


def programs_in(module: ModuleType) -> list[Workflow]:
    """The workflows in code that a module holds; maybe none."""
    from durable import Workflow

    return [value for value in vars(module).values() if isinstance(value, Workflow)]


def _of_target(target: str) -> list[Workflow]:
    name, _, attribute = target.partition(":")
    module = _imported(_module_name(name))
    if attribute:
        return [_named(module, attribute)]
    found = programs_in(module)
    if not found and _builds_some(module):
        allow = f"{module.__name__}."
        raise WrongUse(
            f"{name} builds what is to be deployed: `durable deploy {name}`; its worker needs --allow {allow}"
        )
    if not found:
        raise WrongUse(f"no workflow in {name}; make one with `@workflow` on an `async def f(ctx, ...)`")
    return found


def _builds_some(module: ModuleType) -> bool:
    from highway_dsl import Workflow, WorkflowBuilder

    return any(isinstance(value, Workflow | WorkflowBuilder) for value in vars(module).values())


def _named(module: ModuleType, attribute: str) -> Workflow:
    from durable import Workflow

    value = getattr(module, attribute, None)
    if isinstance(value, Workflow):
        return value
    known = ", ".join(name for name, each in vars(module).items() if isinstance(each, Workflow))
    raise WrongUse(f"{module.__name__} has no workflow {attribute!r}; it has {known or 'none'}")


def _module_name(name: str) -> str:
    """The module for a path that people like to type; a file elsewhere brings its directory along."""
    if name.endswith((".yaml", ".yml", ".json")):
        raise WrongUse(f"{name} is to be deployed: `durable deploy {name}`; its worker needs --allow, and no module")
    if not name.endswith(".py"):
        return name
    path = Path(name).resolve()
    if not path.is_file():
        raise WrongUse(f"there is no file {name}")
    here = Path.cwd()
    if path.is_relative_to(here):
        return ".".join(path.relative_to(here).with_suffix("").parts)
    sys.path.insert(0, str(path.parent))
    return path.stem


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise WrongUse(
                f"no module {name!r} here; run this in the directory that holds it ({os.getcwd()})"
            ) from None
        raise WrongUse(_why_not(name, exc)) from exc
    except (Exception, SystemExit) as exc:
        raise WrongUse(_why_not(name, exc)) from exc


def _why_not(name: str, error: BaseException) -> str:
    place = ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) and error.lineno is not None:
        place = f" ({error.filename}, line {error.lineno})"
    elif len(frames) > 1:
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})"
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{name} cannot be imported: {type(error).__name__}: {what}{place}"


def _refuse_namesakes(workflows: Iterable[Workflow]) -> None:
    names = [workflow.name for workflow in workflows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise WrongUse(f"two workflows have the same name: {', '.join(twice)}; give one `@workflow(name=...)`")
