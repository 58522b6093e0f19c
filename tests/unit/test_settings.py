"""Settings: from the environment, checked, and never changed afterwards."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from durable import Settings


def test_every_setting_has_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """DURABLE_<NAME>, in the type of the setting."""
    monkeypatch.setenv("DURABLE_SLOTS", "7")
    monkeypatch.setenv("DURABLE_LEASE_SECONDS", "2.5")
    monkeypatch.setenv("DURABLE_DATABASE_URL", "postgresql://db/app")
    found = Settings.from_environment()
    assert (found.slots, found.lease_seconds, found.database_url) == (7, 2.5, "postgresql://db/app")


def test_what_is_given_wins_and_none_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_SLOTS", "7")
    assert Settings.from_environment(slots=3).slots == 3
    assert Settings.from_environment(slots=None).slots == 7


def test_other_variables_are_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    """DURABLE_FAULT and the like are not settings."""
    monkeypatch.setenv("DURABLE_NO_SUCH_THING", "1")
    assert Settings.from_environment() == Settings.from_environment()


@pytest.mark.parametrize("wrong", [{"slots": "many"}, {"slots": "0"}, {"lease_seconds": "-1"}, {"retention_days": "0"}])
def test_a_wrong_variable_is_refused_by_its_name(wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the setting."""
    [(name, value)] = wrong.items()
    monkeypatch.setenv(f"DURABLE_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        Settings.from_environment()


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="slotz"):
        Settings(slotz=3)  # type: ignore[call-arg]


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().slots = 3  # type: ignore[misc]
