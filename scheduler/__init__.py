"""Schedules: when a workflow runs by itself, and the service that makes those runs."""
