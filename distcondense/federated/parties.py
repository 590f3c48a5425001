"""What each party does, step by step: the four commands. Each may be stopped at any time and said again."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distcondense.cluster.config import Cluster
from distcondense.cluster.shards import half_of_memory
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable, is_large
from distcondense.data.schema import Schema
from distcondense.data.tables import is_uri
from distcondense.errors import RunFolderError, SettingsError, os_errors
from distcondense.federated import session as kinds
from distcondense.federated.accounting import Sharing
from distcondense.federated.agreement import Agreement, with_tuples
from distcondense.federated.coordinator import SummedRows, summed_table
from distcondense.federated.folder import SharedFolder, WaitingError, round_name
from distcondense.federated.https import HttpsFolder
from distcondense.federated.messages import (
    COORDINATOR,
    OwnKeys,
    check_name,
    digest,
    payload_of,
    plain_bytes,
    write_message,
)
from distcondense.federated.session import SiteSession, agreement_of, join_payload, missing
from distcondense.federated.site import Site, check_table, opened_site
from distcondense.methods.base import Context, Progress, no_progress
from distcondense.methods.private.condense import condense
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.outcomes.base import Labelled
from distcondense.outcomes.measures import title
from distcondense.outside import parse_json, read_text
from distcondense.privacy.accounts import accounts_of
from distcondense.privacy.binding import STATEMENT, file_hash
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.odometer import ChargedRun, Odometer
from distcondense.privacy.rows import ROWS_ALL_MAX
from distcondense.privacy.verify import verify
from distcondense.runs.files import write_json
from distcondense.runs.folder import RunFolder
from distcondense.runs.reading import load
from distcondense.runs.result import Result, Results, table_of
from distcondense.runs.saving import write_run

PARTY, KEYS = "party.json", "keys.json"
ACCOUNTS = "Each site charged it to an account of its own, and refuses over its own cap."
Log = Callable[[str], None]
Place = str | Path  # of the messages: a folder, or where a coordinator serves one (https://…)


def _silent(line: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Own:
    """A party's own folder, which nobody else reads."""

    path: Path

    @property
    def keys(self) -> OwnKeys:
        return OwnKeys.from_file(self.path / KEYS)

    @property
    def run(self) -> RunFolder:
        """Ledger, coins and, of the coordinator, the release."""
        return RunFolder(self.path / "run")

    @property
    def messages(self) -> Path:
        """Questions and answers, stored before they are sent."""
        return self.path / "messages"

    @property
    def party(self) -> dict[str, Any]:
        """Who this is."""
        file = self.path / PARTY
        if not file.is_file():
            raise RunFolderError(
                f"folder {self.path}",
                "must be a party's own",
                found=f"no {PARTY}",
                fix="distcondense federate init (the coordinator) or join (a site)",
            )
        try:
            return dict(parse_json(read_text(file, PARTY, RunFolderError)))
        except (ValueError, TypeError):
            raise RunFolderError(PARTY, "must be as it was written", found="a damaged file") from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing else answers or asks out of this folder meanwhile, however this process ends."""
        with os_errors(f"folder {self.path}", "must be readable", RunFolderError):
            folder = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(
                    f"folder {self.path}",
                    "must be used by one command at a time",
                    found="another one at work in it",
                    fix="wait for it, then say this one again",
                ) from None
            yield
        finally:
            os.close(folder)

    def become(self, party: Mapping[str, Any]) -> None:
        """Note who this is; one that is somebody already stays so."""
        with os_errors(f"folder {self.path}", "must be writable", RunFolderError):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (self.path / PARTY).exists() and self.party != dict(party):
            raise RunFolderError(
                f"folder {self.path}", "must be new, or this party's", found="another party's", fix="another --own"
            )
        write_json(self.path / PARTY, dict(party))


def folder_at(
    place: Place, tls: Path | None, *, wait: bool = False, on_wait: Callable[[], None] = lambda: None
) -> SharedFolder:
    """Where the messages are: a folder, or one that a coordinator serves over HTTPS."""
    if not is_uri(place):
        return SharedFolder(Path(place), wait=wait, on_wait=on_wait)
    if not str(place).startswith("https://") or tls is None:
        raise SettingsError(
            "folder", "of messages at an address needs https:// and --tls", found="another address, or no certificates"
        )
    return HttpsFolder(str(place), tls, wait=wait, on_wait=on_wait)


# -- init: the coordinator --------------------------------------------------------------------------------------------


def init(
    shared: Path,
    own: Path,
    schema: Schema,
    reading: Mapping[str, Any],
    options: PrivateOptions,
    sharing: Sharing,
    persons: int = ROWS_ALL_MAX,
) -> Agreement:
    """Propose an agreement: the coordinator's first message."""
    folder = SharedFolder(shared)
    if folder.has(kinds.AGREEMENT):
        raise RunFolderError(
            f"folder {shared}", "must be new for a session", found="an agreement", fix="another folder"
        )
    home = Own(own)
    home.become({"role": COORDINATOR})
    keys = home.keys
    agreement = Agreement.propose(keys.public()["signing"], schema, reading, options, sharing, persons)
    folder.put(keys.sealed(kinds.AGREEMENT, COORDINATOR, agreement.payload), kinds.AGREEMENT)
    return agreement


