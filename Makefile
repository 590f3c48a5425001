# make demo | quick | test | exhaustive | lint | docs | bench: each sets up .venv first, from the pinned versions in constraints.txt
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export NUMBA_NUM_THREADS ?= 2
export OMP_NUM_THREADS ?= 2
# threads that wait give their core away: spinning ones fight with everything else on a busy machine
export OMP_WAIT_POLICY ?= passive

.PHONY: demo quick test exhaustive ray-matrix lint docs bench native clean
.DEFAULT_GOAL := demo

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@# a plain path: the finder that was installed comes before PYTHONPATH and before a job's own copy of the package
	echo "$(CURDIR)" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/_editable_skbc_distcondense.pth"
	touch $@

demo: $(VENV)/.ready
	$(BIN)/distcondense demo --out demo-run --force

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# what one runs while working: no whole runs, no clusters, no attacks
quick: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --quick

# sweeps of which `make test` has a representative part: every broken build, kill and neighbour, 20,000 hostile cases
exhaustive: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -m exhaustive
	$(BIN)/python -m tests.fuzz --cases 20000 --at-once 2
	$(BIN)/python -m tests.fuzz.kills --all
	$(BIN)/python -m benchmarks.stability

# the newest releases of Ray on the registry, by the tests that guard what we lean on in it; a quarter of an hour each
ray-matrix: $(VENV)/.ready
	$(BIN)/python -m tests.cluster.ray_matrix --newest 3

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the site, strictly, with its notebooks run: open site/index.html
docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(VENV)/.ready
	$(BIN)/distcondense bench --quick

native: $(VENV)/.ready
	$(BIN)/python -m distcondense.kernels.native build

clean:
	rm -rf $(VENV) demo-run build dist site *.egg-info
