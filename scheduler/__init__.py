"""Schedules: cron rules, ticks, catchup and backfill will stand here. Nothing schedules yet."""