# -- join: a site -----------------------------------------------------------------------------------------------------


def join(
    shared: Place,
    own: Path,
    table: str,
    name: str,
    *,
    account: Path | None = None,
    reading: Mapping[str, Any] | None = None,
    tls: Path | None = None,
) -> Agreement:
    """Read the table against the agreement; what does not fit is said here. Then send this site's public keys."""
    check_name(name)
    folder, home = folder_at(shared, tls), Own(own)
    agreement = agreement_of(folder.get(kinds.AGREEMENT))
    named = None if account is None else str(account.absolute())
    place = table if is_uri(table) else str(Path(table).absolute())  # the next command may come from elsewhere
    party = {"role": "site", "name": name, "table": place, "account": named, "reading": dict(reading or {})}
    cohort = read_table(agreement, party)
    check_table(cohort, agreement)
    if (charged := charged_run(agreement, party, cohort)) is not None:
        charged.check()
    home.become({**party, "agreement": agreement.digest})
    keys = home.keys
    folder.put(keys.sealed(kinds.JOIN, name, join_payload(agreement, keys)), "joined", name)
    return agreement


def read_table(agreement: Agreement, party: Mapping[str, Any], *, batches: bool = False) -> Cohort | LargeTable:
    """A site's table, read as was agreed; how its CSV is written is the site's own business.

    In batches where it is a folder, would not fit memory, or is to be.
    """
    table, how = party["table"], {**agreement.how, **with_tuples(party["reading"])}
    if batches or is_large(table, half_of_memory()):
        return LargeTable.from_path(table, **how)
    return Cohort.from_file(table, **how)


def charged_run(
    agreement: Agreement, party: Mapping[str, Any], table: Cohort | LargeTable, log: Log = _silent
) -> ChargedRun | None:
    """What this site's account is charged: all that the plan may ask, under the session's name."""
    named = None if party["account"] is None else Odometer.open(party["account"])
    kept = accounts_of(named, table.read_from)
    if not kept.odometers:
        return None
    options = agreement.private_options
    return ChargedRun(
        kept.odometers,
        agreement.session,
        agreement.prepared.planned,
        method="private",
        guarantee=options.promise,
        about=f"with {agreement.sites - 1} other sites",
        on_charge=lambda path: log(f"charged: {path}"),
    )


# -- round: all of them -----------------------------------------------------------------------------------------------


