"""Runs unit tests in forks of this process, and finds the lines that each test reaches.

In: files of tests, in the tree of the current folder. Out: a `Reach`; whether tests
pass. A fork has TensorFlow imported already. Its output is in tests.txt beside the
tree, its files are in tmp there.
"""

import ast
import dataclasses
import functools
import gc
import importlib
import itertools
import json
import math
import os
import pathlib
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import coverage
import pytest

# A chosen test may take so much CPU time, and more if it takes long when all is well. A
# test that waits for what never comes takes none: other processes take some as well.
CPU_SECONDS_A_TEST, CPU_FACTOR = 10, 10
WALL_SECONDS_A_TEST, WALL_FACTOR = 60, 40
# None of these starts a thread while it is imported: a fork has no other threads.
IMPORTED_FIRST = (
    *("PIL.Image", "duckdb", "fsspec", "hypothesis", "keras", "obstore"),
    "xdist.remote",
)
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


@dataclasses.dataclass(frozen=True)
class Reach:
    """Tells which tests reach a line.

    Args:
        seconds: The CPU-seconds of each test, in the order of the files.
        contexts: Tests and shared fixtures by file and line.
        fixtures: The fixtures of each test.
    """

    seconds: dict[str, float]
    contexts: dict[str, dict[str, list[str]]]
    fixtures: dict[str, list[str]]

    def tests(
        self, path: pathlib.Path, line: int, limit: float = float("inf")
    ) -> dict[str, float]:
        """Returns the tests of a line with their seconds.

        The tests of the line's own module come first, quick tests before slow tests.
        All tests that reach the module test a statement that runs while the module is
        imported. All tests of the room test a statement that no test reaches.

        Args:
            path: The module.
            line: Number of the line.
            limit: A test is left out if the tests before it take more seconds.
        """
        lines = self.contexts.get(str(path), {})
        among = {
            context
            for number in _statement(path, line)
            for context in lines.get(str(number), ())
        } or {context for contexts in lines.values() for context in contexts}
        chosen = [
            test
            for test in self.seconds
            if not among or test in among or not among.isdisjoint(self.fixtures[test])
        ]
        # Tests of one file stay together, as they share fixtures.
        chosen.sort(
            key=lambda test: (
                f"/test_{path.name}::" not in test,
                round(math.log10(self.seconds[test] + 0.001)),
            )
        )
        sums = itertools.accumulate(self.seconds[test] for test in chosen)
        return {
            test: self.seconds[test]
            for test, total in zip(chosen, sums, strict=True)
            if total - self.seconds[test] <= limit
        }


def prepare() -> None:
    """Imports what all forks use, which a fork must not do again."""
    os.environ.update(ENVIRONMENT)
    for name in IMPORTED_FIRST:
        importlib.import_module(name)


def read_reach(path: pathlib.Path, files: Sequence[pathlib.Path]) -> Reach:
    """Reads a `Reach` from a file, which the first call makes by running the tests.

    Args:
        path: The file.
        files: The files of tests.

    Raises:
        SystemExit: If a test fails.
    """
    if not path.exists():
        sys.dont_write_bytecode = False  # all runs share what this one compiles
        if _run_in_fork(lambda: _trace(files, path)) != "survived":
            sys.exit(f"The tests of {path.stem} fail without a mutant: see {_log()}.")
        sys.dont_write_bytecode = True
    return Reach(**json.loads(path.read_text()))


def outcome(tests: dict[str, float]) -> str:
    """Runs tests until the first failure; returns what became of the mutant there.

    Args:
        tests: CPU-seconds by test, see `Reach.tests`.

    Returns:
        "survived" if all tests pass, "killed" or "timed out".
    """
    return _run_in_fork(lambda: _run_tests(tests, ChosenTests(tests)))


