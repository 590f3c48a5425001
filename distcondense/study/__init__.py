"""Studies: a grid of runs from one TOML file, killed and started again at will, with one report at the end.

entries  one table of the file, key by key           rows      a source's rows as a cohort
sources  [[data]]: tables and their outcomes         folder    where everything lies; names and test persons
design   the file → a checked grid of cells          cell      one cell = one run folder, in any process
measure  models of real rows, once; further parts    run       which cell runs when, what is written meanwhile
board    how it stands with every cell               status    the same, read from the folder
brought  what other machines found of it
spent    what was read of the same patients          forecast  what a study will take
tidy     all scores, one row each                    verdict   which method when
report, page   the tidy table → Markdown, a page
"""

from distcondense.study.brought import Brought
from distcondense.study.design import Cell, Study
from distcondense.study.forecast import forecast
from distcondense.study.report import write_report
from distcondense.study.run import LocalTasks, Tasks, plan, run_study, run_tasks
from distcondense.study.status import Status

__all__ = [
    "Brought",
    "Cell",
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
