# Two commands matter: `make demo` and `make test`. Every target sets up what it needs.
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check
READY  := $(VENV)/.ready

# RANGES=1 takes the newest versions that requirements-dev.txt allows instead of the locked ones.
RANGES ?=

.PHONY: python demo test lint coverage e2e e2e-bars e2e-latency e2e-table frameworks frameworks-table promises score bench torture hosts nfs faults explore merges torture-approval torture-shell torture-commits torture-undo model fuzz mutants lock packages screenshots release-check clean help docs demo-svg
help:
	@echo "make demo           the story and the numbers, on a scratch folder, under 30 seconds"
	@echo "make demo-svg       the demo once more, and its recording into docs/demo.svg"
	@echo "make docs           the documentation site, into build/site; a dead link or an unknown name fails"
	@echo "make test           lint, types, tests, and a short torture run"
	@echo "make lint           ruff and mypy only"
	@echo "make coverage       the tests once more, with the lines that no test reached"
	@echo "make e2e            the hooks inside the real hosts, driven by a scripted model on loopback"
	@echo "make e2e-bars       many writes of two hosts with an editor that saves, and the latency that hooks add"
	@echo "make e2e-latency    what the hooks add to a call, as the host's model sees it (ONLY=codex)"
	@echo "make e2e-table      make e2e, and its tables of scenarios and latencies into docs/hosts/proven.md"
	@echo "make frameworks     the adapters inside the real agent frameworks, and what their own tools lose (ONLY=deepagents)"
	@echo "make frameworks-table  make frameworks, and its table into docs/frameworks/proven.md"
	@echo "make promises       every promise of the specifications by every way in, and the table into docs/promises.md"
	@echo "make hosts          one lock on three hosts and a server, and one volume with two mounts, with every fault at once; as root (SECONDS=, SEED=)"
	@echo "make nfs            guarded writers on two machines (user-mode Linux) and one NFS volume, without and with a coordinator: kill -9, stops, cuts; says what is missing (SECONDS=, WRITES=, SEED=)"
	@echo "make torture        the long proof: real processes, outsiders of every kind, kill -9, power cuts (SECONDS=, SEED=, KILLS=, CUTS=)"
	@echo "make faults         every system call fails, alone and in pairs: commits, recovery, ledger, locks (MOST=, SEED=)"
	@echo "make explore        real processes through every interleaving of their steps, with kills (SECONDS=, SEED=)"
	@echo "make torture-approval  an editor that saves within milliseconds of a host's write: how often what is lost (TRIALS=, SPREAD_MS=, LOAD=, SEED=)"
	@echo "make torture-shell  commands in the guarded shell, with outsiders and kill -9 (COMMANDS=, AGENTS=, SECONDS=, SEED=)"
	@echo "make torture-commits  agents that commit what they wrote, on one clone (COMMITS=, AGENTS=, SEED=)"
	@echo "make torture-undo   random histories of commands, and an undo of one agent (HISTORIES=, SEED=)"
	@echo "make merges         generated merges and those of a real history, compared with git merge-file; agents on shared files (CASES=, SEED=)"
	@echo "make model          every interleaving of the protocols' models, and of their mutations; needs Spin (docs/proofs.md)"
	@echo "make fuzz           every reader of untrusted input, guided by coverage (SECONDS=, SEED=, ENGINE=own|atheris|both)"
	@echo "make score          what hosts, frameworks and MCP servers lose, alone and with noclobber, into docs/score.*, or of ONLY= into build/score (SEED=, REPETITIONS=)"
	@echo "make bench          speed and memory as ratios within one run"
	@echo "make mutants        change the decisions one by one and see whether a test notices (ONLY=policies)"
	@echo "make lock           renew requirements-dev.lock from the ranges"
	@echo "make packages       plugins and extensions for the hosts, for any machine, into dist/packages"
	@echo "make screenshots    the pictures of the live page, into docs/images; needs Chromium"
	@echo "make release-check  version, changelog, tag, build, and a fresh installation (docs/releasing.md)"
	@echo "make clean          remove everything that these targets made"

python:
	@$(PYTHON) -c 'import sys; sys.exit("noclobber needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=...") if sys.version_info < (3, 11) else None'

# The locked versions, checked by hash. Where they cannot be installed (a mirror without them, a Python
# that is newer than the lock) the ranges do: a development environment only, nothing that we ship.
$(READY): pyproject.toml requirements-dev.txt requirements-dev.lock | python
	$(PYTHON) -m venv $(VENV)
	@if [ -n "$(RANGES)" ] || ! $(PIP) --require-hashes -r requirements-dev.lock; then \
		echo "Not using requirements-dev.lock; installing what requirements-dev.txt allows."; \
		$(PIP) --upgrade -r requirements-dev.txt -e ".[all]"; \
	fi
	$(PIP) --no-deps -e .
	@touch $(READY)

# From the checkout as it is: the demo needs nothing but Python, so nobody waits for an installation.
demo: python
	@PYTHONPATH=src $(PYTHON) -m noclobber demo

demo-svg: python
	@PYTHONPATH=src COLUMNS=80 $(PYTHON) -m noclobber demo --record docs/demo.svg

# An environment of its own: the generator brings many packages, and nothing of ours needs them.
$(VENV)/docs/.ready: requirements-docs.txt | python
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@

docs: $(VENV)/docs/.ready
	$(VENV)/docs/bin/python tools/build_docs.py

lint: $(READY)
	$(PY) -m ruff check src tests torture bench score fuzz tools
	$(PY) -m ruff format --check src tests torture bench score fuzz tools
	$(PY) -m mypy

