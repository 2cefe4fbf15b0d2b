# `make lab` to study, `make test` to check a change; `make help` lists the rest.
# Options: PYTHON=python3.11  PORT=8890  RESET=04  TORCH_INDEX=<address of a package index to take torch from>

# torch's idle threads sleep: by default they spin, and take the cores from the ranks.
export OMP_WAIT_POLICY ?= PASSIVE

PYTHON ?= python3
PORT =
RESET =
TORCH_INDEX =

SETUP = $(PYTHON) tools/setup.py
TEST = $(SETUP) run --torch-index "$(TORCH_INDEX)" --extra test
BENCH = $(SETUP) run --torch-index "$(TORCH_INDEX)" --extra test --extra bench

.PHONY: help lab test check style soak bench pins clean python

help:
	@echo "make lab      install, copy the notebooks to work/ and open JupyterLab (PORT=8890, RESET=04)"
	@echo "make test     everything CI runs"
	@echo "make check    the part of it that starts no ranks: about 2 minutes"
	@echo "make soak     faults, repeated many times"
	@echo "make bench    our launcher beside others"
	@echo "make clean    remove .venv and caches; your work/ stays"

lab: python
	@$(SETUP) lab --port "$(PORT)" --reset "$(RESET)" --torch-index "$(TORCH_INDEX)"

# Two processes share the tests: much of them is waiting. The labs run alone, since their seconds are counted.
PYTEST = pytest -n 2 --dist loadfile --no-loadscope-reorder

test: style
	$(TEST) $(PYTEST)
	$(TEST) pytest --nbval-lax --nbval-current-env --nbval-cell-timeout=120 labs

# Whatever starts ranks, kernels or a browser waits for `make test`.
REAL = engine browser bench training parallel
check: style
	$(TEST) $(PYTEST) -m "not slow and not soak and not browser" $(REAL:%=--ignore=tests/%)

style: python
	$(TEST) ruff check .
	$(TEST) ruff format --check .
	$(TEST) mypy
	$(TEST) labs/build.py --check

soak: python
	$(TEST) pytest -m soak

bench: python
	$(BENCH) bench.launch

# Write down what is in a .venv that passed `make test` and `make bench`.
pins: python
	$(BENCH) tools/pins.py > .venv/pins.txt
	mv .venv/pins.txt constraints.txt

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache artifacts build lablib.egg-info
	find lablib tests tools labs bench -name __pycache__ -prune -exec rm -rf {} +

python:
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no $(PYTHON) here; install Python 3.10 or newer, or name one: make lab PYTHON=python3.11" >&2; exit 1; }
