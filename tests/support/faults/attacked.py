"""Every command that reads or writes files, with what must hold after a fault.

In: a folder. Out: inputs of all commands in the folder; and what is wrong with a
command that met a fault at a system call:

| end of the command    | what must hold                                             |
|-----------------------|------------------------------------------------------------|
| exit code 0           | the output is that of a run without a fault                |
| exit code 1           | one line of an error, which names a path; no traceback     |
| killed or interrupted | nothing about its messages but no traceback of SIGTERM     |
| each of these         | what has its last file is whole; the command again is done |
"""

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from converters import verify
from converters.exports.run import EXPORT_NAME
from converters.synthetic.whole_tree import MARK_NAME
from tests.support.data import sample_results
from tests.support.data.carried import exported
from tests.support.data.trees import convert, digests, make_tree
from tests.support.faults import system_calls
from tests.support.faults.system_calls import Injection
from tests.support.processes.commands import ROOT
from tfpipe.location.files import Files
from tfpipe.shards import generations
from tfpipe.shards.index import INDEX_NAME

NUM_IMAGES = 12
# The files that commands write last: with one of them an output is whole.
_LAST = (INDEX_NAME, EXPORT_NAME, MARK_NAME, "subset.parquet")
_TRAIN = "--model=tiny --image_size=32 --batch_size=4 --data_dir={}/set"


@dataclasses.dataclass(frozen=True)
class Attacked:
    """A command under attack.

    Attributes:
        words: Its words after `python -m`; {} is the folder of the inputs, and {}/out
            the folder of the output.
        output: Takes the folder of the output and the result of the last line; returns
            what is equal after each run.
        goes_on_when_done: Whether it ends well if it runs again after its end.
    """

    words: str
    output: Callable[[pathlib.Path, Any], Any]
    goes_on_when_done: bool = True


def _files(out: pathlib.Path, _: Any) -> dict[str, str]:
    """Returns the digests of the files that a reader sees."""
    return {
        name: digest
        for name, digest in digests(out).items()
        if name == MARK_NAME or not any(p[0] == "." for p in pathlib.Path(name).parts)
    }


def _stream(out: pathlib.Path, _: Any) -> dict[str, Any]:
    """Returns the records of a growing data set; it may have other generations."""
    log = generations.read_log(Files(str(out)))
    options = verify.VerifyOptions(data_dir=str(out), level="crc", num_workers=1)
    checked = verify.verify(options)
    count = sum(each.num_records for entry in log for each in entry)
    return {"records": count, "faults": [*map(str, checked.faults)]}


def _result(*keys: str) -> Callable[[pathlib.Path, Any], Any]:
    return lambda _, result: {key: result.get(key) for key in keys}


_VERIFIED = _result("num_records", "num_faults", "faults")
ATTACKED: Mapping[str, Attacked] = {
    "imagenet": Attacked(
        "converters.imagenet --input_dir={}/raw --output_dir={}/out "
        "--num_train_shards=2 --num_workers=2",
        _files,
    ),
    "verify": Attacked(
        "converters.verify {}/set --level=decode --num_workers=2", _VERIFIED
    ),
    "folder": Attacked(
        "converters.folder --input_dir={}/raw/train --output_dir={}/out", _files
    ),
    "table": Attacked(
        "converters.table --input={}/photos.csv --image_column=file "
        "--label_column=label --output_dir={}/out",
        _files,
    ),
    "webdataset": Attacked(
        "converters.webdataset --input={}/tars/*.tar --output_dir={}/out", _files
    ),
    "tfrecord": Attacked(
        "converters.tfrecord --input={}/set/train-* --output_dir={}/out", _files
    ),
    "merge": Attacked(
        "converters.merge a={}/set b={}/photos.csv --output_dir={}/out "
        "--image_column=b=file --label_column=b=label",
        _files,
    ),
    "stream": Attacked(
        "converters.stream {}/raw/train {}/out --until_idle=0.1 --num_workers=1",
        _stream,
    ),
    "query": Attacked("converters.query {}/set label>=0 --materialize={}/out", _files),
    "subset": Attacked(
        "converters.query {}/set label>=0 --save={}/out/subset.parquet", _files
    ),
    "parquet": Attacked(
        "converters.export {}/set --output_dir={}/out --format=parquet", _files
    ),
    "tree": Attacked(
        "converters.export {}/set --output_dir={}/out --format=tree", _files
    ),
    "tars": Attacked(
        "converters.export {}/set --output_dir={}/out --format=webdataset", _files
    ),
    "replicate": Attacked(
        "converters.replicate {}/set --output_dir={}/out --copies=2", _files
    ),
    "synthesize": Attacked(
        "converters.synthesize --output_dir={}/out --num_images=4 --num_classes=2 "
        "--size_scale=0.02",
        _files,
    ),
    "report": Attacked(
        "benchmarks.report --results={}/results --output={}/out/page.html",
        _result("num_results", "num_left_out"),
    ),
    "advise": Attacked(
        "benchmarks.advise --results={}/results --num_accelerators=16",
        _result("command"),
    ),
    "storage": Attacked(
        "benchmarks.storage {}/set --seconds=0.1 --max_parallel=2", _result("command")
    ),
    "input": Attacked(
        f"benchmarks.input {_TRAIN} --do=throughput --seconds=0.1", _result("command")
    ),
    "train": Attacked(
        f"benchmarks.train {_TRAIN} --num_epochs=1 --checkpoint_dir={{}}/out",
        _result("command"),
        goes_on_when_done=False,  # no step of its epoch is left to time
    ),
}
# Commands that read a data set from a web server, whose URL is {url}.
REMOTE: Mapping[str, Attacked] = {
    "verify of a URL": Attacked("converters.verify {url} --level=crc", _VERIFIED),
    "query of a URL": Attacked(
        "converters.query {url} label>=0", _result("num_chosen")
    ),
    "replicate of a URL": Attacked(
        "converters.replicate {url} --output_dir={}/out --copies=2", _files
    ),
    "input of a URL": Attacked(
        "benchmarks.input --data_dir={url} --model=tiny --image_size=32 "
        "--batch_size=4 --do=throughput --seconds=0.1",
        _result("command"),
    ),
}
_TIME_LIMIT = "--store_time_limit=3"


