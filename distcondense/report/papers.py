"""Every paper that explains a release, by its file's name: what `write_release` puts beside the table.

A new paper is one module that makes a text of a run's sets, and one line here. A paper may read what is released and
nothing else; `tests/runs/test_release.py` holds it to that, byte by byte.
"""

from __future__ import annotations

from distcondense.report.datasheet import datasheet
from distcondense.report.manual import manual
from distcondense.report.picture import picture
from distcondense.report.release_page import released_page
from distcondense.runs.release import DATASHEET, MANUAL, PAGE, PICTURE
from distcondense.runs.result import Papers

PAPERS: Papers = {MANUAL: manual, DATASHEET: datasheet, PICTURE: picture, PAGE: released_page}
