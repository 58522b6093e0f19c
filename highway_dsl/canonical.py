"""The canonical form of a workflow: equal bytes for equal definitions, however they were written."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow


def canonical(workflow: Workflow) -> bytes:
    """The definition as JSON with sorted keys, without spaces and without empty fields, in UTF-8."""
    data = workflow.model_dump(mode="json", exclude_none=True)
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def content_hash(workflow: Workflow) -> str:
    """The SHA-256 of the canonical form, in hexadecimal: the identity of a version."""
    return hashlib.sha256(canonical(workflow)).hexdigest()
