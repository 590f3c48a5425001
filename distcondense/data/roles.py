"""What a column may be to an outcome, and what the command line says about it. Imports nothing heavy."""

from __future__ import annotations

ROLES = {
    "target": "Outcome column: classes or a number, as the schema says.",
    "time": "Survival: the follow-up time column.",
    "event": "Survival: the event column.",
}
