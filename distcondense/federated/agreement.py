"""What all parties agree on before a row is read, and the plan that each of them makes of it for itself."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import pandas as pd

from distcondense.data.cohort import Facts, checked_roles
from distcondense.data.outcome import Goal
from distcondense.data.roles import ROLES
from distcondense.data.schema import Schema
from distcondense.errors import RunFolderError, SettingsError
from distcondense.federated.accounting import CHOICE_SHARE, Sharing
from distcondense.federated.messages import VERSION, digest, plain_bytes
from distcondense.methods.private.fit import choice_width
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.plan import HAIR, LOOK_GROUPS, PICK_SHARE, Plan
from distcondense.methods.private.prepare import PreparedPrivate, prepare
from distcondense.privacy.accountant import replay
from distcondense.privacy.events import Event
from distcondense.privacy.rows import ROWS_ALL_MAX

READING = (*ROLES, "positive", "kind", "person_id", "ignore")  # what says how every site reads its table


@dataclass(frozen=True)
class PreparedFederated(PreparedPrivate):
    """A private run whose rows lie at several sites: each party makes it from the agreement alone."""

    sharing: Sharing

    @cached_property
    def planned(self) -> tuple[Event, ...]:
        """Everything that will be asked, at the price that every site charges."""
        asked = [*super().planned, *self.choices]
        return tuple(self._priced(event) for event in asked)

    @property
    def choices(self) -> tuple[Event, ...]:
        """What columns, or all pairs that may be candidates, are chosen by; prices as at one gate."""
        if not self.looks:
            return ()
        query, cells, by = ("sums", self._sums, "columns") if self.plan.picks else ("histogram", LOOK_GROUPS**2, "none")
        cost = self.choice_cost
        return (Event("gaussian", query, (), cells, cost, noise=1 / cost, by=by, unit=self.unit),) * self.looks  # type: ignore[arg-type]

    @property
    def looks(self) -> int:
        """How many pairs are candidates at most; all columns are told at once."""
        columns = self.plan.forest + 1 if self.plan.pairs else 0
        return 1 if self.plan.picks else columns * (columns - 1) // 2

    @property
    def choice_cost(self) -> float:
        """μ of one such answer."""
        return self.budget.mu * math.sqrt(choice_share(self.plan) / self.looks) / self.sharing.factor

    @property
    def _sums(self) -> int:
        """Of all columns while some are chosen."""
        return self.side.objective.scores * sum(-(-one.size // choice_width(one)) for one in self.cells)

    def _priced(self, event: Event) -> Event:
        sharing, cost = self.sharing, self.sharing.cost(event.cost)
        most = event.sensitivity * sharing.hospitals
        return replace(event, cost=cost, sensitivity=most, noise=most / cost)


def _with_lists(said: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has it."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}


def with_tuples(said: Mapping[str, Any]) -> dict[str, Any]:
    """As Python's settings have it."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}


