"""The set of sites: who takes part in a session, with which keys. Signed once, and fixed from then on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distcondense.errors import RunFolderError
from distcondense.federated.agreement import Agreement
from distcondense.federated.messages import (
    COORDINATOR,
    OwnKeys,
    check_name,
    digest,
    fingerprint,
    payload_of,
    plain_bytes,
    unsigned_payload,
)

AGREEMENT, JOIN, SET, QUESTION, ANSWER, CLOSE = "agreement", "join", "set", "question", "answer", "close"


@dataclass(frozen=True)
class SiteSession:
    """An agreement and the sites that joined it, by name, each with its public keys."""

    agreement: Agreement
    members: Mapping[str, Mapping[str, str]]

    @property
    def payload(self) -> bytes:
        """What the coordinator signs."""
        return plain_bytes(
            {"agreement": self.agreement.digest, "members": {k: dict(v) for k, v in self.members.items()}}
        )

    @property
    def digest(self) -> str:
        return digest(self.payload)

    @property
    def fingerprint(self) -> str:
        """What people compare: it covers the agreement, the coordinator's key and those of all sites."""
        return fingerprint(self.digest)

    @classmethod
    def from_messages(cls, agreement: bytes, set_: bytes) -> SiteSession:
        """Of the coordinator's two messages."""
        agreed = agreement_of(agreement)
        data = payload_of(set_, SET, COORDINATOR, agreed.coordinator)
        try:
            members = {
                str(name): {k: str(v[k]) for k in ("signing", "agreeing")} for name, v in data["members"].items()
            }
            session = cls(agreed, members)
            good = data["agreement"] == agreed.digest and len(members) == agreed.sites
            for name in members:
                check_name(name)
        except (KeyError, TypeError, AttributeError):
            good = False
        if not good:
            raise RunFolderError(
                "set of sites",
                "must be of this agreement, with as many sites as it says",
                found="another",
                fix="ask the coordinator",
            )
        return session

    @classmethod
    def of_joined(cls, agreement: Agreement, joins: Mapping[str, bytes]) -> SiteSession:
        """Of the messages of all sites, by their names."""
        members = {}
        for name in sorted(joins):
            check_name(name)
            said = unsigned_payload(joins[name], f"message {JOIN} of {name}")
            data = payload_of(joins[name], JOIN, name, str(said.get("signing", "")))  # whose it is, people compare
            if data.get("agreement") != agreement.digest:
                raise RunFolderError(
                    f"message {JOIN} of {name}",
                    "must be for this agreement: schema, settings and session",
                    found="another agreement",
                    fix="let the site join again",
                )
            members[name] = {key: str(data[key]) for key in ("signing", "agreeing")}
        if len({keys["signing"] for keys in members.values()}) != len(members):
            raise RunFolderError("joined sites", "must have keys of their own", found="one key twice", fix="join anew")
        return cls(agreement, members)


def agreement_of(message: bytes) -> Agreement:
    """The agreement, signed with the key that it names."""
    said = unsigned_payload(message, f"message {AGREEMENT}")
    data = payload_of(message, AGREEMENT, COORDINATOR, str(said.get("coordinator", "")))
    return Agreement.from_data(data)


def join_payload(agreement: Agreement, keys: OwnKeys) -> bytes:
    return plain_bytes({"agreement": agreement.digest, **keys.public()})


def missing(agreement: Agreement, joined: Sequence[str]) -> int:
    """How many sites have yet to join."""
    if len(joined) > agreement.sites:
        raise RunFolderError(
            "joined sites",
            f"must be {agreement.sites}, as was agreed",
            found=f"{len(joined)}: {', '.join(joined)}",
            fix="take away the message of whoever does not belong, after asking them",
        )
    return agreement.sites - len(joined)
