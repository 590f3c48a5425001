"""Studies: a grid of runs from one TOML file, killed and started again at will, with one report at the end.

toml_table  one table of the file, key by key          rows        a source's rows as a cohort
sources     [[data]]: tables and their outcomes        folder      where everything lies; names and test persons
design      the file → a checked grid of cells         cell        one cell = one run folder, in any process
measure     models of real rows, once; further parts   run         which cell runs when, what is written meanwhile
progress    how it stands with every cell              status      the same, read from the folder
external    results that other machines made of it     forecast    what a study will take
accounts    what was read of the same patients         results     all scores, one row each
report      the results → Markdown and a page         grid, comparison  the page: every cell; which method when
"""

from distcondense.study.design import Cell, Study
from distcondense.study.external import ExternalResults
from distcondense.study.forecast import forecast
from distcondense.study.report import write_report
from distcondense.study.run import LocalTasks, Tasks, plan, run_study, run_tasks
from distcondense.study.status import Status

__all__ = [
    "Cell",
    "ExternalResults",
    "LocalTasks",
    "Status",
    "Study",
    "Tasks",
    "forecast",
    "plan",
    "run_study",
    "run_tasks",
    "write_report",
]
