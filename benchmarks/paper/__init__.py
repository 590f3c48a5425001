"""Thakur et al. 2026, table by table and figure by figure, in one study that stops and goes on.

    python -m benchmarks.paper --minutes 11             what is not there yet, until the time is up
    python -m benchmarks.paper --only seer --seeds 3    some cohorts
    python -m benchmarks.paper --page                   the page of what is there, nothing is run

A cell is one run: cohort × method × reference × records per class × ε × seed. Cells lie in results/paper.json; what is
there is not run again, so the command may be killed and started at will. The page is results/paper.md.

    published     at the ε (as-published) that is printed beside the cell, in legal values
    raw           the same run in real numbers (`--soft`), which is what the paper trains on
    as-printed    `--preset as-printed`, IPC 100
    private       at the ε printed at IPC 100 and at 1, both end-to-end; one run gives all records per class
    figures-…     the sections of `evaluate` for Figures 1 to 5A and Table 5, IPC 100, `published` and `private`
    attributes    Figure 5B: R² of each attribute over five seeds

The page sets each printed cell beside ours, with a word. Our cohorts are not the paper's (hospitals, proteomics and
diabetes are simulated, SEER is another extract), so what is compared is the distance to the model of all real rows:

    reached: at most 0.005 further away than printed · near: at most 0.02 · not reached, and why · not run

Constants of the private method were set with Adult, BRFSS and SEER in view.
"""
