"""Studies: a grid of runs from one TOML file, killed and started again at will, with one report at the end.

design  the file → a checked grid of cells           cell    one cell = one run folder, in any process
run     which cell runs when; the live table         report  all cells → tidy table, Markdown, plots
"""

from distcondense.study.design import Cell, Study
from distcondense.study.report import write_report
from distcondense.study.run import LocalTasks, Tasks, plan, run_study, run_tasks

__all__ = ["Cell", "LocalTasks", "Study", "Tasks", "plan", "run_study", "run_tasks", "write_report"]
