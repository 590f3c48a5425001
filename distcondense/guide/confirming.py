"""The sheet of rules that a table happens to obey: which of them hold by definition, and who says so. Enter: none."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from distcondense.data.proposals import Proposal, proposed_rules, with_rules
from distcondense.data.schema import Schema
from distcondense.errors import CohortError
from distcondense.guide.prompts import Prompts
from distcondense.guide.sheets import ALL, NONE, picked

TITLE = "Rules that this file happens to obey"
QUESTION = f"Which of these hold by definition, whoever the patients are ({ALL}, numbers, {NONE})"
NAME = "Your name, which stands beside these rules in the schema and in the datasheet; Enter: nobody"


def proposals_in(frame: pd.DataFrame, schema: Schema, without: Collection[str]) -> list[Proposal]:
    """Rules to ask about; none where the table does not fit its schema, which is said elsewhere."""
    try:
        return proposed_rules(frame, schema, without)
    except CohortError:
        return []


def with_confirmed_rules(frame: pd.DataFrame, schema: Schema, without: Collection[str], prompts: Prompts) -> Schema:
    """The schema with those of the proposed rules that somebody stands for, by name."""
    proposals = {proposal.words: proposal for proposal in proposals_in(frame, schema, without)}
    if not proposals:
        return schema
    lines = {words: proposal.line for words, proposal in proposals.items()}
    chosen = picked(prompts, TITLE, lines, QUESTION, [])
    name = prompts.text(NAME, "") if chosen else ""
    return with_rules(schema, [proposals[words] for words in chosen], name) if name else schema
