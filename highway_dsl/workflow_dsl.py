"""The module the specification names: everything of the definition layer in one place."""

from __future__ import annotations

from highway_dsl.builder import HighwayWarning, WorkflowBuilder
from highway_dsl.canonical import canonical, content_hash
from highway_dsl.document import Document
from highway_dsl.durations import Duration
from highway_dsl.faults import Fault, Position, faults_of
from highway_dsl.operators import (
    ActivityOperator,
    AnyOperator,
    BaseOperator,
    ChildWorkflowOperator,
    ConditionOperator,
    EmitEventOperator,
    ForEachOperator,
    JoinMode,
    JoinOperator,
    OperatorType,
    ParallelOperator,
    SwitchOperator,
    TaskOperator,
    TerminateOperator,
    TriggerRule,
    WaitForEventOperator,
    WaitOperator,
    WhileOperator,
)
from highway_dsl.policies import RetryPolicy, TimeoutPolicy
from highway_dsl.workflow import Workflow

__all__ = [
    "ActivityOperator",
    "AnyOperator",
    "BaseOperator",
    "ChildWorkflowOperator",
    "ConditionOperator",
    "Document",
    "Duration",
    "EmitEventOperator",
    "Fault",
    "ForEachOperator",
    "HighwayWarning",
    "JoinMode",
    "JoinOperator",
    "OperatorType",
    "ParallelOperator",
    "Position",
    "RetryPolicy",
    "SwitchOperator",
    "TaskOperator",
    "TerminateOperator",
    "TimeoutPolicy",
    "TriggerRule",
    "WaitForEventOperator",
    "WaitOperator",
    "WhileOperator",
    "Workflow",
    "WorkflowBuilder",
    "canonical",
    "content_hash",
    "faults_of",
]
