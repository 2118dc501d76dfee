# Two commands matter: `make demo` and `make test`. Every target sets up what it needs.
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready

E2E    := $(VENV)/.e2e
PEERS  := $(VENV)/.peers

.PHONY: python demo test lint e2e bench torture clean help
help:
	@echo "make demo     the story and the numbers, on a scratch folder, under 30 seconds"
	@echo "make test     lint, types, tests, and a short torture run"
	@echo "make e2e      the hooks inside the real hosts, driven by a scripted model on loopback"
	@echo "make torture  the long proof: real processes, outsiders of every kind, kill -9 (SECONDS=, SEED=)"
	@echo "make bench    speed and memory as ratios within one run"
	@echo "make lint     ruff and mypy only"

python:
	@$(PYTHON) -c 'import sys; sys.exit("noclobber needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=...") if sys.version_info < (3, 11) else None'

$(READY): pyproject.toml requirements-dev.txt | python
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -e ".[all]"
	@touch $(READY)

# From the checkout as it is: the demo needs nothing but Python, so nobody waits for an installation.
demo: python
	@PYTHONPATH=src $(PYTHON) -m noclobber demo

lint: $(READY)
	$(PY) -m ruff check src tests torture bench
	$(PY) -m ruff format --check src tests torture bench
	$(PY) -m mypy

# Two workers: most of the time goes into waiting for processes that the tests start.
test: lint
	$(PY) -m pytest -n 2 --dist loadgroup --ignore tests/e2e

$(E2E): $(READY) requirements-e2e.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-e2e.txt
	@touch $(E2E)

e2e: $(E2E)
	$(PY) -m pytest tests/e2e

$(PEERS): $(READY) requirements-bench.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	@touch $(PEERS)

torture: $(PEERS)
	$(PY) -m torture
	$(PY) -m torture --lock

bench: $(PEERS)
	$(PY) -m bench

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