def round_(
    shared: Place,
    own: Path,
    *,
    keys: str = "",
    tls: Path | None = None,
    wait: bool = False,
    on_wait: Callable[[], None] = lambda: None,
    log: Log = _silent,
    progress: Progress = no_progress,
    cluster: Cluster | None = None,
    memory: int | None = None,
) -> str:
    """Do what is due: ask, or answer. What is to be done next, in words.

    `cluster`, `memory`: where a site's rows lie while it answers, and the bytes that they may take; they are read in
    batches then.
    """
    home, folder = Own(own), folder_at(shared, tls, wait=wait, on_wait=on_wait)
    coordinates = home.party["role"] == COORDINATOR
    if coordinates and (cluster is not None or memory is not None):
        raise SettingsError("--ray and --memory", "are about rows: the coordinator has none", fix="leave them out")
    with home.alone():
        if coordinates:
            return _coordinate(home, folder, log, progress)
        return _answer(home, folder, keys, log, cluster, memory)


def _coordinate(home: Own, folder: SharedFolder, log: Log, progress: Progress) -> str:
    session = set_of_sites(home, folder)
    log(f"fingerprint of the set of sites: {session.fingerprint}")
    prepared = session.agreement.prepared
    rows, context = _rows(home, folder, session), _context(home, session.agreement, log, progress)
    _claim(home, session)
    fit_private(
        summed_table(rows, context.ledger()),
        prepared.cells,
        prepared.plan,
        prepared.side,
        lambda done, of: progress(doing="asking sites", step=done, steps=of),
    )
    log(f"{rows.rounds} questions, {rows.received:,} bytes received")
    return "all questions are answered: distcondense federate close makes the release"


def set_of_sites(home: Own, folder: SharedFolder) -> SiteSession:
    """The set as it was signed; where it was not yet, the coordinator signs it, of the sites that have joined."""
    message = folder.get(kinds.AGREEMENT)
    keys, agreement = home.keys, agreement_of(message)
    if agreement.coordinator != keys.public()["signing"]:
        raise RunFolderError("agreement", "must be this coordinator's", found="another's", fix="check both folders")
    if not folder.has(kinds.SET):
        there = folder.joined()
        if left := missing(agreement, list(there)):
            raise WaitingError(
                "sites", f"must have joined, {agreement.sites} of them", found=f"{left} missing", fix="wait for them"
            )
        session = SiteSession.of_joined(agreement, there)
        folder.put(keys.sealed(kinds.SET, COORDINATOR, session.payload), kinds.SET)
    session = SiteSession.from_messages(message, folder.get(kinds.SET))
    folder.members = tuple(sorted(session.members))
    return session


def _rows(home: Own, folder: SharedFolder, session: SiteSession) -> SummedRows:
    return SummedRows(session, home.keys, folder, home.messages)


def _context(home: Own, agreement: Agreement, log: Log, progress: Progress) -> Context:
    return Context(folder=home.run, run=agreement.session, log=log, progress=progress)


def _claim(home: Own, session: SiteSession) -> None:
    begun = (home.run.internal / "owner.json").exists()
    home.run.claim({"federated": session.digest}, resume=begun, force=False)


def _answer(home: Own, folder: SharedFolder, keys: str, log: Log, cluster: Cluster | None, memory: int | None) -> str:
    with open_site(home, folder, keys, log, cluster, memory) as site:
        name = site.name
        if site.rounds and not folder.has(*round_name(site.rounds - 1, name)):
            folder.put(site.stored(site.rounds - 1), *round_name(site.rounds - 1, name))
        while True:
            question, closed = round_name(site.rounds, kinds.QUESTION), (kinds.CLOSE,)
            try:
                if folder.until(question, closed) == closed:
                    break
            except WaitingError:
                return f"{site.rounds} questions answered; the same command answers the next ones"
            mine = round_name(site.rounds, name)
            if folder.has(*mine):
                raise RunFolderError(
                    f"message {'/'.join(mine)}",
                    "must not be there before this site has answered",
                    found="an answer that its own folder does not have: the folder is an older copy, or not whole",
                    fix="put back the whole folder as it was last; without it this site's session is over",
                )
            folder.put(site.answer(folder.get(*question)), *mine)
    return _end(home, folder, log)


