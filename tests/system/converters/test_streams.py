"""Streams through real brokers, and into a store: once each, also after a kill."""

import asyncio
import pathlib
from collections.abc import Callable

import pytest

from converters.stream import StreamOptions, Worker
from converters.streams.message import RefusedError
from tests.support.processes import stream_producer
from tests.support.servers import brokers
from tfpipe.location.files import Files
from tfpipe.shards import generations, index

NUM_IMAGES = 30


def _send_redis(broker: brokers.BrokerProcess) -> None:
    stream_producer.main(broker.port, "photos", NUM_IMAGES)


def _send_nats(broker: brokers.BrokerProcess) -> None:
    nats = pytest.importorskip("nats")

    async def send() -> None:
        client = await nats.connect(broker.url)
        stream = client.jetstream()
        await stream.add_stream(name="photos", subjects=["photos"])
        for number in range(NUM_IMAGES):
            fields = stream_producer.fields_of(number)
            image = fields.pop("image")
            headers = {name: value.decode() for name, value in fields.items()}
            await stream.publish("photos", image, headers=headers)
            if number % 10 == 0:
                await stream.publish("photos", image, headers=headers)
        await client.close()

    asyncio.run(send())


SENDERS: dict[str, Callable[[brokers.BrokerProcess], None]] = {
    "redis": _send_redis,
    "nats": _send_nats,
}


def _options(broker: brokers.BrokerProcess, folder: str) -> StreamOptions:
    return StreamOptions(
        source=f"{broker.url}/photos",
        output_dir=folder,
        worker="w",
        max_records=8,
        max_seconds=2.0,
        until_idle=2.0,
        num_workers=1,
        fsync=False,
    )


class Cut(BaseException):
    """The worker ends here, as at a kill."""


@pytest.mark.parametrize("kind", SENDERS)
def test_messages_of_a_broker_are_stored_once(
    tmp_path: pathlib.Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.require(kind)
    pytest.importorskip(kind)
    with brokers.running(kind, tmp_path / "broker") as broker:
        SENDERS[kind](broker)
        options = _options(broker, str(tmp_path / "set"))
        worker = Worker(options)

        def cut(*arguments: object, **more: object) -> bool:
            raise Cut

        monkeypatch.setattr(worker.data, "publish", cut)
        with pytest.raises(Cut):
            worker.loop()
        worker.stream.close()
        broker.kill()
        broker.start()
        again = Worker(options)
        again.loop()
        again.stream.close()

    assert again.counts["num_duplicates"] > 0
    _require_all(tmp_path / "set")


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("redis", ("--requirepass", "x"), "refuses the login.*Set REDIS_PASSWORD"),
        ("redis", (), "refuses photos: WRONGTYPE"),
        ("nats", ("--auth", "x"), "refuses the login.*Set NATS_TOKEN"),
        ("nats", (), "must have the JetStream stream photos"),
    ],
)
def test_a_broker_that_refuses_is_not_asked_again(
    tmp_path: pathlib.Path, kind: str, arguments: tuple[str, ...], message: str
) -> None:
    brokers.require(kind)
    client = pytest.importorskip(kind)
    with brokers.running(kind, tmp_path / "broker", *arguments) as broker:
        if kind == "redis" and not arguments:
            client.Redis(port=broker.port).set("photos", "no stream")
        worker = Worker(_options(broker, str(tmp_path / "set")))
        with pytest.raises(RefusedError, match=message):
            worker.loop()
        worker.stream.close()


def test_a_store_that_refuses_a_second_file(
    tmp_path: pathlib.Path, s3_folder: str
) -> None:
    """The log of a URL is written by conditional creates."""
    arriving = tmp_path / "arriving"
    for number in range(NUM_IMAGES):
        fields = stream_producer.fields_of(number)
        path = arriving / fields["label"].decode() / fields["name"].decode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fields["image"])
    options = StreamOptions(
        source=str(arriving),
        output_dir=f"{s3_folder}/grown",
        max_records=16,
        until_idle=0.5,
        num_workers=1,
    )
    Worker(options).loop()

    files = Files(f"{s3_folder}/grown")
    log = generations.read_log(files)
    assert [entry.num_records for entry in log] == [16, 14]
    assert not files.create("generations/000002.json", b"another")
    assert generations.read_log(files) == log
    assert not any("probe" in name for name in files.names())


def _require_all(folder: pathlib.Path) -> None:
    names: list[str] = []
    for entry in generations.read_log(Files(str(folder))):
        rows = index.load_catalog(folder / entry.folder, "train", ["filename"])
        names += map(str, rows["filename"])
    assert sorted(names) == [f"{n:08d}.jpg" for n in range(NUM_IMAGES)]
