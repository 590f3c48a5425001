"""Studies: a grid of runs from one TOML file, killed and started again at will, with one report at the end.

entries  one table of the file, key by key           rows    a source's rows as a cohort
sources  [[data]]: tables and their outcomes         cell    one cell = one run folder, in any process
design   the file → a checked grid of cells          run     which cell runs when; the live table
tidy     all scores, one row each                    report, page   the tidy table → Markdown, a page
"""

from distcondense.study.design import Cell, Study
from distcondense.study.report import write_report
from distcondense.study.run import LocalTasks, Tasks, plan, run_study, run_tasks

__all__ = ["Cell", "LocalTasks", "Study", "Tasks", "plan", "run_study", "run_tasks", "write_report"]
