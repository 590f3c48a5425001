"""Messages between sites and a coordinator: a line that says what it is, by whom and signed how, then the payload.

The signature (Ed25519) covers kind, sender and payload to the byte. Who may have sent what is the reader's to check:
`opened` takes the key that it must be signed by.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcondense.errors import RunFolderError, SettingsError, brief, os_errors
from distcondense.federated.masks import cryptography
from distcondense.outside import parse_json
from distcondense.runs.files import write_whole

VERSION = "distcondense federated 1"
COORDINATOR = "coordinator"
NO_SITE = (COORDINATOR, "question")  # what messages are called that no site sends
MOST_BYTES = 2**28
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
OTHERS = "do not go on before you know why: ask the sender, by another way than these files"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fingerprint(of: str) -> str:
    """A digest for people to compare: 120 bits in groups of four letters and digits."""
    text = base64.b32encode(bytes.fromhex(of)[:15]).decode()
    return "-".join(text[start : start + 4] for start in range(0, len(text), 4))


def check_name(name: str) -> None:
    """Of a site: it is part of file names."""
    if not NAME.fullmatch(name) or name in NO_SITE:
        raise SettingsError(
            "name of a site", "must be 1 to 32 small letters, digits and -", found=repr(brief(name)), fix="e.g. north"
        )


def plain_bytes(data: dict[str, Any]) -> bytes:
    """JSON data as the bytes that are signed."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class OwnKeys:
    """A party's private keys of one session: to sign, and of a site to agree on masks."""

    signing: bytes
    agreeing: bytes

    @classmethod
    def from_file(cls, file: Path) -> OwnKeys:
        """Of a file that only its owner can read; made where there is none."""
        if not file.exists():
            x25519, ed25519 = _kinds()
            private = (ed25519.Ed25519PrivateKey.generate(), x25519.X25519PrivateKey.generate())
            names = ("signing", "agreeing")
            keys = {name: key.private_bytes_raw().hex() for name, key in zip(names, private, strict=True)}
            write_whole(file, lambda draft: draft.write_text(json.dumps(keys)), mode=0o600)
        with os_errors("keys", "must be readable", RunFolderError):
            content = file.read_bytes()
        try:
            keys = parse_json(content)
            return cls(bytes.fromhex(keys["signing"]), bytes.fromhex(keys["agreeing"]))
        except (ValueError, KeyError, TypeError):
            raise RunFolderError(
                "keys", "must be as they were made", found="a damaged file", fix="join another session"
            ) from None

    @staticmethod
    def forget_masks(file: Path) -> None:
        """The key that masks come from goes: what was sent can then not be unmasked with anything that lies here."""
        keys = {"signing": OwnKeys.from_file(file).signing.hex(), "agreeing": ""}
        write_whole(file, lambda draft: draft.write_text(json.dumps(keys)), mode=0o600)

    @property
    def signer(self) -> Any:
        return _kinds()[1].Ed25519PrivateKey.from_private_bytes(self.signing)

    @property
    def agreer(self) -> Any:
        return _kinds()[0].X25519PrivateKey.from_private_bytes(self.agreeing)

    def public(self) -> dict[str, str]:
        """Both public keys, in hexadecimal digits."""
        pair = (self.signer.public_key(), self.agreer.public_key())
        names = ("signing", "agreeing")
        return {name: key.public_bytes_raw().hex() for name, key in zip(names, pair, strict=True)}

    def sealed(self, kind: str, by: str, payload: bytes) -> bytes:
        """A message."""
        signature = self.signer.sign(_covered(kind, by, payload)).hex()
        head = {"message": VERSION, "kind": kind, "by": by, "signature": signature}
        return json.dumps(head).encode() + b"\n" + payload


def opened(message: bytes, kind: str, by: str, public: str) -> bytes:
    """The payload of a message that must be of this kind, by this sender, signed with the other half of this key."""
    said, _, payload = message.partition(b"\n")
    what = f"message {kind} of {by}"
    try:
        head = parse_json(said)
        version, its_kind, its_sender = (str(head[name]) for name in ("message", "kind", "by"))
        signature = bytes.fromhex(head["signature"])
    except (ValueError, KeyError, TypeError):
        raise _refused(what, "must be a message of this protocol", "other bytes") from None
    if version != VERSION:
        raise _refused(what, f"must be of the version {VERSION}", "another version")
    if (its_kind, its_sender) != (kind, by):
        raise _refused(what, "must be what it stands for", "a message of another kind or sender")
    parts = cryptography()
    try:
        key = parts.asymmetric.ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(signature, _covered(kind, by, payload))
    except Exception:  # InvalidSignature, and whatever no key raises
        raise _refused(what, "must be signed with the sender's key", "another signature") from None
    return payload


def payload_of(message: bytes, kind: str, by: str, public: str) -> dict[str, Any]:
    """The payload as JSON data."""
    return data_of(opened(message, kind, by, public), f"message {kind} of {by}")


def data_of(payload: bytes, what: str) -> dict[str, Any]:
    try:
        data = parse_json(payload)
    except ValueError:
        raise _refused(what, "must hold JSON", "other bytes") from None
    if not isinstance(data, dict):
        raise _refused(what, "must hold fields by name", "other JSON")
    return data


def unsigned_payload(message: bytes, what: str) -> dict[str, Any]:
    """The payload of a message whose signature is still to be checked with a key that it brings itself."""
    return data_of(message.partition(b"\n")[2], what)


def read_message(file: Path) -> bytes:
    """A file that others wrote."""
    what = f"message {brief(file.name)}"
    with os_errors(what, "must be a readable file", RunFolderError):
        status = file.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise _refused(what, f"must be a file of at most {MOST_BYTES:,} bytes", "something else")
        return file.read_bytes()


def write_message(file: Path, message: bytes, *, synced: bool = True) -> None:
    """Whole or not at all; what is not synced must be kept somewhere else, and is sent again where it is lost."""
    with os_errors(f"message {brief(file.name)}", "must be writable", RunFolderError):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, lambda draft: draft.write_bytes(message), synced=synced)


def _covered(kind: str, by: str, payload: bytes) -> bytes:
    return "\n".join([VERSION, kind, by, ""]).encode() + payload


def _kinds() -> tuple[Any, Any]:
    parts = cryptography()
    return parts.asymmetric.x25519, parts.asymmetric.ed25519


def _refused(what: str, rule: str, found: str) -> RunFolderError:
    return RunFolderError(what, rule, found=found, fix=OTHERS)
