"""Languages on one plan: each loads, checks and compiles to a `Plan`; the walker runs plans and knows none of them.

Read in this order: `plan`, `walker` (a pure reducer and its contract), `driver` (performs its commands through
a DurableContext), `highway` (the first language), `expressions`, `functions` and `tools`, `secrets`, `deployment`.
"""
