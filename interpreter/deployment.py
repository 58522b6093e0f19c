"""From a file to a deployed version, and from a deployed version to a workflow that runs.

A file holds one workflow (YAML, JSON), or builds some (Python). Its faults are all found at once, before anything is
written; what is deployed is the plan, named by the hash of the workflow's canonical form.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

import durable
from highway_dsl import Document, Workflow, WorkflowBuilder, faults_of
from highway_dsl.faults import Fault, Position
from highway_dsl.keeping import faults_kept
from interpreter.driver import plan_workflow
from interpreter.errors import ProgramError
from interpreter.expressions import Templates
from interpreter.functions import AllowedFunctions
from interpreter.highway import Findings, HighwayTemplates, check_workflow
from interpreter.highway.inputs import needed_inputs, read_inputs
from interpreter.plan import Plan
from interpreter.secrets import Vault
from interpreter.walker import Evaluator

# How a language's expressions are evaluated: from a plan and what stands for a secret in it.
EVALUATORS: Final[dict[str, Callable[[Plan, Callable[[str, str], str]], Evaluator]]] = {
    "highway": lambda plan, reference: HighwayTemplates(plan, reference=reference),
    "plan": lambda plan, reference: Templates(),
}


class Unloadable(ProgramError):
    """A file that holds no workflow that could be deployed; `faults` are all that is wrong with it."""

    def __init__(self, file: str, faults: Sequence[Fault] = (), message: str | None = None):
        self.faults = tuple(faults)
        said = message or "\n".join(str(fault) for fault in faults)
        super().__init__(said if message is None else f"{file}: {message}")


@dataclass(frozen=True)
class Loaded:
    """One workflow of a file, checked."""

    file: str
    workflow: Workflow
    source: str
    findings: Findings

    @property
    def name(self) -> str:
        return self.workflow.name

    @property
    def plan(self) -> Plan:
        """Its plan; `Unloadable` if it has faults."""
        if self.findings.plan is None:
            raise Unloadable(self.file, self.findings.faults)
        return self.findings.plan

    def deployment(self) -> durable.Deployment:
        """What the store is given."""
        own = self.workflow
        return durable.Deployment(
            workflow=own.name,
            version=own.content_hash(),
            language=self.plan.language,
            source=self.source,
            plan=self.plan.to_json(),
            settings={
                # Active runs without those that wait are those that run, or stand in line to.
                "max_running" if own.max_active_excludes_waiting else "max_active_runs": own.max_active_runs,
                "deadline": own.deadline_seconds,
                "deadline_action": own.deadline_action,
                "params": self.params(),
            },
        )

    def params(self) -> dict[str, Any]:
        """What a run has to be started with, and what else it may read. Other inputs are no fault."""
        required = needed_inputs(self.plan)
        optional = [name for name in read_inputs(self.plan) or () if name not in required]
        return {"required": required, "optional": optional, "open": True}


class Written(NamedTuple):
    """One workflow as a file has it, before it is checked."""

    file: str
    source: Workflow | Document[Workflow]
    text: str

    @property
    def workflow(self) -> Workflow:
        return self.source if isinstance(self.source, Workflow) else self.source.workflow

    @property
    def is_broken(self) -> bool:
        """Whether it is no valid workflow by itself, whatever its templates say."""
        return bool(self.source.faults() if isinstance(self.source, Workflow) else self.source.faults)


def load(path: str | Path, others: Iterable[Workflow] = ()) -> list[Loaded]:
    """The workflows of a file, checked. `others` are deployed along with them and may emit what they wait for.

    A document that is not valid is `Unloadable`, with everything that can be said about it.
    """
    written = read(path)
    found = check(written, others)
    for one, loaded in zip(written, found, strict=True):
        if one.is_broken:
            raise Unloadable(one.file, loaded.findings.faults)
    return found


def read(path: str | Path) -> list[Written]:
    """The workflows of a file as far as they can be understood. A Python file is run, once."""
    file = Path(path)
    if file.suffix == ".py":
        return _run(file)
    if file.suffix not in _READERS:
        raise Unloadable(str(file), message="not a workflow: its name ends in none of .yaml, .yml, .json and .py")
    text = _text(file)
    try:
        return [Written(str(path), _READERS[file.suffix](text, str(path)), text)]
    except ValidationError as exc:
        raise Unloadable(str(file), faults_of(exc)) from None


def check(written: Sequence[Written], others: Iterable[Workflow] = ()) -> list[Loaded]:
    """Workflows that are deployed together, checked: each may emit what another waits for."""
    known = [*others, *(one.workflow for one in written)]
    return [_checked(one, _besides(one.workflow, known)) for one in written]


def _checked(one: Written, others: Sequence[Workflow]) -> Loaded:
    findings = check_workflow(one.source, others=others)
    # What a program has built is written out only if that can be done.
    text = one.text or (one.workflow.to_yaml() if findings.plan is not None else "")
    return Loaded(one.file, one.workflow, text, findings)


def _besides(own: Workflow, known: Sequence[Workflow]) -> list[Workflow]:
    return [other for other in known if other is not own]


_READERS: Final[dict[str, Callable[[str, str], Document[Workflow]]]] = {
    ".yaml": Workflow.survey_yaml,
    ".yml": Workflow.survey_yaml,
    ".json": Workflow.survey_json,
}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise Unloadable(str(file), message=f"cannot be read: {exc.strerror or exc}") from None
    except UnicodeDecodeError as exc:
        said = f"byte {exc.start} is not UTF-8"
        raise Unloadable(str(file), message=f"is not a text: {said}; is this the right file?") from None


def _run(file: Path) -> list[Written]:
    if not file.is_file():
        raise Unloadable(str(file), message="there is no such file")
    sys.path.insert(0, str(file.parent.resolve()))
    with faults_kept() as faulty:
        try:
            return built(str(file), runpy.run_path(str(file), run_name=file.stem), faulty)
        except Unloadable:
            raise
        except (Exception, SystemExit) as exc:
            raise unrunnable(str(file), exc, faulty) from exc
        finally:
            sys.path.remove(str(file.parent.resolve()))


def unrunnable(file: str, error: BaseException, faulty: Sequence[Workflow]) -> Unloadable:
    """What a program raised, after everything that is wrong with what it had built by then."""
    faults = [fault for one in check(_of_python(file, faulty)) for fault in one.findings.faults]
    at = _line_of(file, error)
    if isinstance(error, ValidationError):
        return Unloadable(file, [*faults, *(fault.at(fault.position or at) for fault in faults_of(error))])
    said = error.msg if isinstance(error, SyntaxError) else error
    return Unloadable(file, [*faults, Fault("python", f"cannot be run: {type(error).__name__}: {said}", position=at)])


def _line_of(file: str, error: BaseException) -> Position | None:
    """The line of a program that an error came from."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return Position(error.lineno, error.offset or 0, error.filename or file)
    whole = Path(file).resolve()
    lines = [line for name, line, *_ in traceback.extract_tb(error.__traceback__) if Path(name).resolve() == whole]
    return Position(lines[-1], 0, file) if lines and lines[-1] else None


