# make demo | quick | test | exhaustive | lint | bench: each sets up .venv first, from the pinned versions in constraints.txt
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export NUMBA_NUM_THREADS ?= 2
export OMP_NUM_THREADS ?= 2
# threads that wait give their core away: spinning ones fight with everything else on a busy machine
export OMP_WAIT_POLICY ?= passive

.PHONY: demo quick test exhaustive lint bench native clean
.DEFAULT_GOAL := demo

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
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

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready
	$(BIN)/distcondense bench --quick

native: $(VENV)/.ready
	$(BIN)/python -m distcondense.kernels.native build

clean:
	rm -rf $(VENV) demo-run build dist *.egg-info
