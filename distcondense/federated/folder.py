"""Messages as files in a folder that all parties can read and write. A file appears whole, and is never changed.

agreement · set · closed              the coordinator's
joined/NAME                           each site's
rounds/000012/question                the coordinator's
rounds/000012/NAME                    each site's masked answer
release/                              the coordinator's, at the end
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distcondense.errors import RunFolderError
from distcondense.federated import session as kinds
from distcondense.federated.messages import read_message, write_message

POLL_SECONDS = (0.002, 0.05)  # between two looks at the folder: at first, and at most


class WaitingError(RunFolderError):
    """Somebody else has to do something first; the same command goes on after that."""


class SharedFolder:
    """A folder between the parties.

    `wait`: look again until what is missing is there, and call `on_wait` each time; else `WaitingError`.
    """

    members: tuple[str, ...] = ()  # of the set, once it is known

    def __init__(self, path: Path, *, wait: bool = False, on_wait: Callable[[], None] = lambda: None) -> None:
        self.path, self.wait, self.on_wait = path, wait, on_wait
        self.name = str(path)

    def get(self, *names: str) -> bytes:
        """A message that must be there, or will be."""
        self._until(lambda: self.has(*names), f"message {'/'.join(names)}")
        return self._read(*names)

    def has(self, *names: str) -> bool:
        """Whether it is there."""
        return self.path.joinpath(*names).exists()

    def put(self, message: bytes, *names: str) -> None:
        """A message; the same may be put again, another one under its name is refused."""
        if not self.has(*names):
            self._write(message, *names)
        elif self._read(*names) != message:
            raise RunFolderError(
                f"message {'/'.join(names)}",
                "must not be there already",
                found="another message under its name",
                fix="use a folder of its own for each session, and a name of its own for each site",
            )

    def joined(self) -> dict[str, bytes]:
        """The messages of sites that joined, by their names."""
        folder = self.path / "joined"
        names = sorted(file.name for file in folder.iterdir() if "." not in file.name) if folder.is_dir() else []
        return {name: read_message(folder / name) for name in names}

    def ask(self, number: int, message: bytes) -> Mapping[str, bytes]:
        """A question, and the answers of all sites of the set: `coordinator.Exchange`."""
        self.put(message, *round_name(number, kinds.QUESTION))
        return {name: self.get(*round_name(number, name)) for name in self.members}

    def until(self, *either: tuple[str, ...]) -> tuple[str, ...]:
        """The first of these messages that is there."""
        self._until(lambda: any(self.has(*names) for names in either), f"message {'/'.join(either[0])}")
        return next(names for names in either if self.has(*names))

    def _read(self, *names: str) -> bytes:
        return read_message(self.path.joinpath(*names))

    def _write(self, message: bytes, *names: str) -> None:
        write_message(self.path.joinpath(*names), message, synced=False)  # its sender has it in a folder of its own

    def _until(self, there: Callable[[], bool], what: str) -> None:
        pause, most = POLL_SECONDS
        while not there():
            if not self.wait:
                raise WaitingError(
                    what, "is needed before this can go on", found="no such file yet", fix="the same command later"
                )
            self.on_wait()
            time.sleep(pause)
            pause = min(most, pause * 1.2)


def round_name(number: int, name: str) -> tuple[str, str, str]:
    """Where a message of a round lies."""
    return "rounds", f"{number:06d}", name
