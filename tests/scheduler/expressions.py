"""Cron expressions, zones and days for tests that try many."""

from __future__ import annotations

from datetime import datetime

from hypothesis import strategies as st

# Changes of an hour, of half an hour, of a day, at midnight, twice a year around Ramadan, and none at all.
ZONES = st.sampled_from(
    [
        *("UTC", "America/New_York", "Europe/Berlin", "Europe/London", "Australia/Lord_Howe", "Pacific/Apia"),
        *("America/Havana", "America/Santiago", "Africa/Cairo", "Asia/Beirut", "Africa/Casablanca", "Asia/Kolkata"),
        *("Asia/Tehran", "America/St_Johns", "Pacific/Chatham", "Antarctica/Troll", "America/Caracas"),
        *("Asia/Pyongyang", "Europe/Istanbul", "America/Sao_Paulo", "Asia/Gaza", "America/Nuuk"),
    ]
)
DATES = st.datetimes(datetime(2005, 1, 1), datetime(2035, 1, 1))


def field(low: int, high: int) -> st.SearchStrategy[str]:
    """One field: all, steps, a number, a range, or a list."""
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    return st.one_of(
        st.just("*"),
        st.sampled_from([2, 3, 5, 7, 10, 15]).map(lambda step: f"*/{step}"),
        number.map(str),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.lists(number, min_size=1, max_size=4, unique=True).map(lambda some: ",".join(map(str, some))),
    )


def expressions() -> st.SearchStrategy[str]:
    """Expressions of five fields; the day of month stays where every month has it, so that each one fires."""
    days = st.one_of(field(1, 28), st.sampled_from(["L", "1,L", "31"]))
    weekdays = st.one_of(st.just("*"), field(0, 7), st.sampled_from(["MON-FRI", "sun"]))
    months = st.one_of(st.just("*"), st.just("*"), st.sampled_from(["1", "3,10", "*/2", "1-7", "MAR"]))
    chosen = st.tuples(days, months, weekdays) | st.tuples(st.just("*"), months, st.sampled_from(["5#2", "L5", "*"]))
    return st.tuples(field(0, 59), field(0, 23), chosen).map(lambda parts: " ".join((*parts[:2], *parts[2])))
