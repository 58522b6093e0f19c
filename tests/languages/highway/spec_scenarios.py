"""The workflows of the specification's section 15, by section."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from highway_dsl import Workflow, WorkflowBuilder


def simple_linear() -> Workflow:
    return (
        WorkflowBuilder("simple_etl")
        .task("extract", "etl.extract_data", result_key="raw_data")
        .task("transform", "etl.transform_data", args=["{{raw_data}}"], result_key="clean_data")
        .retry(max_retries=3, delay=timedelta(seconds=10))
        .task("load", "etl.load_data", args=["{{clean_data}}"])
        .timeout(timeout=timedelta(minutes=30))
        .build()
    )


def conditional_branching() -> Workflow:
    return (
        WorkflowBuilder("quality_check_pipeline")
        .task("fetch", "api.fetch_data", result_key="data")
        .task("validate", "validators.check_quality", args=["{{data}}"], result_key="quality_score")
        .condition(
            "check_quality",
            condition="{{quality_score}} > 0.8",
            if_true=lambda b: b.task("premium_processing", "process.premium", args=["{{data}}"]),
            if_false=lambda b: b.task("standard_processing", "process.standard", args=["{{data}}"]),
        )
        .task("finalize", "api.publish_results", dependencies=["check_quality"])
        .build()
    )


def parallel_execution() -> Workflow:
    return (
        WorkflowBuilder("parallel_pipeline")
        .task("fetch", "api.fetch_data", result_key="data")
        .parallel(
            "parallel_transform",
            branches={
                "transform_a": lambda b: b.task("t_a", "transform.method_a", args=["{{data}}"], result_key="result_a"),
                "transform_b": lambda b: b.task("t_b", "transform.method_b", args=["{{data}}"], result_key="result_b"),
                "transform_c": lambda b: b.task("t_c", "transform.method_c", args=["{{data}}"], result_key="result_c"),
            },
        )
        .task("aggregate", "aggregate.combine", args=["{{result_a}}", "{{result_b}}", "{{result_c}}"])
        .build()
    )


def foreach_loops() -> Workflow:
    return (
        WorkflowBuilder("batch_processor")
        .task("fetch_records", "db.fetch_pending", result_key="records")
        .foreach(
            "process_records",
            items="{{records}}",
            loop_body=lambda b: (
                b.task("validate", "validators.validate_record", args=["{{item}}"])
                .task("enrich", "enrichment.add_metadata", args=["{{item}}"], result_key="enriched")
                .task("save", "db.save_record", args=["{{enriched}}"])
            ),
        )
        .task("summarize", "reporting.create_summary")
        .build()
    )


def while_loops() -> Workflow:
    return (
        WorkflowBuilder("qa_rework_pipeline")
        .task("initial_qa", "qa.inspect_product", result_key="qa_results")
        .while_loop(
            "rework_loop",
            condition="{{qa_results.status}} == 'failed'",
            loop_body=lambda b: b.task("perform_rework", "rework.fix_issues", args=["{{qa_results.issues}}"]).task(
                "rerun_qa", "qa.inspect_product", result_key="qa_results"
            ),
        )
        .task("finalize", "production.mark_complete")
        .build()
    )


def scheduled() -> Workflow:
    return (
        WorkflowBuilder("daily_report")
        .set_schedule("0 2 * * *")
        .set_start_date(datetime(2025, 1, 1))
        .set_catchup(False)
        .add_tags("production", "daily", "reporting")
        .set_max_active_runs(1)
        .task("extract", "reports.extract_daily_data", args=["{{ds}}"], result_key="data")
        .task("transform", "reports.transform_data", args=["{{data}}"], result_key="report")
        .task("send", "email.send_report", args=["{{report}}"])
        .build()
    )


def event_upstream() -> Workflow:
    return (
        WorkflowBuilder("upstream_pipeline")
        .task("process_data", "etl.process", result_key="result")
        .emit_event(
            "notify_downstream",
            event_name="pipeline_{{ds}}_completed",
            payload={"status": "success", "count": "{{result.count}}"},
        )
        .build()
    )


def event_downstream() -> Workflow:
    return (
        WorkflowBuilder("downstream_pipeline")
        .wait_for_event("wait_for_upstream", event_name="pipeline_{{ds}}_completed", timeout_seconds=3600)
        .task("consume_data", "consumer.process", args=["{{wait_for_upstream.payload}}"])
        .build()
    )


def callback_hooks() -> Workflow:
    workflow = (
        WorkflowBuilder("monitored_pipeline")
        .task("risky_operation", "api.call_external_service", result_key="result")
        .task("success_handler", "notifications.send_success", args=["Operation succeeded: {{result}}"])
        .task("failure_handler", "notifications.send_alert", args=["Operation failed"])
        .build()
    )
    workflow.tasks["risky_operation"].on_success_task_id = "success_handler"
    workflow.tasks["risky_operation"].on_failure_task_id = "failure_handler"
    return workflow


def switch_case() -> Workflow:
    builder = (
        WorkflowBuilder("order_processor")
        .task("fetch_order", "orders.fetch", result_key="order")
        .switch(
            "route_by_status",
            switch_on="{{order.status}}",
            cases={
                "pending": "process_pending",
                "approved": "process_approved",
                "rejected": "process_rejected",
                "cancelled": "process_cancelled",
            },
            default="handle_unknown_status",
        )
    )
    for status in ("pending", "approved", "rejected", "cancelled"):
        builder.task(
            f"process_{status}",
            f"orders.process_{status}",
            args=["{{order}}"],
            dependencies=["route_by_status"],
        )
    builder.task(
        "handle_unknown_status",
        "errors.log_unknown_status",
        args=["{{order}}"],
        dependencies=["route_by_status"],
    )
    return builder.build()


SCENARIOS: dict[str, Callable[[], Workflow]] = {
    "15.1": simple_linear,
    "15.2": conditional_branching,
    "15.3": parallel_execution,
    "15.4": foreach_loops,
    "15.5": while_loops,
    "15.6": scheduled,
    "15.7 upstream": event_upstream,
    "15.7 downstream": event_downstream,
    "15.8": callback_hooks,
    "15.9": switch_case,
}
