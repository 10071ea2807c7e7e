"""Do kills and errors cost a shard cache any record? A campaign with a seed.

  python -m studies.cache_faults --work_dir=WORK --save_result=FILE

Question: are all records right after processes were killed while they filled a cache,
and while the store and the file systems give errors? All data are drawn. An
interrupted campaign goes on in WORK.

  kills   A process reads through an empty cache, and is killed after a random number of
          requests, and started again, five times. Then all records are read. In a third
          of the rounds two hosts with a shared folder take turns.
  errors  Epochs are read from a web server, through a cache of a part of the data.
          A share of all answers has a status other than 2xx, is cut or does not come,
          and a share of the calls of the local and the shared folder gives an errno. A
          window with an error is read again.

The claim is: no record is lost, and none is wrong. The exit code is 2 otherwise. The
last line on stdout is a JSON object.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import http.server
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import tfpipe
from studies import harness
from tests.support.data.shards import MadeShards, make_shards, read_records
from tfpipe import cli
from tfpipe.location.files import Files
from tfpipe.reading.order import EpochPosition, Order
from tfpipe.shard_cache import directory, fetch, leases, pieces as cuts, shared
from tfpipe.shard_cache.open_cache import OpenCache
from tfpipe.shard_cache.store import PieceStore
from tfpipe.shards.ranges import RecordRanges
from tfpipe.shards.records import HEADER_BYTES

KILLS_OF_ROUND = 5
STATUSES = (400, 401, 403, 404, 408, 416, 429, 500, 502, 503, 504)
BROKEN = ("reset", "cut")
ERRNOS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.ESTALE),
    *(errno.ENOTCONN, errno.ETIMEDOUT, errno.EMFILE, errno.ENOMEM),
)
_SIZES, _PIECE_BYTES = (80, 0, 70, 90), 9000
_ERROR_SHARE = 0.25
# Shorter times than users have: an error or a kill then costs milliseconds.
_STALE_SECONDS = 0.5
_TRIES = 200


@cli.options
class CacheFaultsOptions(harness.StudyOptions):
    """Options of the study."""

    work_dir: str = cli.required("Folder on a local disk; a campaign goes on there.")
    num_kills: int = cli.flag(200, "Processes to kill.", least=0)
    num_errors: int = cli.flag(10_000, "Errors to inject.", least=0)
    seed: int = cli.flag(0, "Seed of the campaign.", least=0)


class Injector:
    """Errors at a share of all calls; several threads use the object.

    Attributes:
        counts: Number of injected errors by name.
    """

    def __init__(self, seed: int) -> None:
        self._random, self._lock = random.Random(seed), threading.Lock()
        self.counts: collections.Counter[str] = collections.Counter()

    def draw(self, kind: str, choices: tuple[Any, ...]) -> Any:
        """Returns an error of a call, or None."""
        with self._lock:
            if self._random.random() > _ERROR_SHARE:
                return None
            choice = self._random.choice(choices)
            name = errno.errorcode[choice] if kind != "store" else choice
            self.counts[f"{kind} {name}"] += 1
            return choice

    def failing(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function with an errno at a share of the calls."""

        def call(*arguments: Any, **options: Any) -> Any:
            if (code := self.draw(kind, ERRNOS)) is not None:
                raise OSError(code, os.strerror(code))
            return function(*arguments, **options)

        return call

    @contextlib.contextmanager
    def injected(self, shared_folder: pathlib.Path) -> Iterator[None]:
        """Lets calls of the local and of the shared folder fail within the block."""
        with contextlib.ExitStack() as stack:
            for name in ("read", "write"):
                call = self.failing(f"local {name}", getattr(PieceStore, name))
                stack.enter_context(mock.patch.object(PieceStore, name, call))
            for name in ("read_bytes", "write_bytes", "rename", "unlink"):
                right = getattr(pathlib.Path, name)
                call = _within(
                    shared_folder, self.failing(f"shared {name}", right), right
                )
                stack.enter_context(mock.patch.object(pathlib.Path, name, call))
            yield


def _within(
    folder: pathlib.Path, call: Callable[..., Any], right: Callable[..., Any]
) -> Callable[..., Any]:
    def chosen(path: pathlib.Path, *arguments: Any, **options: Any) -> Any:
        function = call if folder in path.parents else right
        return function(path, *arguments, **options)

    return chosen


