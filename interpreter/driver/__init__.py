"""Plans on the durable runtime.

plan_workflow    a plan as a workflow that a `durable.Worker` runs
Functions        what finds the functions a plan calls; `FunctionTable` is one of names in a dict
Secrets          what puts secrets in the place of their references, at call time only
"""

from __future__ import annotations

from interpreter.driver.functions_protocol import (
    Functions,
    FunctionTable,
    Secrets,
    UnknownFunction,
    secret_reference,
)
from interpreter.driver.workflow import plan_workflow

__all__ = ["FunctionTable", "Functions", "Secrets", "UnknownFunction", "plan_workflow", "secret_reference"]
