"""Writes YAML as PyYAML's safe dumper does (section 11.1), so that YAML 1.2 reads it the same."""

from __future__ import annotations

import re
from typing import Any

import yaml

# Numbers to YAML 1.2 that YAML 1.1, and so the dumper, takes for text.
_NUMBER_IN_1_2 = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+")


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if _NUMBER_IN_1_2.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def write_yaml(data: Any) -> str:
    """`data` in block style with sorted keys."""
    text: str = yaml.dump(data, Dumper=_Dumper, default_flow_style=False)
    return text
