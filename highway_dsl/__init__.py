"""Highway DSL: the definition layer. Workflows as data; nothing here runs them, reads or writes."""

from __future__ import annotations

# A drop-in: every public name is here and in workflow_dsl, and the list is kept once.
from highway_dsl.workflow_dsl import *  # noqa: F403
from highway_dsl.workflow_dsl import __all__ as __all__
