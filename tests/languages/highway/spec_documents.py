"""The documents of the specification's sections 5, 11 and 15, by section.

A fragment of one task stands in a workflow of its own, with a plain task for each id it refers to.
"""

from __future__ import annotations

FRAGMENTS: dict[str, tuple[str, list[str]]] = {
    "5.1": (
        """
extract_data:
  operator_type: task
  task_id: extract_data
  function: etl.extract.fetch_from_api
  args:
    - "{{api_url}}"
    - "{{api_key}}"
  kwargs:
    timeout: 30
  result_key: raw_data
  retry_policy:
    max_retries: 3
    delay: PT10S
    backoff_factor: 2.0
  timeout_policy:
    timeout: PT5M
    kill_on_timeout: true
  description: Fetch raw data from external API
  dependencies: []
""",
        [],
    ),
    "5.2": (
        """
check_quality:
  operator_type: condition
  task_id: check_quality
  condition: "{{data.quality_score}} > 0.8"
  if_true: high_quality_processing
  if_false: standard_processing
  dependencies:
    - validate_data
""",
        ["validate_data", "high_quality_processing", "standard_processing"],
    ),
    "5.3": (
        """
wait_for_batch:
  operator_type: wait
  task_id: wait_for_batch
  wait_for: P1D
  dependencies:
    - process_data
""",
        ["process_data"],
    ),
    "5.4": (
        """
parallel_processing:
  operator_type: parallel
  task_id: parallel_processing
  branches:
    branch_a:
      - transform_a
      - enrich_a
    branch_b:
      - transform_b
      - enrich_b
    branch_c:
      - transform_c
  timeout: 3600
  dependencies:
    - fetch_data
""",
        ["fetch_data", "transform_a", "enrich_a", "transform_b", "enrich_b", "transform_c"],
    ),
    "5.5": (
        """
process_records:
  operator_type: foreach
  task_id: process_records
  items: "{{data.records}}"
  loop_body:
    - operator_type: task
      task_id: validate_record
      function: validators.validate
      args:
        - "{{item}}"
      dependencies:
        - process_records
    - operator_type: task
      task_id: save_record
      function: db.save
      args:
        - "{{item}}"
      dependencies:
        - validate_record
  dependencies:
    - fetch_data
""",
        ["fetch_data"],
    ),
    "5.6": (
        """
retry_until_success:
  operator_type: while
  task_id: retry_until_success
  condition: "{{qa_results.status}} == 'failed'"
  loop_body:
    - operator_type: task
      task_id: perform_rework
      function: rework.fix_issues
      args:
        - "{{qa_results.issues}}"
      dependencies:
        - retry_until_success
    - operator_type: task
      task_id: rerun_qa
      function: qa.inspect
      result_key: qa_results
      dependencies:
        - perform_rework
  dependencies:
    - initial_qa
""",
        ["initial_qa"],
    ),
    "5.7": (
        """
notify_completion:
  operator_type: emit_event
  task_id: notify_completion
  event_name: "pipeline_{{run.id}}_completed"
  payload:
    status: success
    record_count: "{{result.count}}"
    timestamp: "{{run.started_at}}"
  dependencies:
    - final_task
""",
        ["final_task"],
    ),
    "5.8": (
        """
wait_upstream:
  operator_type: wait_for_event
  task_id: wait_upstream
  event_name: "pipeline_{{upstream_run_id}}_completed"
  timeout_seconds: 3600
  description: Wait for upstream pipeline to complete
  dependencies: []
""",
        [],
    ),
    "5.9": (
        """
route_by_status:
  operator_type: switch
  task_id: route_by_status
  switch_on: "{{data.status}}"
  cases:
    approved: approve_task
    rejected: reject_task
    pending: review_task
  default: unknown_handler
  dependencies:
    - fetch_status
""",
        ["fetch_status", "approve_task", "reject_task", "review_task", "unknown_handler"],
    ),
}

YAML_11_1 = """
name: simple_etl
version: 1.1.0
description: ''
tasks:
  extract:
    task_id: extract
    operator_type: task
    function: etl.extract
    args: []
    kwargs: {}
    result_key: raw_data
    dependencies: []
    metadata: {}
    description: ''
  transform:
    task_id: transform
    operator_type: task
    function: etl.transform
    args:
      - "{{raw_data}}"
    kwargs: {}
    dependencies:
      - extract
    metadata: {}
    description: ''
variables: {}
start_task: extract
catchup: false
is_paused: false
tags: []
max_active_runs: 1
"""

JSON_11_2 = """
{
  "name": "simple_etl",
  "version": "1.1.0",
  "description": "",
  "tasks": {
    "extract": {
      "task_id": "extract",
      "operator_type": "task",
      "function": "etl.extract",
      "args": [],
      "kwargs": {},
      "result_key": "raw_data",
      "dependencies": [],
      "metadata": {},
      "description": ""
    },
    "transform": {
      "task_id": "transform",
      "operator_type": "task",
      "function": "etl.transform",
      "args": ["{{raw_data}}"],
      "kwargs": {},
      "dependencies": ["extract"],
      "metadata": {},
      "description": ""
    }
  },
  "variables": {},
  "start_task": "extract",
  "catchup": false,
  "is_paused": false,
  "tags": [],
  "max_active_runs": 1
}
"""

YAML_11_3 = """
name: invalid_workflow
version: 1.1.0
tasks:
  bad_task:
    operator_type: INVALID_TYPE
    task_id: bad_task
"""

YAML_15_1 = """
name: simple_etl
version: 1.1.0
tasks:
  extract:
    task_id: extract
    operator_type: task
    function: etl.extract_data
    result_key: raw_data
    dependencies: []
  transform:
    task_id: transform
    operator_type: task
    function: etl.transform_data
    args:
      - "{{raw_data}}"
    result_key: clean_data
    dependencies:
      - extract
    retry_policy:
      max_retries: 3
      delay: PT10S
      backoff_factor: 2.0
  load:
    task_id: load
    operator_type: task
    function: etl.load_data
    args:
      - "{{clean_data}}"
    dependencies:
      - transform
    timeout_policy:
      timeout: PT30M
      kill_on_timeout: true
start_task: extract
"""


def document(section: str) -> str:
    """The fragment of a section as a whole document."""
    fragment, others = FRAGMENTS[section]
    plain = "".join(f"  {name}: {{operator_type: task, task_id: {name}, function: f}}\n" for name in others)
    indented = "".join(f"  {line}\n" for line in fragment.strip().splitlines())
    return f"name: section\ntasks:\n{plain}{indented}"