@contextmanager
def open_site(
    home: Own, folder: SharedFolder, keys: str, log: Log, cluster: Cluster | None = None, memory: int | None = None
) -> Iterator[Site]:
    """This site with its rows, once its set of sites is confirmed."""
    party = home.party
    session = SiteSession.from_messages(folder.get(kinds.AGREEMENT), folder.get(kinds.SET))
    if session.agreement.digest != party["agreement"]:
        raise RunFolderError("agreement", "must be the one this site joined", found="another", fix="check the folder")
    if folder.has(kinds.CLOSE) and not home.keys.agreeing:
        raise RunFolderError("session", "must be open", found="one that is closed", fix="begin another one")
    _confirmed(home, session, keys)
    table = read_table(session.agreement, party, batches=cluster is not None or memory is not None)
    account = charged_run(session.agreement, party, table, log)
    home.run.internal.mkdir(parents=True, exist_ok=True)
    where: dict[str, Any] = {"cluster": cluster, "memory": memory}
    context = Context(folder=home.run, run=session.agreement.session, log=log, account=account, **where)
    with opened_site(party["name"], session, home.keys, table, context, home.messages) as site:
        yield site


def _confirmed(home: Own, session: SiteSession, keys: str) -> None:
    """Nobody answers before people have compared the keys of all sites."""
    file = home.path / "confirmed"
    if keys:
        if keys.strip().upper() != session.fingerprint:
            raise SettingsError(
                "--keys",
                "must be the fingerprint of the set of sites in this folder, as the other sites read it",
                found="another",
                fix="do not go on: keys in the folder are not those that the others see",
            )
        write_message(file, session.fingerprint.encode())
    if not file.is_file() or file.read_bytes() != session.fingerprint.encode():
        raise SettingsError(
            "--keys",
            "must be said once, after all sites have compared it by another way than this folder",
            found="keys that nobody confirmed",
            fix=f"if all of them read {session.fingerprint}, say --keys {session.fingerprint}",
        )


# -- close ------------------------------------------------------------------------------------------------------------


def close(
    shared: Place, own: Path, *, tls: Path | None = None, log: Log = _silent, progress: Progress = no_progress
) -> str:
    """The coordinator makes the release; a site ends the session."""
    home, folder = Own(own), folder_at(shared, tls)
    if home.party["role"] == COORDINATOR:
        return _release(home, folder, log, progress)
    folder.get(kinds.CLOSE)
    return _end(home, folder, log)


def _release(home: Own, folder: SharedFolder, log: Log, progress: Progress) -> str:
    session = set_of_sites(home, folder)
    rows, run = _rows(home, folder, session), home.run
    if not run.finished:
        _claim(home, session)
        context = _context(home, session.agreement, log, progress)
        result = made(session, context, lambda ledger: summed_table(rows, ledger), log)
        write_run(run, result)
    release = folder.path / "release"
    draft = folder.path / "release.draft"
    with os_errors("release", "must be possible to copy into the shared folder", RunFolderError):
        shutil.rmtree(draft, ignore_errors=True)
        if not release.exists():
            shutil.copytree(run.release, draft)
            draft.rename(release)
    closed = plain_bytes({"set": session.digest, "release": file_hash(run.release / STATEMENT)})
    folder.put(home.keys.sealed(kinds.CLOSE, COORDINATOR, closed), kinds.CLOSE)
    return f"release: {run.release}, and a copy in {release}"