@contextlib.contextmanager
def _server(folder: pathlib.Path, injector: Injector) -> Iterator[str]:
    """Serves a folder with errors at a share of the answers; yields the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            error = injector.draw("store", (*STATUSES, *BROKEN))
            if error == "reset":
                self.close_connection = True
                return
            content = (folder / self.path.lstrip("/")).read_bytes()
            first, last = (self.headers["Range"] or "bytes=0-").split("=")[1].split("-")
            part = content[int(first) : int(last or len(content)) + 1]
            is_status = isinstance(error, int)
            self.send_response(error if is_status else 206)
            end = int(first) + len(part) - 1
            self.send_header("Content-Range", f"bytes {first}-{end}/{len(content)}")
            self.send_header("Content-Length", "0" if is_status else str(len(part)))
            self.end_headers()
            if not is_status:
                half = len(part) // 2
                self.wfile.write(part[:half] if error == "cut" else part)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _windows(shards: MadeShards, num_epochs: int) -> list[RecordRanges]:
    order = Order(shard_sizes=shards.sizes, window_size=16, block_length=8)
    epochs = [EpochPosition(epoch) for epoch in range(num_epochs)]
    return [
        order.window(0, epoch, window).ranges
        for epoch in epochs
        for window in order.windows(0, epoch)
    ]


def _open(
    shards: MadeShards, files: Files, cache: pathlib.Path, **options: Any
) -> OpenCache:
    settings = tfpipe.ShardCache(cache, **options)
    return settings.open(
        files, shards.folder, shards.split, shards.shards, shards.byte_offsets
    )


class Reading:
    """Reads windows and counts.

    Attributes:
        num_records: Records in all windows.
        num_raised: Errors of windows and records, after which both were read again.
        num_wrong: Records with wrong bytes, or damaged by the words of the cache.
    """

    def __init__(self, shards: MadeShards, cache: OpenCache) -> None:
        self._shards, self._cache = shards, cache
        self.num_records = self.num_raised = self.num_wrong = 0

    def _tried(self, call: Callable[[], Any]) -> Any:
        for _ in range(_TRIES):
            try:
                return call()
            except (tfpipe.errors.RemoteError, OSError):
                self.num_raised += 1
        return call()

    def read(self, num_epochs: int) -> None:
        """Reads epochs in a shuffled order."""
        windows = _windows(self._shards, num_epochs)
        reader = self._cache.reader(lambda: iter(windows))
        for ranges in windows:
            paths = self._tried(lambda r=ranges: reader.next_window(r))
            contents = read_records(self._shards, ranges, paths)
            for record, data in zip(ranges.records(), contents, strict=True):
                self.num_records += 1
                self._check(int(record), data)
        reader.close()

    def _check(self, record: int, data: bytes) -> None:
        right = self._shards.data[record]
        if data != right:  # a reader finds a wrong CRC and asks again
            framed = self._tried(lambda: self._cache.read_again(record))
            data = framed and framed[HEADER_BYTES:][: len(right)]
        self.num_wrong += data != right

    def counts(self) -> dict[str, int]:
        """Returns the counts by name."""
        names = ("num_records", "num_raised", "num_wrong")
        return {name: getattr(self, name) for name in names}


@contextlib.contextmanager
def _short_times() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (cuts, "_MOST_BYTES", _PIECE_BYTES),
            (fetch, "_FIRST_PAUSE_SECONDS", 0.001),
            (directory, "_FULL_SECONDS", 0.01),
            (shared, "_FAILING_SECONDS", 0.01),
            (leases, "STALE_SECONDS", _STALE_SECONDS),
            (leases, "RAISE_SECONDS", _STALE_SECONDS / 6),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def kill_round(seed: int, shards: MadeShards, work: pathlib.Path) -> dict[str, Any]:
    """Kills processes that fill a cache, and then reads all records.

    Args:
        seed: Seed of the round; a third of the seeds have a shared folder.
        shards: The data set.
        work: A new folder.
    """
    choices, is_shared = random.Random(seed), seed % 3 == 0
    log, options = work / "log", {"shared_directory": str(work / "shared")}
    work.mkdir()
    job = {
        **{"folder": str(shards.folder), "log": str(log), "piece_bytes": _PIECE_BYTES},
        **{"rank": 0, "num_ranks": 1, "num_epochs": 1, "num_connections": 4},
        **{"pause": 0.02, "stale_seconds": _STALE_SECONDS},
        **(options if is_shared else {}),
    }
    for kill in range(KILLS_OF_ROUND):
        cache = work / f"host{kill % 2 if is_shared else 0}"
        before = _num_lines(log)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.processes.shard_cache_worker"),
                json.dumps(job | {"cache": str(cache)}),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        wanted = before + choices.randrange(1, 9)
        while _num_lines(log) < wanted and process.poll() is None:
            time.sleep(0.001)
        time.sleep(choices.uniform(0, 0.02))
        process.kill()
        process.communicate()
    files = Files(str(shards.folder))
    for host in ("host0", "host1")[: 1 + is_shared]:
        cache = _open(shards, files, work / host, **(options if is_shared else {}))
        with contextlib.closing(cache):
            reading = Reading(shards, cache)
            reading.read(num_epochs=1)
    return {
        **{"kind": "kills", "seed": seed, "is_shared": is_shared},
        **{"num_kills": KILLS_OF_ROUND, **reading.counts()},
    }


def _num_lines(path: pathlib.Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def error_round(seed: int, shards: MadeShards, work: pathlib.Path) -> dict[str, Any]:
    """Reads epochs while the store, the local folder and the shared folder fail.

    Args:
        seed: Seed of the round.
        shards: The data set.
        work: A new folder.
    """
    injector = Injector(seed)
    work.mkdir()
    with _server(shards.folder, injector) as url:
        cache = _open(
            shards,
            Files(url, 2.0),
            work / "host",
            max_bytes=int(shards.num_bytes * 0.6),
            shared_directory=work / "shared",
            shared_max_bytes=shards.num_bytes // 3 if seed % 2 else None,
            time_limit=2.0,
        )
        with contextlib.closing(cache):
            reading = Reading(shards, cache)
            with injector.injected(work / "shared"):
                reading.read(num_epochs=10)
            reading.read(num_epochs=1)
    errors = dict(sorted(injector.counts.items()))
    return {"kind": "errors", "seed": seed, "errors": errors, **reading.counts()}


def campaign(options: CacheFaultsOptions) -> list[dict[str, Any]]:
    """Returns the rounds, those of an earlier call in the folder included."""
    work = pathlib.Path(options.work_dir).resolve()
    work.mkdir(parents=True, exist_ok=True)
    log = work / f"rounds-{options.seed}.jsonl"
    rounds = (
        [json.loads(line) for line in log.read_text().splitlines()]
        if (log.exists())
        else []
    )
    shards = make_shards(work / "data", _SIZES, seed=options.seed)
    with _short_times():
        for kind, function, limit in (
            ("kills", kill_round, options.num_kills),
            ("errors", error_round, options.num_errors),
        ):
            own = [row for row in rounds if row["kind"] == kind]
            count = sum(map(num_injected, own))
            for index in itertools.count(len(own)):
                if count >= limit:
                    break
                folder = work / f"{kind}-{index}-{os.getpid()}"
                own.append(function(1000 * options.seed + index, shards, folder))
                shutil.rmtree(folder)
                count += num_injected(own[-1])
                rounds.append(own[-1])
                with open(log, "a") as file:
                    file.write(json.dumps(own[-1]) + "\n")
                print(f"{count} of {limit} {kind}", file=sys.stderr, flush=True)
    return rounds


def num_injected(row: dict[str, Any]) -> int:
    """Returns the kills or the errors of a round."""
    return int(
        row["num_kills"] if row["kind"] == "kills" else sum(row["errors"].values())
    )


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the sums over all rounds."""
    kills = [row for row in rounds if row["kind"] == "kills"]
    errors: collections.Counter[str] = collections.Counter()
    for row in rounds:
        errors.update(row.get("errors", {}))
    names = ("num_records", "num_raised", "num_wrong")
    return {
        "num_kills": sum(map(num_injected, kills)),
        "num_kills_with_a_shared_folder": sum(
            num_injected(r) for r in kills if r["is_shared"]
        ),
        "num_errors": errors.total(),
        "errors": dict(sorted(errors.items())),
        **{name: sum(row[name] for row in rounds) for name in names},
    }


def _study(options: CacheFaultsOptions) -> harness.Outcome:
    figures = summary(campaign(options))
    wrong = figures["num_wrong"]
    lines = [f"{name:32}{figures[name]}" for name in figures if name != "errors"]
    lines += [f"  {name:30}{count}" for name, count in figures["errors"].items()]
    return harness.Outcome(
        figures={"config": {"seed": options.seed}, **figures},
        table="\n".join(lines),
        misses=[f"no record must be lost, got {wrong}"] if wrong else [],
    )


def main(options: CacheFaultsOptions) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.cache_faults", options, _study(options))


COMMANDS = (cli.Command(CacheFaultsOptions, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
