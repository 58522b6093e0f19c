"""What names mean in Highway's templates (section 10.2).

Reserved names first, then loop variables, result keys, task ids (with `.output` and `.payload`), workflow
variables. Secrets are references: their values are put in at call time, outside of everything that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import nodes

from interpreter.driver import secret_reference
from interpreter.errors import ExpressionError, UndefinedName
from interpreter.expressions import Compiled, Limits, Templates
from interpreter.expressions.compiled import step_into
from interpreter.expressions.context import NOT_FOUND
from interpreter.expressions.evaluator import Find
from interpreter.highway.names import (
    CAUSE,
    ITEM,
    ITEM_NAME,
    PART,
    PARTS,
    PREFIXES,
    RESERVED,
    output_name,
    shown,
    task_of,
)
from interpreter.plan import Plan
from interpreter.walker import MISSING, Scope

_GLOBAL: Final = frozenset(("inputs", "run"))
_SPECIAL: Final = RESERVED | PREFIXES | {ITEM}


def parts_as_names(node: nodes.Node) -> nodes.Node | None:
    """`task.output` as one name: what it means depends on what `task` is."""
    if not isinstance(node, nodes.Getattr | nodes.Getitem) or not isinstance(node.node, nodes.Name):
        return None
    part = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
    if part not in PARTS or node.node.ctx != "load":
        return None
    return nodes.Name(f"{node.node.name}{PART}{part}", "load", lineno=node.lineno)


class HighwayTemplates(Templates):
    """The evaluator of one Highway plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        strict: bool | None = None,
        limits: Limits | None = None,
        reference: Callable[[str, str], str] = secret_reference,
    ) -> None:
        strict = not plan.meta.get("lenient") if strict is None else strict
        super().__init__(strict=strict, limits=limits, rewrite=parts_as_names)
        self._events = frozenset(_texts(plan.meta.get("events")))
        self._secrets = _texts(plan.meta.get("secrets"))
        self._reference = reference

    def resolve(self, scope: Scope, name: str) -> Any:
        head, dot, part = name.partition(PART)
        return self._part(scope, head, part) if dot else self._name(scope, name)

    def finder(self, name: str) -> Find:
        """Most names are inputs or outputs of tasks: found without asking what else they could be."""
        head, _, part = name.partition(PART)
        if name in _GLOBAL:
            return lambda scope: scope.globals.get(name, MISSING)
        if head in _SPECIAL or (part and part != "output" and head not in self._events):
            return super().finder(name)
        return self._finder_of_part(name, head) if part else self._finder_of_task(name)

    def _finder_of_task(self, name: str) -> Find:
        output = output_name(name)

        def find(scope: Scope) -> Any:
            value = scope.lookup_either(name, output)
            return self.resolve(scope, name) if value is MISSING else value

        return find

    def _finder_of_part(self, name: str, task: str) -> Find:
        """The whole output of a task, unless its name is bound to something else that has such a part."""
        output = output_name(task)

        def find(scope: Scope) -> Any:
            value = scope.lookup(output) if scope.lookup(task) is MISSING else MISSING
            return self.resolve(scope, name) if value is MISSING else value

        return find

    def known(self, scope: Scope) -> Iterable[str]:
        names = [shown(name) for name in scope.names()]
        return [*names, *RESERVED, *scope.globals.get("variables", {})]

    def _name(self, scope: Scope, name: str) -> Any:
        if name in RESERVED:
            return self._reserved(scope, name)
        value = self._bound(scope, name)
        if value is MISSING:
            value = scope.lookup(output_name(name))
        if value is MISSING:
            value = scope.globals.get("variables", {}).get(name, MISSING)
        if value is MISSING and name in CAUSE:
            return _cause(scope).get(name, MISSING)
        if value is MISSING and name in PREFIXES:
            return self._under_prefix(scope, name)
        return value

    def _bound(self, scope: Scope, name: str) -> Any:
        """Loop variables and result keys."""
        value = scope.lookup(ITEM_NAME) if name == ITEM else MISSING
        return scope.lookup(name) if value is MISSING and name not in PREFIXES else value

    def _part(self, scope: Scope, head: str, part: str) -> Any:
        """`.output` of a task is the whole of it, and so is `.payload` of a wait for an event."""
        value = self._name(scope, head)
        if value is MISSING:
            return MISSING
        own = self._bound(scope, head) is MISSING and scope.lookup(output_name(head)) is not MISSING
        if own and (part == "output" or head in self._events):
            return value
        found = step_into(value, part)
        if found is NOT_FOUND and not self.strict:
            return MISSING
        if found is NOT_FOUND:
            raise UndefinedName(f"{part!r} is not there in '{head}.{part}'", name=f"{head}.{part}")
        return found

    def _reserved(self, scope: Scope, name: str) -> Any:
        if name == "secrets":
            return {secret: self._reference(secret, scope.globals["run"]["id"]) for secret in self._secrets}
        if name in ("ds", "ds_date"):
            text = logical_time(scope.globals)
            return text if name == "ds" else text[:10]
        return scope.globals.get(name, MISSING)

    def _under_prefix(self, scope: Scope, name: str) -> Any:
        if name == "variables":
            return scope.globals.get("variables", {})
        return {shown(key): value for key, value in scope.names().items()}

    def _evaluate(self, compiled: Compiled, scope: Scope) -> Any:
        try:
            return super()._evaluate(compiled, scope)
        except UndefinedName as error:
            message, name = error.message.replace(PART, "."), error.name.replace(PART, ".")
            raise UndefinedName(message, name=name, nearest=error.nearest) from None


def logical_time(names: dict[str, Any]) -> str:
    """The start of the run's data interval, else its creation: in UTC, to the second, in one spelling."""
    given = names.get("inputs", {}).get("data_interval_start") or names["run"]["started_at"]
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError:
        raise ExpressionError(f"data_interval_start is {given!r}, which is no time", type="ValueError") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _cause(scope: Scope) -> dict[str, Any]:
    """What a failure callback, or anything inside one, knows of the failure."""
    cause = scope.cause
    if cause is None:
        return {}
    error = cause["error"] or {}
    return {"failed_task_id": task_of(cause["node"]), "error_message": error.get("message", "")}


def _texts(value: Any) -> list[str]:
    return [str(name) for name in value or ()]
