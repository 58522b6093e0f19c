"""The common shape of commands and records: plain data with a tag and a JSON form."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound="Message")


@dataclass(slots=True)
class Message:
    """Plain data; `tag` names its kind in the JSON form. Treat it as a value: nobody changes one."""

    tag: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        """The JSON form, tagged."""
        body = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"tag": self.tag, **body}


def read(kinds: dict[str, type[M]], form: dict[str, Any]) -> M:
    """The message a JSON form describes."""
    body = dict(form)
    return kinds[body.pop("tag")](**body)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, Message):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
