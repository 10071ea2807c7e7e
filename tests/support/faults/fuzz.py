"""Changed inputs through one parser: `python -m tests.support.faults.fuzz NAME`.

In: the name of a parser of `parsers`, a number of executions, and a seed. Out: a line
of JSON with the counts and the failures. A failure is another exception than the parser
may raise, a difference from the reference parser, more than 1 GB of memory, or more
than ten seconds. An input that ends the process is in the file of --last.

--replay=FILE gives the bytes of a file to the parser and to its reference.
--atheris draws the inputs by the code that they reach, where atheris is installed.
"""

import argparse
import collections
import contextlib
import json
import mmap
import pathlib
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tests.support.faults import mutations

if "--atheris" in sys.argv:
    import atheris

    with atheris.instrument_imports(include=["tfpipe", "converters", "benchmarks"]):
        from tests.support.faults import parsers
else:
    from tests.support.faults import parsers

_SECONDS, _MAX_BYTES = 10, 1 << 30
_MOST_FAILURES = 5  # inputs that are kept for each parser


class Fuzzer:
    """Gives inputs to a parser, and counts.

    Args:
        parser: The parser.
        last: File that holds the input of the moment.
    """

    def __init__(self, parser: parsers.Parser, last: pathlib.Path) -> None:
        self.parser = parser
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: list[dict[str, str]] = []
        last.write_bytes(bytes(mutations.MAX_BYTES + 8))
        with open(last, "r+b") as file:
            self._last = mmap.mmap(file.fileno(), 0)

    def execute(self, data: bytes) -> None:
        """Gives an input to the parser and to its reference."""
        self._last[:8] = len(data).to_bytes(8, "little")
        self._last[8 : 8 + len(data)] = data
        self.counts["executions"] += 1
        try:
            with _in_time():
                fault = parsers.fault(self.parser, data, self.counts)
        except _TooLongError:
            fault = f"more than {_SECONDS} s"
        if fault:
            self.counts["failures"] += 1
            known = {failure["fault"] for failure in self.failures}
            if fault not in known and len(known) < _MOST_FAILURES:
                self.failures.append({"fault": fault, "input": data.hex()})

    def report(self, name: str, start: float, before: int) -> dict[str, Any]:
        """Returns the figures of a run."""
        grown = _memory() - before
        if grown > _MAX_BYTES:
            self.counts["failures"] += 1
            self.failures.append({"fault": f"{grown:,} bytes of memory", "input": ""})
        return {
            "parser": name,
            "reference": self.parser.reference_name,
            **{key: self.counts[key] for key in ("executions", "accepted", "failures")},
            "seconds": round(time.monotonic() - start, 1),
            "mb": round(grown / 1e6),
            "faults": self.failures,
        }


class _TooLongError(BaseException):
    """No `except Exception` of a parser may swallow it."""


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    def end(*_: object) -> NoReturn:
        raise _TooLongError

    signal.signal(signal.SIGALRM, end)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(name: str, count: int, seed: int, last: pathlib.Path) -> dict[str, Any]:
    """Runs a parser on changed inputs; equal for equal seeds.

    Returns:
        The figures and the failures.
    """
    parser = parsers.PARSERS[name]
    sound = parser.sound()
    fuzzer = Fuzzer(parser, last)
    for data in sound:
        assert not (fault := parsers.fault(parser, data, fuzzer.counts)), fault
    assert fuzzer.counts["accepted"] == len(sound)
    start, before = time.monotonic(), _memory()
    dice = random.Random(f"{name} {seed}")
    for _ in range(count):
        fuzzer.execute(parser.sealed(mutations.mutated(sound, parser.words, dice)))
    return fuzzer.report(name, start, before)


def _run_atheris(name: str, count: int, seed: int, last: pathlib.Path) -> NoReturn:
    """Lets atheris draw the inputs; it ends the process."""
    parser = parsers.PARSERS[name]
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(parser.sound()):
            pathlib.Path(corpus, str(number)).write_bytes(data)
        fuzzer, start, before = Fuzzer(parser, last), time.monotonic(), _memory()

        def execute(data: bytes) -> None:
            fuzzer.execute(parser.sealed(data))
            if fuzzer.counts["executions"] == count:
                print(json.dumps(fuzzer.report(name, start, before)), flush=True)

        options = [f"-runs={count}", f"-seed={seed}", "-rss_limit_mb=0", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *options, "-max_len=65536", corpus], execute)
        atheris.Fuzz()
    sys.exit(0)


def main(words: Sequence[str] | None = None) -> None:
    """Prints a line of JSON for each parser."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", help="parsers; all by default")
    arguments.add_argument("--executions", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--last", type=pathlib.Path, required=True)
    arguments.add_argument("--replay", type=pathlib.Path)
    arguments.add_argument("--atheris", action="store_true")
    options = arguments.parse_args(words)
    for name in options.names or parsers.PARSERS:
        if options.replay:
            data, counts = options.replay.read_bytes(), collections.Counter[str]()
            print(parsers.fault(parsers.PARSERS[name], data, counts) or dict(counts))
        elif options.atheris:
            _run_atheris(name, options.executions, options.seed, options.last)
        else:
            figures = run(name, options.executions, options.seed, options.last)
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
