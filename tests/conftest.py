"""For all tests: no property is judged by the time it takes, here or on any slower machine."""

from hypothesis import settings

settings.register_profile("durable", deadline=None)
settings.load_profile("durable")
