"""The operators that the specification constructs in Python, by section."""

from __future__ import annotations

from datetime import timedelta

from highway_dsl import (
    BaseOperator,
    ConditionOperator,
    EmitEventOperator,
    ForEachOperator,
    ParallelOperator,
    RetryPolicy,
    SwitchOperator,
    TaskOperator,
    TimeoutPolicy,
    WaitForEventOperator,
    WaitOperator,
    WhileOperator,
)

OPERATORS: dict[str, BaseOperator] = {
    "5.1": TaskOperator(
        task_id="extract_data",
        function="etl.extract.fetch_from_api",
        args=["{{api_url}}", "{{api_key}}"],
        kwargs={"timeout": 30},
        result_key="raw_data",
        retry_policy=RetryPolicy(max_retries=3, delay=timedelta(seconds=10)),
        timeout_policy=TimeoutPolicy(timeout=timedelta(minutes=5)),
        description="Fetch raw data from external API",
    ),
    "5.2": ConditionOperator(
        task_id="check_quality",
        condition="{{data.quality_score}} > 0.8",
        if_true="high_quality_processing",
        if_false="standard_processing",
        dependencies=["validate_data"],
    ),
    "5.3": WaitOperator(task_id="wait_for_batch", wait_for=timedelta(hours=24), dependencies=["process_data"]),
    "5.4": ParallelOperator(
        task_id="parallel_processing",
        branches={
            "branch_a": ["transform_a", "enrich_a"],
            "branch_b": ["transform_b", "enrich_b"],
            "branch_c": ["transform_c"],
        },
        timeout=3600,
        dependencies=["fetch_data"],
    ),
    "5.5": ForEachOperator(
        task_id="process_records",
        items="{{data.records}}",
        loop_body=[
            TaskOperator(task_id="validate_record", function="validators.validate", args=["{{item}}"]),
            TaskOperator(
                task_id="save_record", function="db.save", args=["{{item}}"], dependencies=["validate_record"]
            ),
        ],
        dependencies=["fetch_data"],
    ),
    "5.6": WhileOperator(
        task_id="retry_until_success",
        condition="{{qa_results.status}} == 'failed'",
        loop_body=[
            TaskOperator(task_id="perform_rework", function="rework.fix_issues", args=["{{qa_results.issues}}"]),
            TaskOperator(
                task_id="rerun_qa",
                function="qa.inspect",
                result_key="qa_results",
                dependencies=["perform_rework"],
            ),
        ],
        dependencies=["initial_qa"],
    ),
    "5.7": EmitEventOperator(
        task_id="notify_completion",
        event_name="pipeline_{{run.id}}_completed",
        payload={
            "status": "success",
            "record_count": "{{result.count}}",
            "timestamp": "{{run.started_at}}",
        },
        dependencies=["final_task"],
    ),
    "5.8": WaitForEventOperator(
        task_id="wait_upstream",
        event_name="pipeline_{{upstream_run_id}}_completed",
        timeout_seconds=3600,
        description="Wait for upstream pipeline to complete",
    ),
    "5.9": SwitchOperator(
        task_id="route_by_status",
        switch_on="{{data.status}}",
        cases={"approved": "approve_task", "rejected": "reject_task", "pending": "review_task"},
        default="unknown_handler",
        dependencies=["fetch_status"],
    ),
    "13.1 task": TaskOperator(task_id="fetch", function="api.fetch", args=["{{url}}"]),
    "13.1 condition": ConditionOperator(task_id="check", condition="{{score}} > 0.8", if_true="high", if_false="low"),
    "13.1 wait": WaitOperator(task_id="wait", wait_for=timedelta(hours=1)),
    "13.1 parallel": ParallelOperator(task_id="parallel", branches={"a": ["t_a"], "b": ["t_b"]}),
    "13.1 foreach": ForEachOperator(task_id="foreach", items="{{data.items}}", loop_body=[]),
    "13.1 emit": EmitEventOperator(task_id="emit", event_name="done", payload={"status": "ok"}),
    "13.1 wait_for_event": WaitForEventOperator(task_id="wait", event_name="upstream_done", timeout_seconds=3600),
}
