"""Claims of the companion papers that can be tried on public tables, beside ours."""
