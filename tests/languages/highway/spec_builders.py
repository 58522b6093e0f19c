"""The builder programs of the specification's sections 6 to 15, by section.

A program that refers to tasks its section leaves out gets them at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from highway_dsl import RetryPolicy, Workflow, WorkflowBuilder

from . import spec_scenarios


def section_6_2() -> Workflow:
    return (
        WorkflowBuilder("daily_report")
        .set_schedule("0 2 * * *")
        .set_start_date(datetime(2025, 1, 1))
        .set_catchup(False)
        .build()
    )


def section_6_4() -> Workflow:
    return WorkflowBuilder("customer_pipeline").add_tags("production", "data-eng", "daily").build()


def section_7_3_emit() -> Workflow:
    builder = WorkflowBuilder("a")
    builder.emit_event("notify_completion", event_name="pipeline_a_{{ds}}_done", payload={"status": "success"})
    return builder.build()


def section_7_3_wait() -> Workflow:
    builder = WorkflowBuilder("b")
    builder.wait_for_event("wait_for_a", event_name="pipeline_a_{{ds}}_done", timeout_seconds=3600)
    return builder.build()


def section_8_1() -> Workflow:
    return (
        WorkflowBuilder("resilient_pipeline")
        .set_default_retry_policy(RetryPolicy(max_retries=2, delay=timedelta(seconds=30), backoff_factor=2.0))
        .task("flaky_api_call", "api.fetch_data")
        .task(
            "critical_operation",
            "db.write",
            retry_policy=RetryPolicy(max_retries=5, delay=timedelta(seconds=60), backoff_factor=1.5),
        )
        .build()
    )


def section_8_3() -> Workflow:
    builder = WorkflowBuilder("monitored_pipeline")
    builder.task("risky_operation", "api.call_external_service")
    builder.task("alert_on_failure", "notifications.send_slack", args=["Operation failed: {{error_message}}"])
    builder.task("cleanup_on_success", "db.cleanup_temp_tables")
    builder.workflow.tasks["risky_operation"].on_failure_task_id = "alert_on_failure"
    builder.workflow.tasks["risky_operation"].on_success_task_id = "cleanup_on_success"
    return builder.build()


def section_9_1() -> Workflow:
    return WorkflowBuilder("example").task("a", "func_a").task("b", "func_b").task("c", "func_c").build()


def section_9_2() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.task(
        "fetch_data",
        "api.fetch",
        args=["{{url}}"],
        result_key="raw_data",
        retry_policy=RetryPolicy(max_retries=3),
    )
    return builder.build()


def section_9_3() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.condition(
        "check_quality",
        condition="{{data.quality}} > 0.8",
        if_true=lambda b: b.task("high_quality", "process.advanced"),
        if_false=lambda b: b.task("low_quality", "process.basic"),
    )
    builder.parallel(
        "parallel_transform",
        branches={
            "transform_a": lambda b: b.task("t_a", "transform.a"),
            "transform_b": lambda b: b.task("t_b", "transform.b"),
            "transform_c": lambda b: b.task("t_c", "transform.c"),
        },
    )
    builder.foreach(
        "process_items",
        items="{{data.records}}",
        loop_body=lambda b: b.task("process", "handler.process", args=["{{item}}"]),
    )
    builder.while_loop(
        "retry_loop",
        condition="{{status}} == 'pending'",
        loop_body=lambda b: b.task("check_status", "check.status", result_key="status"),
    )
    builder.wait("daily_wait", wait_for=timedelta(days=1))
    return builder.build()


def section_9_4() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.set_schedule("0 2 * * *")
    builder.set_start_date(datetime(2025, 1, 1))
    builder.set_catchup(False)
    builder.set_paused(False)
    builder.add_tags("production", "daily", "critical")
    builder.set_max_active_runs(3)
    builder.set_default_retry_policy(RetryPolicy(max_retries=3, delay=timedelta(seconds=60)))
    return builder.build()


def section_9_5() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.emit_event(
        "notify_downstream",
        event_name="pipeline_{{run.id}}_done",
        payload={"status": "success", "count": "{{record_count}}"},
    )
    builder.wait_for_event("wait_upstream", event_name="pipeline_{{upstream_id}}_done", timeout_seconds=3600)
    return builder.build()


def section_9_6() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.task("api_call", "api.fetch").retry(max_retries=5, delay=timedelta(seconds=30))
    builder.task("slow_operation", "compute.heavy").timeout(timeout=timedelta(hours=2))
    builder.task("risky_task", "api.call").on_success("cleanup_task")
    builder.task("riskier_task", "api.call").on_failure("alert_task")
    builder.task("cleanup_task", "f").task("alert_task", "f")
    return builder.build()


def section_9_7() -> Workflow:
    return WorkflowBuilder("example").task("a", "func_a").task("b", "func_b").build()


def section_10_2() -> Workflow:
    builder = WorkflowBuilder("example").task("users", "api.get", args=["{{api_url}}/users"])
    return builder.build().set_variables({"api_url": "https://api.example.com"})


def section_11_1() -> Workflow:
    return (
        WorkflowBuilder("simple_etl")
        .task("extract", "etl.extract", result_key="raw_data")
        .task("transform", "etl.transform", args=["{{raw_data}}"])
        .build()
    )


def section_12_1() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.task("a", "func_a")
    builder.task("b", "func_b", dependencies=["a"])
    builder.task("c", "func_c", dependencies=["a", "b"])
    return builder.build()


def section_12_2() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.task("a", "func_a")
    builder.task("b", "func_b")
    builder.task("c", "func_c")
    return builder.build()


def section_12_2_explicit() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.task("a", "func_a")
    builder.task("b", "func_b", dependencies=["a"])
    builder.task("c", "func_c", dependencies=["b"])
    return builder.build()


def section_12_3() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.foreach(
        "process_items",
        items="{{data.items}}",
        loop_body=lambda b: b.task("process", "handler.process", args=["{{item}}"]),
    )
    return builder.build()


def section_12_4() -> Workflow:
    builder = WorkflowBuilder("example")
    builder.parallel(
        "parallel_transform",
        branches={
            "a": lambda b: b.task("t_a", "transform.a"),
            "b": lambda b: b.task("t_b", "transform.b"),
        },
    )
    return builder.build()


BUILDERS: dict[str, Callable[[], Workflow]] = {
    "6.2": section_6_2,
    "6.4": section_6_4,
    "7.3 emit": section_7_3_emit,
    "7.3 wait": section_7_3_wait,
    "8.1": section_8_1,
    "8.3": section_8_3,
    "9.1": section_9_1,
    "9.2": section_9_2,
    "9.3": section_9_3,
    "9.4": section_9_4,
    "9.5": section_9_5,
    "9.6": section_9_6,
    "9.7": section_9_7,
    "10.2": section_10_2,
    "11.1": section_11_1,
    "12.1": section_12_1,
    "12.2": section_12_2,
    "12.2 explicit": section_12_2_explicit,
    "12.3": section_12_3,
    "12.4": section_12_4,
    **spec_scenarios.SCENARIOS,
}
