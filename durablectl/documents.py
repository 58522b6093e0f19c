"""`durable check` and `durable deploy`: workflow files, all their faults at once, and what becomes of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from durable import Durable
from durablectl import exits
from durablectl.database import with_client
from durablectl.jsontext import print_json
from durablectl.scheduling import deploy_loaded, findings_of, placed, schedule_of
from highway_dsl.faults import Fault
from interpreter.deployment import Loaded, Unloadable, Written, check, read
from interpreter.errors import ProgramError
from scheduler.following import Followed


class Reading(NamedTuple):
    """What was found in some files."""

    loaded: list[Loaded]
    faults: list[str]
    warnings: list[str]


def read_files(files: Sequence[str]) -> Reading:
    """Check every file; workflows in different files may emit what others wait for."""
    written, faults = [], []
    for file in dict.fromkeys(files):
        try:
            written += read(file)
        except Unloadable as exc:
            faults += [_said(file, fault) for fault in exc.faults] or [str(exc)]
    return look_at(written, faults)


def look_at(written: Sequence[Written], faults: Sequence[str] = ()) -> Reading:
    """Check workflows together, after what is known to be wrong with their files."""
    loaded = check(written)
    faults = [*faults, *_namesakes(loaded)]
    faults += [_said(each.file, fault) for each in loaded for fault in (*each.findings.faults, *_of_schedule(each))]
    warnings = [_said(each.file, fault) for each in loaded for fault in each.findings.warnings]
    return Reading(loaded, faults, warnings)


def _of_schedule(loaded: Loaded) -> list[Fault]:
    """What is wrong with a schedule that each of its fields is fine for."""
    found = None if loaded.findings.faults else findings_of(loaded.workflow)
    return [placed(loaded, fault) for fault in found.faults] if found else []


def _said(file: str, fault: Fault) -> str:
    return str(fault) if fault.position and fault.position.file else f"{file}: {fault}"


def _namesakes(loaded: Sequence[Loaded]) -> Iterator[str]:
    files: dict[str, list[str]] = {}
    for each in loaded:
        files.setdefault(each.name, []).append(each.file)
    for name, places in files.items():
        if len(set(places)) < len(places):
            yield f"{places[-1]}: builds two workflows that are named '{name}': give one another name"
        elif len(places) > 1:
            yield f"{places[-1]}: workflow '{name}' is also in {', '.join(places[:-1])}: give one another name"


def check_files(files: Sequence[str], *, as_json: bool) -> int:
    found = read_files(files)
    if as_json:
        print_json({"workflows": [_described(each) for each in found.loaded], **_complaints(found)})
    else:
        complain(found)
        for each in found.loaded:
            if each.findings.plan is not None:
                print(
                    f"ok {each.name} {each.deployment().version[:12]} ({len(each.workflow.tasks)} tasks, {each.file})"
                )
    return exits.REFUSED if found.faults else exits.OK


def complain(found: Reading) -> None:
    """Faults and warnings, a line each, for people and editors."""
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for fault in found.faults:
        print(f"error: {fault}", file=sys.stderr)


def _complaints(found: Reading) -> dict[str, Any]:
    return {"faults": found.faults, "warnings": found.warnings}


def _described(loaded: Loaded) -> dict[str, Any]:
    sound = loaded.findings.plan is not None
    return {
        "workflow": loaded.name,
        "file": loaded.file,
        "version": loaded.deployment().version if sound else None,
        "tasks": len(loaded.workflow.tasks),
    }


def sound(files: Sequence[str]) -> list[Loaded]:
    """The workflows of files, or a refusal with everything that is wrong with them."""
    return required(read_files(files), ", ".join(files))


def required(found: Reading, files: str) -> list[Loaded]:
    """What was found, or a refusal with everything that is wrong with it."""
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if found.faults:
        raise ProgramError(_listed(files, found.faults))
    return found.loaded


def _listed(files: str, faults: Sequence[str]) -> str:
    """One fault in its own line, several below one."""
    return faults[0] if len(faults) == 1 else f"{files} cannot be used:\n  " + "\n  ".join(faults)


def deploy_files(files: Sequence[str], *, as_json: bool, database_url: str | None) -> int:
    loaded = sound(files)

    async def act(client: Durable) -> list[tuple[bool, Followed]]:
        return [await deploy_loaded(client, each) for each in loaded]

    done = with_client(database_url, act)
    if as_json:
        print_json([_outcome(each, new, followed) for each, (new, followed) in zip(loaded, done, strict=True)])
        return exits.OK
    for each, (new, followed) in zip(loaded, done, strict=True):
        print(
            f"{'deployed' if new else 'unchanged'} {each.name} {each.deployment().version[:12]}{_tail(each, followed)}"
        )
    return exits.OK


def _outcome(loaded: Loaded, new: bool, followed: Followed) -> dict[str, Any]:
    return {**_described(loaded), "changed": new, "schedule": followed}


def _tail(loaded: Loaded, followed: Followed) -> str:
    schedule = schedule_of(loaded.workflow)
    if schedule is not None:
        return f", scheduled {schedule.rule} ({schedule.timezone})"
    return ", its schedule was removed" if followed == "removed" else ""
