"""Random builder programs (see `builder_programs`), always of valid workflows."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

EVERY_PROGRAM = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a program takes minutes
)
TEXT = st.one_of(
    st.sampled_from(["", "yes", "no", "1e3", "0o17", "null", "~", "2025-01-01", "{{x}}", "{{a.b}} > 0.8"]),
    st.sampled_from(["1_000", "-.5", "12:30:45", "0x1F", " lead", "a: b", "# no", "multi\nline\n", "é\U0001f600"]),
    st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
SECONDS = st.one_of(st.integers(0, 10**6), st.floats(0, 10**5).map(lambda n: round(n, 6)))
WHEN = st.sampled_from(
    [
        "2025-01-01T00:00:00",
        "2025-06-01T12:30:00.000004+00:00",
        "2025-06-01T12:30:00+05:30",
        "2031-02-03T04:05:06",
    ]
)
RETRY = st.fixed_dictionaries(
    {},
    optional={
        "max_retries": st.integers(0, 9),
        "delay": SECONDS.map(lambda n: {"$seconds": n}),
        "backoff_factor": st.floats(0, 10),
    },
)
TIMEOUT = st.fixed_dictionaries(
    {"timeout": st.integers(1, 10**6).map(lambda n: {"$seconds": n})},
    optional={"kill_on_timeout": st.booleans()},
)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "description": TEXT,
    "metadata": st.dictionaries(TEXT, VALUES, max_size=2),
    "retry_policy": RETRY.map(lambda fields: {"$retry": fields}),
    "timeout_policy": TIMEOUT.map(lambda fields: {"$timeout": fields}),
    "dependencies": st.lists(st.integers(0, 99), max_size=3),  # which earlier tasks; `numbered` names them
}
AFTER = st.lists(
    st.one_of(
        RETRY.map(lambda fields: ["retry", fields]),
        TIMEOUT.map(lambda fields: ["timeout", fields]),
        st.sampled_from([["on_success", {"success_task_id": "good"}], ["on_failure", {"failure_task_id": "bad"}]]),
    ),
    max_size=2,
)

# A task that lists a router and one of the tasks it chooses from is part of the router: never by chance.
ROUTERS = ("condition", "switch")


def _step(do: str, own: dict[str, Any], more: dict[str, Any] | None = None, **inner: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "do": st.just(do),
            "own": st.fixed_dictionaries(own),
            "fields": st.fixed_dictionaries({}, optional={**COMMON, **(more or {})}),
            "after": AFTER,
            "inner": st.fixed_dictionaries(inner),
        }
    )


LEAVES = st.one_of(
    _step(
        "task",
        {"function": st.just("m.f")},
        {
            "args": st.lists(VALUES, max_size=3),
            "kwargs": st.dictionaries(TEXT, VALUES, max_size=2),
            "result_key": st.just("r"),
        },
    ),
    _step("wait", {"wait_for": SECONDS.map(lambda n: {"$seconds": n}) | WHEN.map(lambda t: {"$datetime": t})}),
    _step("emit_event", {"event_name": TEXT}, {"payload": st.dictionaries(TEXT, VALUES, max_size=2)}),
    _step("wait_for_event", {"event_name": TEXT, "timeout_seconds": st.none() | st.integers(0, 999)}),
)


def _composites(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    steps = st.lists(inner, max_size=3)
    branches = st.dictionaries(st.sampled_from(["a", "b c", "ä!"]), steps, min_size=1, max_size=3)
    return st.one_of(
        _step("condition", {"condition": TEXT}, if_true=steps, if_false=steps),
        _step("parallel", {}, {"timeout": st.integers(1, 99)}, branches=branches),
        _step("foreach", {"items": TEXT}, loop_body=steps),
        _step("while_loop", {"condition": TEXT}, loop_body=steps),
        _step("switch", {"switch_on": TEXT, "cases": st.just({"yes": 1, "1": 2, "x": 2}), "default": st.none()}),
    )


SETTINGS = st.lists(
    st.one_of(
        st.tuples(st.just("set_schedule"), st.sampled_from(["0 2 * * *", "*/15 * * * *", "0 9-17 * * 1-5"])),
        st.tuples(st.just("set_start_date"), WHEN.map(lambda t: {"$datetime": t})),
        st.tuples(st.sampled_from(["set_catchup", "set_paused"]), st.booleans()),
        st.tuples(st.just("add_tags"), TEXT, TEXT),
        st.tuples(st.just("set_max_active_runs"), st.integers(1, 9)),
        st.tuples(st.just("set_default_retry_policy"), RETRY.map(lambda fields: {"$retry": fields})),
    ).map(list),
    max_size=3,
)


@st.composite
def programs(draw: st.DrawFn) -> dict[str, Any]:
    """A program, its tasks numbered in the order they are added, its two handlers last."""
    steps = draw(st.lists(st.recursive(LEAVES, _composites, max_leaves=5), max_size=4))
    steps = _numbered(steps, [])
    for handler in ("good", "bad"):
        steps.append({"do": "task", "id": handler, "own": {"function": "h"}, "fields": {}, "after": []})
    return {"name": "flow", "settings": draw(SETTINGS), "steps": steps}


def _numbered(steps: list[Any], known: list[str], *, inside: bool = False) -> list[Any]:
    found: list[Any] = []
    for step in steps:
        # In a branch, a task that names none of its own branch reads as one that comes after it.
        sibling = [found[-1]["id"]] if inside and found else []
        step = {**step, "id": f"t{len(known)}", "fields": _named(step["fields"], known, sibling)}
        known.append(step["id"] if step["do"] not in ROUTERS else "")
        step["inner"] = {name: _inner(body, known) for name, body in step["inner"].items()}
        found.append(step)
        if step["do"] == "switch":
            found += _cases(step, known)
    return found


def _inner(body: Any, known: list[str]) -> Any:
    if isinstance(body, dict):
        return {name: _numbered(steps, known, inside=True) for name, steps in body.items()}
    return _numbered(body, known, inside=True)


def _named(fields: dict[str, Any], known: list[str], sibling: list[str]) -> dict[str, Any]:
    if "dependencies" not in fields:
        return fields
    names = [known[index % len(known)] for index in fields["dependencies"]] if known else []
    return {**fields, "dependencies": [name for name in names if name] + sibling}


def _cases(step: dict[str, Any], known: list[str]) -> list[Any]:
    """The two tasks a switch chooses from: one follows it by name, one by the chain."""
    first, second = f"t{len(known)}", f"t{len(known) + 1}"
    known += [first, second]
    step["own"] = {**step["own"], "cases": {"yes": first, "1": second, "x": second}}
    ways = [(first, {"dependencies": [step["id"]]}), (second, {})]
    return [
        {"do": "task", "id": name, "own": {"function": "c"}, "fields": fields, "after": []} for name, fields in ways
    ]
