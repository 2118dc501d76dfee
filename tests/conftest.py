"""What the tests share: a workspace folder on a real filesystem, and hashes."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from noclobber.disk import steps
from noclobber.disk.commit import sweep
from tests.rigs.hooks import HookRig
from tests.rigs.schemas import Errors, check_ledgers

# A busy machine is slow at making examples, too. What an example shows is asserted, not how long it took.
try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:
    pass  # The environments of the frameworks have no such tests.
else:
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")

# Hooks that tests run leave no process behind; tests/hook/test_standby.py and the tests in real hosts do.
os.environ["NOCLOBBER_STANDBY"] = "off"

# Whom the user trusts, and what is installed, is nobody's business here, and tests leave nothing of it behind.
_STATE = tempfile.TemporaryDirectory(prefix="noclobber-tests-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name


# A shell that starts a test run in the background lets it ignore Ctrl-C, `nohup` SIGHUP, others more; and every
# process of the tests inherits that, and what is blocked: those that test a signal would wait for ever.
for _signal in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL, signal.SIGSTOP}:
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())


def sha256(data: bytes) -> str:
    """The hash as the API spells it."""
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def _errors_fit_their_schemas(request: pytest.FixtureRequest) -> Iterator[None]:
    """finding C8: an object of the wrong shape fails whichever test made it, unless that is on purpose."""
    if request.node.get_closest_marker("wrong_errors") is not None:
        yield
        return
    errors = Errors()
    with pytest.MonkeyPatch.context() as patch:
        errors.watch(patch)
        yield
    assert errors.wrong == []


@pytest.fixture(autouse=True)
def _nobody_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Displaced files wait for late writers for a second (tests/disk/commit/test_departed.py). Not in tests."""
    monkeypatch.setattr(sweep, "LATE_S", 0.0)


@pytest.fixture(autouse=True)
def _ledgers_fit_their_schema(request: pytest.FixtureRequest) -> Iterator[None]:
    """finding C8: every ledger that a test leaves behind, unless the test broke it on purpose."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is not None and request.node.get_closest_marker("broken_ledger") is None:
        check_ledgers(folder)


class AtStep(Protocol):
    """Install an action for a moment inside a commit; the list fills as it is run."""

    def __call__(self, step: str, action: Callable[[], object], *, times: int = 1) -> list[str]: ...


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty workspace folder."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder.resolve()


@pytest.fixture
def at_step() -> Iterator[AtStep]:
    """Run a function once, at a named moment inside a commit."""

    def install(step: str, action: Callable[[], object], *, times: int = 1) -> list[str]:
        seen: list[str] = []

        def observe(reached: str) -> None:
            if reached == step and len(seen) < times:
                seen.append(reached)
                action()

        steps.observer = observe
        return seen

    yield install
    steps.observer = None


@pytest.fixture(scope="session")
def is_root() -> bool:
    """True where the tests run as root, who may read and write everything."""
    return os.geteuid() == 0


def scratch_on(folder: str) -> str | None:
    """A scratch folder on another filesystem, if there is one that we may write to."""
    try:
        return tempfile.mkdtemp(dir=folder)
    except OSError:
        return None


@pytest.fixture
def small_heap() -> Iterator[None]:
    """Collections look only at what the test makes: whole ones, hundreds of times, took most of the suite's time."""
    gc.collect()  # What earlier tests dropped closes itself now, and not while we count.
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def rig(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HookRig:
    """A project with hooks, and a runtime folder of its own."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.delenv("COPILOT_CLI", raising=False)
    return HookRig(root, runtime)
