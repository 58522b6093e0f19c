"""The log of a server: kept small, and quoted in errors."""

from __future__ import annotations

from pathlib import Path

KEPT = 10 * 2**20
SHOWN_LINES = 20
SHOWN_BYTES = 16 * 2**10


class ServerLog:
    """One log file, to which servers append."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """Where the words of a server begin that starts now; a long log is put aside first."""
        if self._size() < KEPT:
            return self._size()
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        return 0

    def tail(self, mark: int = 0) -> str:
        """Its last lines after a mark, worded to follow a sentence."""
        if not self._size():
            return ""
        with self.path.open("rb") as log:
            log.seek(max(mark, self._size() - SHOWN_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-SHOWN_LINES:]
        return "\n".join([f" The end of its log, {self.path}:", *lines])

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0
