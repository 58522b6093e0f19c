"""The values a definition may hold: those that JSON can write, and read back the same."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python


def value_fault(value: Any) -> str | None:
    """Why a value cannot be written down, or None."""
    if not value:
        return None
    try:
        plain = to_jsonable_python(value, inf_nan_mode="constants")
        json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return "holds half a surrogate pair, which no text format can write"
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        return f"holds what JSON cannot write: {error}"
    return None