def built(file: str, names: Mapping[str, object], faulty: Sequence[Workflow] = ()) -> list[Written]:
    """The workflows that a Python file holds when it has run; a builder is built. `faulty` ones need no name."""
    held = [value.build() if isinstance(value, WorkflowBuilder) else value for value in names.values()]
    found: list[Workflow] = []
    for workflow in (*held, *faulty):
        if isinstance(workflow, Workflow) and workflow not in found:
            found.append(workflow)
    if not found:
        raise Unloadable(
            file,
            message="builds no workflow: have a module-level name hold a highway_dsl Workflow"
            " (workflows in code are served by `durable worker`, not deployed)",
        )
    return _of_python(file, found)


def _of_python(file: str, workflows: Sequence[Workflow]) -> list[Written]:
    for workflow in workflows:
        workflow.origin.name_file(file)
    return [Written(file, workflow, "") for workflow in workflows]


class Deployed:
    """The catalogue of a worker: every deployed language, on the functions that it allows and the secrets it has."""

    languages: Sequence[str] = tuple(EVALUATORS)

    def __init__(self, allow: Sequence[str], vault: Vault):
        self._functions = AllowedFunctions(allow, vault)
        self._vault = vault

    def workflow(self, version: durable.Version) -> durable.Workflow:
        """What runs one version."""
        plan = Plan.from_json(version.plan)
        evaluator = EVALUATORS[version.language](plan, self._vault.reference)
        return plan_workflow(plan, self._functions, evaluator, name=version.workflow)
