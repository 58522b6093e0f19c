"""`durable simulate`: a plan walked without a database, on made-up outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from durablectl import exits
from durablectl.documents import sound
from durablectl.exits import WrongUse
from durablectl.inputs import json_value, named_values
from durablectl.jsontext import print_json
from interpreter.deployment import EVALUATORS, Loaded
from interpreter.driver import secret_reference
from interpreter.plan import Plan
from interpreter.simulate import FAIL, Outcomes, Report, simulate


def simulate_file(
    file: str, outcomes: Sequence[str], values: Sequence[str], given: Sequence[str], *, as_json: bool
) -> int:
    """Walk each workflow of a file; exits as its run would end."""
    inputs = named_values(given)
    reports = {}
    for loaded in sound([file]):
        made_up = _known(loaded.plan, {**_values(values), **_outcomes(outcomes)})
        reports[loaded.name] = simulate(
            loaded.plan,
            made_up,
            globals=_globals(loaded, inputs),
            evaluator=EVALUATORS[loaded.plan.language](loaded.plan, secret_reference),
        )
    _print(reports, as_json)
    failed = any(report.settled.outcome != "succeeded" for report in reports.values())
    return exits.FAILED if failed else exits.OK


def _outcomes(texts: Sequence[str]) -> Outcomes:
    found: Outcomes = {}
    for text in texts:
        task, _, outcome = text.partition("=")
        if outcome not in ("fail", "succeed"):
            raise WrongUse(f"--outcome {text!r} is not of the form task=fail or task=succeed")
        if outcome == "fail":
            found[task] = FAIL
    return found


def _values(texts: Sequence[str]) -> Outcomes:
    found: Outcomes = {}
    for text in texts:
        task, sign, value = text.partition("=")
        if not sign:
            raise WrongUse(f"--value {text!r} is not of the form task=JSON")
        found[task] = json_value(value, f"--value {task}=")
    return found


def _known(plan: Plan, made_up: Outcomes) -> Outcomes:
    """`made_up` by the names that the plan has; a handler alone means all of it, whoever calls it back."""
    known = {node.id for graph in plan.graphs.values() for node in graph.nodes}
    found: Outcomes = {}
    for path, outcome in made_up.items():
        frame, slash, task = path.rpartition("/")
        names = [task] if task in known else [name for name in known if name.partition("@")[0] == task]
        if not names:
            raise WrongUse(f"there is no task {path!r} in {plan.name!r}; there are {', '.join(sorted(known))}")
        found |= {f"{frame}{slash}{name}": outcome for name in names}
    return found


def _globals(loaded: Loaded, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a run would see everywhere."""
    now = datetime.now(UTC)
    run = {
        "id": "simulated",
        "workflow": loaded.name,
        "status": "running",
        "started_at": now.isoformat(timespec="milliseconds"),
    }
    variables = loaded.plan.meta.get("variables") or {}
    return {"inputs": inputs, "run": run, "variables": variables, "created_at": now.timestamp()}


def _print(reports: dict[str, Report], as_json: bool) -> None:
    if as_json:
        print_json(
            {
                name: {"settled": asdict(report.settled), "steps": [asdict(step) for step in report.steps]}
                for name, report in reports.items()
            }
        )
        return
    for name, report in reports.items():
        if len(reports) > 1:
            print(f"# {name}")
        print(report)
