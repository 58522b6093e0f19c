"""Builder programs as JSON data, and what plays them.

Run as a script it serves another environment: one program a line on standard input, one result a line on
standard output. It imports nothing but the standard library, so that any environment can run it.
"""

from __future__ import annotations

import importlib
import json
import sys
from datetime import datetime, timedelta
from typing import Any


def play(dsl: Any, program: dict[str, Any]) -> Any:
    """The workflow that a program builds with the module `dsl`."""
    builder = dsl.WorkflowBuilder(program["name"])
    for method, *arguments in decoded(dsl, program["settings"]):
        getattr(builder, method)(*arguments)
    _steps(dsl, builder, program["steps"])
    for task_id, field, handler in program.get("callbacks", ()):
        setattr(builder.workflow.tasks[task_id], field, handler)
    return builder.build()


def _steps(dsl: Any, builder: Any, steps: list[dict[str, Any]]) -> Any:
    for step in steps:
        own = decoded(dsl, step["own"])
        for name, inner in step.get("inner", {}).items():
            own[name] = _branch(dsl, inner)
        getattr(builder, step["do"])(step["id"], **own, **decoded(dsl, step["fields"]))
        for method, fields in step["after"]:
            getattr(builder, method)(**decoded(dsl, fields))
    return builder


def _branch(dsl: Any, inner: Any) -> Any:
    if isinstance(inner, dict):
        return {name: _branch(dsl, steps) for name, steps in inner.items()}
    return lambda builder: _steps(dsl, builder, inner)


def decoded(dsl: Any, value: Any) -> Any:
    """`value` with the times and policies that JSON has no form for."""
    if isinstance(value, list):
        return [decoded(dsl, inner) for inner in value]
    if not isinstance(value, dict):
        return value
    inner = {key: decoded(dsl, each) for key, each in value.items()}
    made = {
        ("$seconds",): lambda: timedelta(seconds=inner["$seconds"]),
        ("$datetime",): lambda: datetime.fromisoformat(inner["$datetime"]),
        ("$retry",): lambda: dsl.RetryPolicy(**inner["$retry"]),
        ("$timeout",): lambda: dsl.TimeoutPolicy(**inner["$timeout"]),
    }.get(tuple(inner))
    return made() if made else inner


def result(dsl: Any, program: dict[str, Any]) -> dict[str, Any]:
    """Every serialised form of what a program builds."""
    workflow = play(dsl, program)
    return {
        "yaml": workflow.to_yaml(),
        "json": workflow.to_json(),
        "order": list(workflow.tasks),
        "internal": [key for key, task in workflow.tasks.items() if task.is_internal_loop_task],
        "dump": repr(workflow.model_dump()),
    }


def serve() -> None:
    dsl = importlib.import_module("highway_dsl.workflow_dsl")
    for line in sys.stdin:
        print(json.dumps(result(dsl, json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