def make_inputs(folder: pathlib.Path) -> None:
    """Fills a folder with the inputs of all commands."""
    make_tree(folder / "raw", num_images=NUM_IMAGES)
    convert(folder / "raw", folder / "set", num_train_shards=2)
    exported(folder / "set", folder / "tars", "webdataset")
    paths = sorted((folder / "raw/train").rglob("*.JPEG"))
    rows = [f"{path},{path.parent.name}" for path in paths]
    (folder / "photos.csv").write_text("\n".join(["file,label", *rows, ""]))
    (folder / "results").mkdir()
    for name, document in sample_results.every_kind().items():
        (folder / "results" / f"{name}.json").write_text(json.dumps(document))


class Attack:
    """Faults at the system calls of a command.

    Args:
        name: The command.
        folder: Inputs of `make_inputs`, and nothing of other runs at once.
        url: The URL of the data set, for the commands of REMOTE.
    """

    def __init__(self, name: str, folder: pathlib.Path, url: str = "") -> None:
        self.command, self.folder = {**ATTACKED, **REMOTE}[name], folder
        text = self.command.words.replace("{}", str(folder)).replace("{url}", url)
        self.words = [sys.executable, "-m", *text.split(), "--json"]
        self.url = url
        if url:
            self.words.append(_TIME_LIMIT)
        self.out = folder / "out"
        self._empty()
        self.expected = self._output(self._run())

    @functools.cached_property
    def calls(self) -> list[tuple[str, str]]:
        """The system calls that concern the folder or the server, by name and path."""
        self._empty()
        if self.url:
            return system_calls.connections(self.words, self.url)
        return system_calls.calls_of(self.words, self.folder)

    def _empty(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        for beside in self.folder.glob(".out*"):  # of converters.synthesize
            shutil.rmtree(beside) if beside.is_dir() else beside.unlink()
        self.out.mkdir()

    def _run(self, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.words,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, **variables},
            timeout=300,
        )

    def with_variables(self, variables: Mapping[str, str]) -> list[str]:
        """Runs the command with variables of the environment; returns what is wrong."""
        self._empty()
        done = self._run(**variables)
        if done.returncode:
            return [f"exit code {done.returncode}: {done.stderr[-2000:]}"]
        output = self._output(done)
        return [] if output == self.expected else [f"the output is {output}"]

    def _output(self, done: "subprocess.CompletedProcess[str]") -> Any:
        lines = done.stdout.splitlines()
        return self.command.output(self.out, json.loads(lines[-1]) if lines else {})

    def choose(self, count: int, *, seed: int) -> list[Injection]:
        """Returns faults; equal for equal seeds."""
        return system_calls.choose(self.calls, count, seed=seed)

    def inject(self, injection: Injection) -> tuple[list[str], bool]:
        """Runs the command with a fault, and then without.

        Returns:
            What is wrong, and whether the fault came.
        """
        self._empty()
        try:
            done, came = system_calls.run(self.words, injection)
        except subprocess.TimeoutExpired:
            return ["it hangs"], True
        wrong = [*_misdeeds(done, injection, self.folder)]
        if done.returncode == 0 and self._output(done) != self.expected:
            wrong.append(f"exit code 0, and the output is {self._output(done)}")
        elif done.returncode and self.command.output is _files:
            wrong += self._half()
        if done.returncode == 0 and not self.command.goes_on_when_done:
            self._empty()
        again = self._run()
        if again.returncode:
            wrong.append(f"the command again: {again.stderr[-2000:]}")
        elif (output := self._output(again)) != self.expected:
            wrong.append(f"the command again: the output is {output}")
        return wrong, came

    def _half(self) -> Iterator[str]:
        """Yields what is published and not whole."""
        there = _files(self.out, None)
        if {*_LAST} & {*there} and there != self.expected:
            yield f"half of the output is published: {sorted(there)}"


def _misdeeds(
    done: "subprocess.CompletedProcess[str]", injection: Injection, folder: pathlib.Path
) -> Iterator[str]:
    """Yields what is wrong with the end of a command and its messages."""
    if done.returncode == 0 or injection.action == "signal=SIGKILL":
        return
    if "Traceback" in done.stderr:
        yield f"a traceback: {done.stderr[-3000:]}"
        return
    if injection.action == "signal=SIGTERM":
        return
    said = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    if done.returncode != 1 or len(said) != 1:
        yield f"exit code {done.returncode}: {done.stderr[-2000:]}"
    elif not _names(said[0], pathlib.Path(injection.path), folder):
        yield f"no path in {said[0]}"


def _names(text: str, path: pathlib.Path, folder: pathlib.Path) -> bool:
    """Whether a text names a file, or a folder above it within the inputs.

    Of a URL, the text must have the host and the port, which are the name of its path.
    """
    if path.name.startswith(".out."):  # beside the output, of converters.synthesize
        path = folder / "out"
    above: Sequence[pathlib.Path] = [path, *path.parents]
    below = [each for each in above if each != folder and each.is_relative_to(folder)]
    return path.name in text or any(str(each) in text for each in below)
