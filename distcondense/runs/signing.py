"""Signatures of releases that other programs check too: a DSSE envelope around an in-toto statement over all files.

The statement has the layout of OpenSSF Model Signing (v1.0): the SHA-256 of every file of the release, and one digest
over all of these. The envelope is signed with Ed25519 (package `cryptography`, extra `sign`) and lies beside the
statement of privacy. A fingerprint of a public key is SHA-256 of its raw bytes, in base64, as `ssh-keygen` writes it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from distcondense.errors import ModelError, RunFolderError, brief, os_errors
from distcondense.outside import parse_json
from distcondense.privacy.binding import SIGNATURE, file_hash
from distcondense.privacy.verify import MISSIGNED, NO_SIGNATURE, SIGNED, UNCHECKED, Verified, statement_file
from distcondense.runs.files import draft_of, write_whole
from distcondense.runs.release import verify_tables

PRIVATE_KEY, PUBLIC_KEY = "private.pem", "public.pem"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
TO_CHECK = (
    f"there is a signature ({SIGNATURE}), which was not checked: that needs the signer's public key, got from them by "
    "another way than this release, and --key PUBLIC.pem{}"
)


def verify_release(path: Path, *, key: Path | None = None) -> Verified:
    """`verify_tables`, and the signature: checked with a key; without one it is said that there is one.

    Parameters
    ----------
    path : Path
        A run folder, its release folder or a privacy.json.
    key : Path, optional
        A public key in PEM format.

    Returns
    -------
    Verified

    Raises
    ------
    RunFolderError
        Where there is no release, or the key is none.
    """
    public = None if key is None else _load(key, public=True)
    found, file = verify_tables(path), statement_file(path)
    there = file.with_name(SIGNATURE).is_file()
    if public is not None:
        wrong, notes = _check(file.parent, public)
        state = (MISSIGNED if wrong else SIGNED) if there else NO_SIGNATURE
        return replace(found.plus(wrong, notes), signature=state)
    return replace(found.plus([], [TO_CHECK.format(_claimed(file.parent))]), signature=UNCHECKED) if there else found


def make_keys(folder: Path) -> str:
    """A new pair of keys: `private.pem`, for its owner only, and `public.pem`, for everybody; its fingerprint.

    A private key that lies there alone, as a kill leaves it, gets its public half.
    """
    ed25519, serialization = _cryptography()
    public_file, private_file = folder / PUBLIC_KEY, folder / PRIVATE_KEY
    if public_file.exists():
        raise RunFolderError(str(public_file), "must be new", found="a file", fix="choose another folder")
    alone = private_file.exists()
    key = _load(private_file, public=False) if alone else ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    folder.mkdir(parents=True, exist_ok=True)
    if not alone:
        write_whole(private_file, lambda draft: draft.write_bytes(private), mode=0o600)
    write_whole(public_file, lambda draft: draft.write_bytes(public))
    return fingerprint(key.public_key())


def fingerprint(public: Any) -> str:
    """SHA256:… of a public key."""
    digest = hashlib.sha256(public.public_bytes_raw()).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def sign(path: Path, key: Path) -> Path:
    """Sign all files of a release that verifies; the envelope's file."""
    private = _load(key, public=False)
    file = statement_file(path)
    envelope = file.with_name(SIGNATURE)
    with os_errors(f"file {brief(file)}", "must be writable", RunFolderError):
        draft_of(envelope).unlink(missing_ok=True)  # what a kill left: it is no part of the release
    if not verify_tables(path).holds:
        raise RunFolderError(
            str(file), "must verify before it is signed", found="contradictions", fix="see distcondense privacy verify"
        )
    payload = json.dumps(statement_over(file.parent), sort_keys=True).encode()
    signed = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {
                "keyid": fingerprint(private.public_key()),
                "sig": base64.b64encode(private.sign(encoded(payload))).decode(),
            }
        ],
    }
    text = json.dumps(signed, indent=2) + "\n"
    write_whole(envelope, lambda draft: draft.write_text(text, encoding="utf-8"))
    return envelope


def statement_over(folder: Path) -> dict[str, Any]:
    """The in-toto statement over the files of a release, the signature apart."""
    digests = {path.name: file_hash(path) for path in sorted(folder.iterdir()) if path.name != SIGNATURE}
    whole = hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests.values())).hexdigest()
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": "release", "digest": {"sha256": whole}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": [SIGNATURE],
            },
            "resources": [{"name": name, "algorithm": "sha256", "digest": digest} for name, digest in digests.items()],
        },
    }


def encoded(payload: bytes) -> bytes:
    """What is signed of a payload (DSSE's pre-authentication encoding)."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _check(folder: Path, public: Any) -> tuple[list[str], list[str]]:
    """(what is wrong with the signature, what was checked)."""
    from cryptography.exceptions import InvalidSignature

    file = folder / SIGNATURE
    if not file.is_file():
        return [f"there is no signature ({SIGNATURE}) to check with the key"], []
    try:
        envelope = parse_json(file.read_bytes())
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = [base64.b64decode(one["sig"], validate=True) for one in envelope["signatures"]]
        told = parse_json(payload)
    except (ValueError, KeyError, TypeError):
        return [f"{SIGNATURE} is no DSSE envelope around an in-toto statement"], []
    for signature in signatures:
        try:
            public.verify(signature, encoded(payload))
        except InvalidSignature:
            continue
        if told != statement_over(folder):
            return [f"{SIGNATURE} was made for other files"], []
        signed = [one["name"] for one in told["predicate"]["resources"]]
        by = f"the holder of the key with the fingerprint {fingerprint(public)}"
        return [], [f"signed by {by}: all {len(signed)} files, {', '.join(signed)}"]
    return [f"{SIGNATURE} was made with another key"], []


def _claimed(folder: Path) -> str:
    """Whose key an envelope says it was made with; nothing where it says no fingerprint."""
    try:
        keys = [one["keyid"] for one in parse_json((folder / SIGNATURE).read_bytes())["signatures"]]
    except (ValueError, KeyError, TypeError, OSError):
        return ""
    told = [key for key in keys if isinstance(key, str) and re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", key)]
    return f"; it says that it was made with the key of fingerprint {', '.join(told)}" if told else ""


def _load(key: Path, *, public: bool) -> Any:
    ed25519, serialization = _cryptography()
    if not key.is_file():
        raise RunFolderError(f"key {key}", "must be a file", found="none", fix="distcondense privacy keygen FOLDER")
    try:
        if public:
            found = serialization.load_pem_public_key(key.read_bytes())
        else:
            found = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except Exception:  # ValueError, TypeError (a password), UnsupportedAlgorithm: none of them may quote a key
        found = None
    if not isinstance(found, ed25519.Ed25519PublicKey if public else ed25519.Ed25519PrivateKey):
        name = PUBLIC_KEY if public else PRIVATE_KEY
        raise RunFolderError(
            f"key {key}",
            f"must be an Ed25519 {Path(name).stem} key in PEM format without a password",
            found="something else",
            fix=f"the {name} that distcondense privacy keygen writes",
        )
    return found


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise ModelError(
            "signatures",
            "need the package cryptography",
            found="no such package",
            fix="pip install 'distcondense[sign]'",
        ) from None
    return ed25519, serialization
