"""What a user needs to test workflows: real databases in milliseconds, time that is skipped, and crashes.

With pytest the fixtures are there as soon as the package is installed:

    async def test_a_reminder_is_sent_after_thirty_days(durable_lab):
        async with durable_lab(remind) as lab:
            assert await lab.run(remind, "ada@example.com") == "sent"

`durable_dsn` is a fresh database with the store in it, `durable_lab` a worker on one (see `durable.testing.lab`).
"""