def made(session: SiteSession, context: Context, gate: Callable[[Ledger], Any], log: Log = _silent) -> Result | Results:
    """The condensed sets, with a statement that says how they were made; nothing is measured on patients."""
    agreement = session.agreement
    prepared = agreement.prepared
    sets = condense(None, prepared, context, gate=gate)
    sharing = prepared.sharing
    first = next(iter(sets.values()))
    assert first.details is not None
    persons = "" if sharing.hospitals == 1 else f", at up to {sharing.hospitals} sites"
    privacy = first.privacy
    privacy = replace(
        privacy,
        neighbouring=privacy.neighbouring + persons,
        noise_source=f"{privacy.noise_source}; a part of it at each of {sharing.sites} sites",
        account=ACCOUNTS,
        sites=sharing.words,
        parameters={
            **privacy.parameters,
            "sites": sharing.sites,
            "sites_that_may_collude": sharing.colluding,
            "sites_of_a_person_at_most": sharing.hospitals,
            "mu_if_all_other_sites_collude": privacy.parameters["mu"] * sharing.alone,
        },
    )
    record: dict[str, Any] = {
        "status": "finished",
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": "private",
        "settings": prepared.options.to_dict(),
        "federated": {"sites": sorted(session.members), "agreement": agreement.digest, "set": session.digest},
        "raw": False,
        "privacy": privacy.short(),
        "scores": [],
        "scores_note": "rows are at the sites: what is measured on them stays there",
        "timings_seconds": first.details.timings,
    }
    results = {
        ipc: replace(
            one,
            privacy=privacy,
            details=None,
            identity={"federated": session.digest},
            internal={**record, "ipc": ipc, "rows": len(one.frame)},
        )
        for ipc, one in sets.items()
    }
    if isinstance(prepared.options.ipc, int):
        return next(iter(results.values()))
    return Results(results, internal={**record, "sets": [{"ipc": ipc} for ipc in results]})


def _end(home: Own, folder: SharedFolder, log: Log) -> str:
    """The session is over at this site: the key of its masks goes."""
    session = SiteSession.from_messages(folder.get(kinds.AGREEMENT), folder.get(kinds.SET))
    data = payload_of(folder.get(kinds.CLOSE), kinds.CLOSE, COORDINATOR, session.agreement.coordinator)
    there = folder.has("release", STATEMENT)
    if data.get("set") != session.digest or not there or digest(folder.get("release", STATEMENT)) != data["release"]:
        raise RunFolderError(
            "release", "must be the one that was closed with", found="another", fix="ask the coordinator"
        )
    release = _fetched(home, folder)
    OwnKeys.forget_masks(home.path / KEYS)
    log("the key of this site's masks is gone")
    return f"closed; the release is {release}; {_measured_here(home, session.agreement, release)}"


def _fetched(home: Own, folder: SharedFolder) -> Path:
    """A copy of the release in this party's own folder, which verifies."""
    release = home.path / "release"
    stated = parse_json(folder.get("release", STATEMENT))
    for name in (STATEMENT, *stated["files"]):
        if Path(name).name == name:  # what is no plain name does not verify below
            write_message(release / name, folder.get("release", name))
    if not verify(release).holds:
        raise RunFolderError("release", "must verify", found="contradictions", fix="see distcondense privacy verify")
    return release


def _measured_here(home: Own, agreement: Agreement, release: Path) -> str:
    """A model of the released rows on the persons that this site left out; the number stays in this site's folder."""
    cohort, result = read_table(agreement, home.party), load(release)
    first = next(iter(result.values())) if isinstance(result, Results) else result
    splitting = Context(folder=home.run).holdout_split(agreement.private_options.holdout)
    kind, said = agreement.facts.kind, "nothing was measured: "
    if isinstance(cohort, LargeTable) or first.privacy.answer:
        return said + ("a table that is read in batches" if isinstance(cohort, LargeTable) else "no rows")
    test = splitting.split(cohort).test
    try:
        labelled = Labelled(cohort.outcome.take(test))
        frame = table_of(cohort.features.iloc[test].reset_index(drop=True), cohort.schema, kind, labelled)
        value = first.score(frame[[*cohort.schema.names, *kind.names]])
    except Exception as error:  # too few rows, or one class: what was released is released all the same
        return f"{said}{type(error).__name__}"
    measure = title(kind.measures[0])
    write_json(home.run.internal / "score.json", {"measure": measure, "score": value, "rows": len(test)})
    return f"{measure} of a model of its rows on rows that this site left out: {value:.3f} (not to be handed over)"
