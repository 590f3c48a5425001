"""Peers: other people's ways to make a private table or model, as methods of a study, beside ours on the same persons.

    python -m benchmarks.peers build dpmm            an environment of its own, pinned, outside the checkout
    python -m benchmarks.peers list                  which there are, and which are built

In a study file `modules = ["benchmarks.peers"]` makes them known; each is then a row like any method's:

    dpmm-aim, dpmm-mst, dpmm-privbayes      dpmm 0.1.9 (SAS), in its own environment
    smartnoise-aim, smartnoise-mst          smartnoise-synth 1.0.8 (OpenDP), in its own environment
    dp-ebm                                  interpret-core 0.7.8: a model, not a table
    naive-bayes, marginals                  by hand, through our gate: noisy histograms by class; of columns alone
    tab-pe                                  by hand, through our gate: private evolution for tables (2026)
    random-rows                             real rows: no privacy at all

All of them get the public schema and nothing else besides rows: numbers are cut into public cells and categories are
codes before a peer sees them (coding.py), so none infers a bound or a category from patients. A peer's ε is its own
account of its own mechanism (`as-published`): its authors prove it, for rows; this project has neither proved nor
audited their code. Where persons have several rows a peer gets one of each, so that its rows are persons.
"""

from __future__ import annotations

from distcondense.methods import base


def register() -> None:
    """Make the peers known as methods; again without harm."""
    from benchmarks.peers.by_hand import BY_HAND
    from benchmarks.peers.elsewhere import ELSEWHERE
    from benchmarks.peers.tab_pe import TabPE

    for method in (*ELSEWHERE, *BY_HAND, TabPE()):
        base.register(method)
