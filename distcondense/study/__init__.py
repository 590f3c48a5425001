"""Studies: a grid of runs from one TOML file, killed and started again at will, with one report at the end.

toml_table  one table of the file, key by key          rows        a source's rows as a cohort
sources     [[data]]: tables and their outcomes        folder      where everything lies, and what it is called
design      the file → a checked grid of cells         cell        one cell = one run folder, in any process
measure     models of real rows, once; further parts   run         which cell runs when, what is written meanwhile
progress    how it stands with every cell              accounts    what was read of the same patients
results     all scores, one row each                   external    results that other machines made of it
report      the results as Markdown and as a page      comparison  which method when
forecast    what a study will take
"""

from distcondense.study.design import Cell, Study
from distcondense.study.external import ExternalResults
from distcondense.study.forecast import forecast
from distcondense.study.progress import Status
from distcondense.study.report import write_report
from distcondense.study.run import LocalTasks, Tasks, plan, run_study, run_tasks

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
