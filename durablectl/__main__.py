"""`python -m durablectl` is the `durable` command."""

from durablectl.main import main

main()
