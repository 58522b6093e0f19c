"""Benchmarks: each measures one kind of work next to the bare limits of the same server, in the same run."""
