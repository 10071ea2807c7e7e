"""Images through a real broker, while the producer, the broker and workers are killed.

Each image is stored once, with its bytes and label, in the order that the claims of the
generations say. `make test` kills a few times. TORTURE=1 sends 100,000 images through
Redis and kills 50 times, sends 5,000 images through NATS and Tansu and kills 10 times
each, and STREAM_RESULT=FILE keeps the figures of Redis.
"""

import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from typing import Any, NamedTuple

import pytest
import xxhash

from converters import verify
from tests.support.faults.torture import RecordProperty, rounds
from tests.support.processes import stream_producer
from tests.support.servers import brokers
from tfpipe.location.files import Files
from tfpipe.shards import generations, index

WORKERS = ("first", "second")
_LIMIT = rounds(540, 3_600)  # seconds after which the test gives up


class Load(NamedTuple):
    """How much a broker gets, and how soon its messages come again after a kill."""

    num_images: int
    num_kills: int
    per_generation: int
    takeover_seconds: int
    until_idle: int


SMALL = rounds(500, 5_000), rounds(2, 10), rounds(100, 500)
LOADS = {
    "redis": Load(rounds(1_500, 100_000), rounds(4, 50), rounds(200, 2_000), 600, 4),
    "nats": Load(*SMALL, 5, 8),
    # Tansu's group deals no partitions on some joins: a worker that waited for 55 s
    # joins anew, within its patience.
    "kafka": Load(*SMALL, 45, 15),
}


@dataclasses.dataclass
class Victims:
    """The processes that are killed and started again."""

    broker: brokers.BrokerProcess
    load: Load
    folder: pathlib.Path
    processes: dict[str, subprocess.Popen[bytes]] = dataclasses.field(
        default_factory=dict
    )

    def start(self, name: str) -> None:
        """Starts the producer or a worker."""
        url, sent = f"{self.broker.url}/photos", str(self.folder / "sent")
        command = ["tests.support.processes.stream_producer"]
        command += [url, str(self.load.num_images), sent]
        if name in WORKERS:
            command = ["converters.stream", url]
            command += [str(self.folder / "set"), f"--worker={name}", "--patience=180"]
            command += [f"--max_records={self.load.per_generation}", "--max_seconds=3"]
            command += [f"--takeover_seconds={self.load.takeover_seconds}"]
            command += [f"--until_idle={self.load.until_idle}", "--num_workers=1"]
        with open(self.folder / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command], stdout=out, stderr=out
            )

    def kill(self, victims: str) -> None:
        """Kills the broker, the producer or workers, and starts them again."""
        if victims == "broker":
            self.broker.kill()
            self.broker.start()
            return
        names = WORKERS if victims == "both workers" else [victims]
        for name in names:
            self.processes[name].kill()
        for name in names:
            self.processes[name].wait()
            self.start(name)


@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.usefixtures("broker_store")
def test_each_image_is_stored_once_in_spite_of_kills(
    kind: str, tmp_path: pathlib.Path, record_property: RecordProperty
) -> None:
    names = "broker", "producer", *WORKERS, "both workers"
    draw, killed = random.Random(0), dict.fromkeys(names, 0)
    began = time.monotonic()
    with brokers.running(kind, tmp_path / kind) as broker:
        stream_producer.make_stream(f"{broker.url}/photos")
        victims = Victims(broker, LOADS[kind], tmp_path)
        for name in ("producer", *WORKERS):
            victims.start(name)
        try:
            for _ in range(victims.load.num_kills):
                time.sleep(draw.uniform(0.2, rounds(2, 4)))
                name = draw.choice([*killed])
                victims.kill(name)
                killed[name] += 1
            _end(victims, began)
        finally:
            for process in victims.processes.values():
                process.kill()
                process.wait()

    figures = _checked(tmp_path / "set", LOADS[kind].num_images)
    record_property("injections", sum(killed.values()))
    figures |= {"kills": killed, "seconds": round(time.monotonic() - began, 1)}
    path = os.environ.get("STREAM_RESULT")
    if path and kind == "redis":
        pathlib.Path(path).write_text(json.dumps(figures, indent=1) + "\n")


def _end(victims: Victims, began: float) -> None:
    """Waits for the producer, then for workers until nothing is left."""
    while any(p.poll() is None for p in victims.processes.values()):
        assert time.monotonic() - began < _LIMIT
        time.sleep(0.2)
    for name in WORKERS:  # what a worker left when it was idle too early
        victims.start(name)
    for name in WORKERS:
        left = max(0.0, began + _LIMIT - time.monotonic())
        assert victims.processes[name].wait(left) == 0, (
            victims.folder / f"{name}.out"
        ).read_text()[-3000:]


def _checked(folder: pathlib.Path, num_images: int) -> dict[str, Any]:
    """Checks the records of all generations against the claims and the images."""
    log = generations.read_log(Files(str(folder)))
    stored: list[str] = []
    whole_digest = xxhash.xxh3_128()
    for (part,) in log:
        claim = json.loads(
            (folder / f"generations/{part.name}.messages.json").read_bytes()
        )
        names = [f"{int(id.removeprefix('id-')):08d}.jpg" for id in claim["messages"]]
        rows = index.load_catalog(
            folder / part.name, "train", ["filename", "digest", "synset"]
        )
        by_hash = sorted(
            names, key=lambda n: xxhash.xxh3_64_intdigest(f"0/{n}".encode())
        )
        assert rows["filename"].tolist() == by_hash  # the stated order
        for name, digest, label in zip(*rows.values(), strict=True):
            number = int(name.removesuffix(".jpg"))
            image = stream_producer.image_of(number)
            assert digest == xxhash.xxh3_128_hexdigest(image)
            assert label == f"class-{number % stream_producer.NUM_CLASSES}"
            whole_digest.update(f"{name} {digest}\n".encode())
        stored += names
    assert sorted(stored) == [f"{n:08d}.jpg" for n in range(num_images)]
    options = verify.VerifyOptions(data_dir=str(folder), level="crc", num_workers=1)
    assert verify.verify(options).num_faults == 0
    return {
        "num_images": num_images,
        "num_records": len(stored),
        "num_generations": len(log),
        "digest_of_names_and_images_in_order": whole_digest.hexdigest(),
    }