@dataclass(frozen=True)
class Agreement:
    """What a coordinator proposes and every site agrees to by joining; all of it is public."""

    session: str  # a random name
    coordinator: str  # public key
    schema: Mapping[str, Any]
    reading: Mapping[str, Any]  # which columns are the outcome, and whose rows they are
    options: Mapping[str, Any]  # ε, δ, records per class, …
    sites: int
    colluding: int = 1
    hospitals: int = 1
    persons: int = ROWS_ALL_MAX  # at all sites together, at most
    version: str = VERSION

    @classmethod
    def propose(
        cls,
        coordinator: str,
        schema: Schema,
        reading: Mapping[str, Any],
        options: PrivateOptions,
        sharing: Sharing,
        persons: int = ROWS_ALL_MAX,
    ) -> Agreement:
        """A new session, checked as far as public facts go."""
        if unknown := [name for name in reading if name not in READING]:
            raise SettingsError(unknown[0], "is no part of an agreement", found="said", fix="leave it out")
        settings = {entry.name: getattr(options, entry.name) for entry in fields(options)}
        session, how = secrets.token_hex(16), (_with_lists(reading), _with_lists(settings))
        return cls(session, coordinator, schema.to_dict(), *how, **asdict(sharing), persons=persons).checked()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Agreement:
        """Of a message, checked."""
        names = {entry.name for entry in fields(cls)}
        if data.get("version") != VERSION or set(data) != names:
            raise RunFolderError(
                "agreement",
                f"must be one of version {VERSION}",
                found="another version",
                fix="all parties need the same version of distcondense",
            )
        try:
            return cls(**data).checked()
        except (TypeError, KeyError, AttributeError):
            raise RunFolderError("agreement", "must hold its fields", found="others", fix="begin it anew") from None

    def checked(self) -> Agreement:
        """The same, if a run can be planned from it."""
        if not 1 <= self.persons <= ROWS_ALL_MAX:
            raise SettingsError("persons", f"must be between 1 and {ROWS_ALL_MAX}", found=f"{self.persons}")
        self.prepared  # noqa: B018  (refuses what cannot be planned)
        return self

    @property
    def payload(self) -> bytes:
        return plain_bytes(asdict(self))

    @property
    def digest(self) -> str:
        return digest(self.payload)

    @cached_property
    def sharing(self) -> Sharing:
        return Sharing(self.sites, self.colluding, self.hospitals)

    @cached_property
    def private_options(self) -> PrivateOptions:
        return PrivateOptions(**with_tuples(self.options))

    @cached_property
    def how(self) -> dict[str, Any]:
        """How every site reads its table."""
        schema = Schema.from_dict(dict(self.schema), where="the agreement")
        return checked_roles({**with_tuples(self.reading), "schema": schema})

    @cached_property
    def facts(self) -> Facts:
        """What is public about the tables."""
        how = self.how
        goal = Goal.from_roles(
            positive=how.get("positive"), kind=how.get("kind"), **{role: how.get(role) for role in ROLES}
        )
        return with_labels(
            Facts.from_goal(goal, how["schema"], person_id=how.get("person_id"), ignore=how.get("ignore", ()))
        )

    @cached_property
    def prepared(self) -> PreparedFederated:
        """The plan, and the budget that it adds up to, with the noise of all sites in mind."""
        return prepared_for(self.facts, self.private_options, self.sharing)


def with_labels(facts: Facts) -> Facts:
    """The same before a row is read: what is declared says which labels there are."""
    if not facts.kind.labels_public:
        return facts  # refused as it is planned
    return replace(facts, kind=facts.kind.read(pd.DataFrame(columns=list(facts.kind.names))).kind)


def prepared_for(facts: Facts, options: PrivateOptions, sharing: Sharing) -> PreparedFederated:
    """Refuse what sites cannot do together; plan the questions and calibrate the budget."""
    if options.trust_inferred_schema:
        raise SettingsError(
            "trust_inferred_schema",
            "is for one table: sites must agree on a declared schema",
            found="true",
            fix="declare the schema (distcondense init TABLE)",
        )
    refuse_shared(facts)
    one = prepare(facts, options, choices=False)
    part = (1 - choice_share(one.plan)) / sharing.factor**2
    one = prepare(facts, options, part=part, choices=False)
    own = {entry.name: getattr(one, entry.name) for entry in fields(PreparedPrivate)}
    found, hair = PreparedFederated(**own, sharing=sharing), HAIR
    while replay(found.planned, options.delta).epsilon > options.epsilon:
        budget = replace(found.budget, mu=found.budget.mu * (1 - hair))
        found, hair = replace(found, budget=budget), 2 * hair
    if not sharing.delta_reserved:
        raise SettingsError("sites", "must be fewer: their noise is too far from one", found=f"{sharing.sites}")
    return found


def choice_share(plan: Plan) -> float:
    """Of μ², for what columns or pairs are chosen by."""
    return PICK_SHARE if plan.picks else CHOICE_SHARE


def refuse_shared(facts: Facts) -> None:
    """What no masked sum can answer."""
    schema = facts.schema
    assert schema is not None
    unknown = [column.name for column in schema.columns if not column.numeric and column.unknown]
    if unknown:
        raise SettingsError(
            "schema",
            "must list all categories: sites have no common index of unlisted values that they could mask",
            found=f"{len(unknown)} columns without a list, the first {unknown[0]!r}",
            fix="list them, or leave these columns out (--ignore)",
        )
