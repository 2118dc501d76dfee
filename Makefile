# Two commands matter: `make demo` and `make test`. Every target sets up what it needs.
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready

.PHONY: demo test lint bench torture clean help
help:
	@echo "make demo     the story and the numbers, on a scratch folder, under 30 seconds"
	@echo "make test     lint, types, tests, and a short torture run"
	@echo "make torture  the long proof: real processes, outsiders of every kind, kill -9 (SECONDS=, SEED=)"
	@echo "make bench    speed and memory as ratios within one run"
	@echo "make lint     ruff and mypy only"

$(READY): pyproject.toml requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit("noclobber needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt -e ".[all]"
	@touch $(READY)

demo: $(READY)
	$(PY) -m noclobber demo

lint: $(READY)
	$(PY) -m ruff check src tests torture bench
	$(PY) -m ruff format --check src tests torture bench
	$(PY) -m mypy

test: lint
	$(PY) -m pytest

torture: $(READY)
	$(PY) -m torture

bench: $(READY)
	$(PY) -m bench

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