# Four workers: much of the time goes into waiting for processes that the tests start (7:17 of tests on two cores).
test: lint
	$(PY) -m pytest -n 4 --dist loadgroup --ignore tests/e2e

# Processes that tests start are measured as well, except those that are killed. Some tests count what a process
# imports or keeps open, and fail because of the measurement: the table is what this target is for.
coverage: $(READY)
	$(PY) -m coverage erase
	-$(PY) -m coverage run -m pytest -q -n 2 --dist loadgroup -p no:cacheprovider --ignore tests/e2e --ignore tests/torture
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

$(VENV)/.e2e: $(READY) requirements-e2e.txt
	$(PIP) -r requirements-e2e.txt
	@touch $@

# Real programs on a busy machine: a scenario that fails is run once more, alone, and failing twice counts. Not so the
# tests that count lost work: once is enough there, and nothing runs beside them.
e2e: $(VENV)/.e2e
	$(PY) -m pytest tests/e2e/test_races.py tests/e2e/test_approval.py
	$(PY) -m pytest -n 2 --dist loadgroup tests/e2e --ignore tests/e2e/test_races.py --ignore tests/e2e/test_approval.py || \
		$(PY) -m pytest tests/e2e --last-failed --last-failed-no-failures none

# The bars that take long: 50 writes a session, with an editor that saves; and what the hooks add to a call.
e2e-bars: $(VENV)/.e2e
	NOCLOBBER_E2E_WRITES=50 $(PY) -m pytest --timeout 1800 tests/e2e/test_races.py -k editor
	$(PY) -m tests.e2e.latency

e2e-latency: $(VENV)/.e2e
	$(PY) -m tests.e2e.latency $(ONLY)

e2e-table: $(VENV)/.e2e
	NOCLOBBER_E2E_TABLE=docs/hosts/proven.md $(PY) -m pytest tests/e2e
	NOCLOBBER_E2E_TABLE=docs/hosts/proven.md $(PY) -m tests.e2e.latency

# Each framework in an environment of its own, below $(VENV)/frameworks: their packages are large, and do not agree.
$(VENV)/.uv: $(READY)
	-$(PIP) "uv>=0.5"
	@touch $@

# Real programs, as above: a test in which one was too slow is run once more, alone, and failing twice counts. What a
# test counted, lost work above all, counts at once (tests/frameworks/once_more.py).
frameworks: $(VENV)/.uv
	VENV=$(VENV) $(PY) -m tests.frameworks $(ONLY)

frameworks-table: $(VENV)/.uv
	VENV=$(VENV) $(PY) -m tests.frameworks --write docs/frameworks/proven.md

# Part of `make test` as well, which does not write the page.
promises: $(READY)
	NOCLOBBER_PROMISES=docs/promises.md $(PY) -m pytest -n 2 --dist loadgroup tests/promises --deselect tests/promises/test_page.py::test_the_page_is_up_to_date

score: $(VENV)/.e2e $(VENV)/.uv $(VENV)/.peers
	VENV=$(VENV) $(PY) -m score --write docs

$(VENV)/.peers: $(READY) requirements-bench.txt
	$(PIP) -r requirements-bench.txt
	@touch $@

nfs: $(READY)
	$(PY) -m torture.nfs
	$(PY) -m torture.nfs_sections

hosts: $(READY)
	$(PY) -m torture.server_controls
	$(PY) -m torture.failover
	$(PY) -m torture.hosts
	$(PY) -m torture.sections

torture: $(VENV)/.peers
	$(PY) -m torture --all

faults: $(READY)
	$(PY) -m torture.fault_pairs

explore: $(READY)
	$(PY) -m torture.explore

torture-approval: $(READY)
	$(PY) -m torture.approval

torture-shell: $(READY)
	$(PY) -m torture.shell

torture-commits: $(READY)
	$(PY) -m torture.commits

torture-undo: $(READY)
	$(PY) -m torture.undo

merges: $(READY)
	$(PY) -m torture.merges
	$(PY) -m torture.merge_corpus
	$(PY) -m torture.live_merges

# Says what to install if Spin is missing. One core, some minutes.
model: $(READY)
	$(PY) tools/check_models.py

# Where atheris cannot be installed (macOS, a Python without a wheel), our own engine does it alone.
$(VENV)/.fuzz: $(READY) requirements-fuzz.txt
	-$(PIP) --only-binary :all: -r requirements-fuzz.txt
	@touch $@

fuzz: $(VENV)/.fuzz
	$(PY) -m fuzz

bench: $(VENV)/.peers
	$(PY) -m bench

$(VENV)/.mutants: $(READY) requirements-mutants.txt
	$(PIP) -r requirements-mutants.txt
	@touch $@

mutants: $(VENV)/.mutants
	$(PY) tools/mutants.py $(ONLY)

lock: $(READY)
	$(PIP) "uv>=0.5"
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
		--custom-compile-command "make lock" --upgrade --extra all pyproject.toml requirements-dev.txt -o requirements-dev.lock

packages: $(READY)
	$(PY) -m noclobber install claude-code codex copilot gemini opencode qwen --as plugin --portable --to dist/packages

screenshots: $(READY)
	$(PY) tools/screenshots.py

$(VENV)/.release: $(READY) requirements-release.txt
	$(PIP) -r requirements-release.txt
	@touch $@

release-check: $(VENV)/.release
	$(PY) tools/release_check.py

clean:
	rm -rf $(VENV) build dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
