"""A gate before a table that no memory holds: `open_gate` for a `LargeTable`, here or on a cluster.

Beside `condense.py: open_gate` the only place of the private path that reads patients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from distcondense.cluster.shards import opened, opened_on, scratch
from distcondense.data.large import LargeTable
from distcondense.data.persons import HoldoutSplit
from distcondense.methods.base import Context
from distcondense.methods.private.prepare import PreparedPrivate
from distcondense.privacy.gate import PrivateTable, gate_over
from distcondense.privacy.ledger import Ledger


@contextmanager
def large_gate(
    table: LargeTable, coins: HoldoutSplit, prepared: PreparedPrivate, ledger: Ledger, context: Context
) -> Iterator[PrivateTable]:
    """Read the table once, in batches; its rows are gone when this ends."""
    cells, objective, most = prepared.cells, prepared.side.objective, prepared.rows_per_person
    with ExitStack() as stack:
        if context.cluster is None:
            own = None if context.folder is None else context.folder.internal
            place = stack.enter_context(scratch(context.scratch or own))
            rows = opened(
                table,
                cells,
                objective,
                coins,
                most,
                place,
                threads=context.threads,
                memory=context.memory,
                log=context.log,
            )
        else:
            rows = stack.enter_context(
                opened_on(
                    context.cluster,
                    table,
                    cells,
                    objective,
                    coins,
                    most,
                    scratch_=context.scratch,
                    memory=context.memory,
                    log=context.log,
                )
            )
        yield gate_over(
            rows,
            names=[one.column.name for one in cells],
            budget=prepared.budget,
            ledger=ledger,
            unit=prepared.unit,
            unlisted=[k for k, one in enumerate(cells) if not one.numeric and one.column.unknown],
        )
