"""Workflows to read, run and copy from."""
