"""`python -m benchmarks.peers build NAME … | list | check PEER --data NAME --epsilon 1000`: the peers' environments."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.peers import environments


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", choices=("build", "list", "check"))
    options.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(environments.NAMES)}; all if not said"
    )
    options.add_argument("--where", type=Path, help=f"the folder of environments; {environments.home()} if not said")
    options.add_argument("--data", default="obesity", help="check: which table")
    options.add_argument("--epsilon", type=float, default=1000.0, help="check: of the peer's own account, as-published")
    said = options.parse_args()
    if said.what == "check":
        from benchmarks.peers.checked import check

        for name in said.names:
            check(name, said.data, said.epsilon)
        return
    for name in said.names or environments.NAMES:
        if name not in environments.NAMES:
            options.error(f"no peer {name!r}: there are {', '.join(environments.NAMES)}")
        if said.what == "build":
            environments.build(name, said.where)
        python = environments.python_of(name, said.where)
        print(f"{name}: {python if python.exists() else 'not built'}")


if __name__ == "__main__":
    main()
