"""Claims of the companion papers (001 to 004) that can be tried on public tables, beside ours."""