@functools.cache
def _statement(path: pathlib.Path, line: int) -> range:
    """Returns the lines of the innermost statement at a line, without its body."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            starts = [part.lineno for part in getattr(node, "body", ())]
            end = min(starts, default=(node.end_lineno or 0) + 1)
            found = range(node.lineno, end) if line < end else range(line, line + 1)
    return found


def _trace(files: Sequence[pathlib.Path], path: pathlib.Path) -> int:
    from tensorflow.python.ops.script_ops import FuncRegistry

    call = FuncRegistry.__call__

    def traced(*arguments: Any) -> Any:
        if not sys.gettrace():  # a thread that TensorFlow started
            sys.settrace(threading.gettrace())
        return call(*arguments)

    FuncRegistry.__call__ = traced
    measured = coverage.Coverage(
        data_file=None, config_file=False, source=["tfpipe", "converters"]
    )
    plugin = Tracer(measured)
    measured.start()
    code = _run_tests(files, plugin)
    measured.stop()
    data = measured.get_data()
    contexts = {
        str(pathlib.Path(file).relative_to(pathlib.Path.cwd())): {
            line: [context for context in contexts if context]
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    reach = Reach(plugin.seconds, contexts, plugin.fixtures)
    path.write_text(json.dumps(dataclasses.asdict(reach)))
    return code


def _log() -> pathlib.Path:
    return pathlib.Path.cwd().with_name("tests.txt")


def _run_in_fork(run: Callable[[], int]) -> str:
    """Runs tests in a fork of this process, until the first failure or a limit."""
    sys.stdout.flush()
    # pytest would remove it when a test needs it, with what that test has patched.
    shutil.rmtree(_log().with_name("tmp"), ignore_errors=True)
    child = os.fork()
    if not child:
        code = 1
        try:
            log = os.open(_log(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.path[:0] = [os.getcwd()]
            code = run()
        finally:
            os._exit(code)
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    if -code in (signal.SIGXCPU, signal.SIGALRM):
        return "timed out"
    return "killed" if code else "survived"


class OnlyWhatIsTested:
    """A plugin of pytest: no limit of CPU time, and nothing that keeps tests in it."""

    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> bool | None:
        """Leaves out the pipeline that saves all later tests some time."""
        if fixturedef.argname != "_first_pipeline":
            return None
        fixturedef.cached_result = (None, fixturedef.cache_key(request), None)
        return True

    def pytest_collection_finish(self) -> None:
        """A mutant that takes more time is the business of this module."""
        sys.modules["tests.unit.conftest"].MAX_CPU_SECONDS_BUSY = float("inf")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """At its end pytest looks through all that is in memory for garbage."""
        gc.freeze()


class Tracer:
    """A plugin of pytest: tells coverage what runs, and takes the times.

    Args:
        measured: The running coverage.
    """

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}
        self.fixtures: dict[str, list[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Notes the fixtures and the CPU time of a test."""
        self._test = item.nodeid
        self._measured.switch_context(self._test)
        before = time.process_time()
        result = yield
        self.seconds[self._test] = time.process_time() - before
        self.fixtures[self._test] = getattr(item, "fixturenames", [])
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """A fixture that tests share runs for all of them."""
        if fixturedef.scope != "function":
            self._measured.switch_context(fixturedef.argname)
        try:
            return (yield)
        finally:
            self._measured.switch_context(self._test)


class ChosenTests:
    """A plugin of pytest: runs chosen tests, and limits their times.

    Args:
        tests: CPU-seconds by node id, in order.
    """

    def __init__(self, tests: dict[str, float]) -> None:
        self._tests = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Takes the chosen tests, in their order."""
        named = {item.nodeid: item for item in items}
        items[:] = [named[test] for test in self._tests if test in named]

    def pytest_sessionstart(self) -> None:
        """Limits the time of the imports."""
        self._limit(0)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Limits the time of a test."""
        self._limit(self._tests[nodeid])

    def _limit(self, seconds: float) -> None:
        limit = time.process_time() + CPU_SECONDS_A_TEST + CPU_FACTOR * seconds
        limits = math.ceil(limit), resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_CPU, limits)
        signal.alarm(math.ceil(WALL_SECONDS_A_TEST + WALL_FACTOR * seconds))


def _run_tests(tests: Iterable[Any], plugin: Tracer | ChosenTests) -> int:
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    options.append(f"--basetemp={_log().with_name('tmp')}")
    files = {str(test).partition("::")[0]: None for test in tests}
    return int(pytest.main([*options, *files], plugins=[OnlyWhatIsTested(), plugin]))
