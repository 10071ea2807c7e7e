"""Streams through real brokers, and into a store: once each, also after a kill."""

import contextlib
import json
import pathlib
import socket
from collections.abc import Iterator

import pytest

from converters import query, verify
from converters.options.query import QueryOptions
from converters.stream import StreamOptions, Worker
from converters.streams import lease
from converters.streams.brokers import KafkaStream
from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.processes import stream_producer
from tests.support.servers import brokers, stores
from tfpipe.errors import RefusedError, RemoteError
from tfpipe.location.files import Files
from tfpipe.shards import generations, index

NUM_IMAGES = 30


def _send(broker: brokers.BrokerProcess) -> None:
    stream_producer.make_stream(f"{broker.url}/photos")
    stream_producer.send(f"{broker.url}/photos", range(NUM_IMAGES))


def _options(broker: brokers.BrokerProcess, folder: str) -> StreamOptions:
    return StreamOptions(
        source=f"{broker.url}/photos",
        output_dir=folder,
        worker="w",
        max_records=8,
        max_seconds=2.0,
        until_idle=15.0 if broker.url.startswith("kafka") else 4.0,  # joins slowly
        takeover_seconds=2.0,
        num_workers=1,
        fsync=False,
    )


class Cut(BaseException):
    """The worker ends here, as at a kill."""


@pytest.mark.usefixtures("broker_store")
@pytest.mark.parametrize("kind", ["redis", "kafka", "nats"])
def test_messages_of_a_broker_are_stored_once(
    tmp_path: pathlib.Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with brokers.running(kind, tmp_path / "broker") as broker:
        _send(broker)
        options = _options(broker, str(tmp_path / "set"))
        worker = Worker(options)

        def cut(*arguments: object, **more: object) -> bool:
            raise Cut

        monkeypatch.setattr(worker.data, "publish", cut)
        with pytest.raises(Cut):
            worker.loop()
        worker.close()
        broker.kill()
        broker.start()
        again = Worker(options)
        again.loop()
        again.close()

    assert again.counts["num_duplicates"] > 0
    _require_all(tmp_path / "set")


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("redis", ("--requirepass", "x"), "refuses the login.*Set REDIS_PASSWORD"),
        ("redis", (), "refuses photos: WRONGTYPE"),
        ("nats", ("--auth", "x"), "refuses the login.*Set NATS_TOKEN"),
        ("nats", (), "must have the JetStream stream photos"),
        ("kafka", (), "Kafka must have the topic photos"),
        ("kafka", ("--authentication",), "Kafka refuses the login"),
    ],
)
@pytest.mark.usefixtures("broker_store")
def test_a_broker_that_refuses_is_not_asked_again(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    if kind == "kafka" and arguments:
        login = {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_PLAINTEXT"}
        login |= {"sasl.username": "me", "sasl.password": "wrong"}
        monkeypatch.setenv("KAFKA_SETTINGS", json.dumps(login))
    with brokers.running(kind, tmp_path / "broker", *arguments) as broker:
        if kind == "redis" and not arguments:
            redis = pytest.importorskip("redis")
            redis.Redis(port=broker.port).set("photos", "no stream")
        worker = Worker(_options(broker, str(tmp_path / "set")))
        with pytest.raises(RefusedError, match=message):
            worker.loop()
        worker.close()


def test_a_group_that_gives_no_partition_ends_the_worker(
    tmp_path: pathlib.Path,
) -> None:
    """A broker may take connections and say nothing."""
    pytest.importorskip("confluent_kafka")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = f"kafka://127.0.0.1:{silent.getsockname()[1]}/photos"
        worker = Worker(
            StreamOptions(source=source, output_dir=str(tmp_path / "set"), patience=0.0)
        )
        assert isinstance(worker.stream, KafkaStream)
        worker.stream._join_seconds = 1.0  # a minute is the least of a user
        with (
            contextlib.closing(worker),
            pytest.raises(RemoteError, match="gave no partition in 1 s"),
        ):
            worker.loop()


def _arrive(arriving: pathlib.Path, numbers: range) -> None:
    for number in numbers:
        fields = stream_producer.fields_of(number)
        path = arriving / fields["label"].decode() / fields["name"].decode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fields["image"])


def test_a_store_without_conditional_creates_has_one_writer(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not stores.is_installed("rclone"):
        pytest.skip("rclone is not installed")
    monkeypatch.setattr(lease, "_SETTLE_SECONDS", 0.2)
    with stores.running("rclone", tmp_path / "store") as store:
        for name, value in store.variables.items():
            monkeypatch.setenv(name, value)

        def store_more(name: str, numbers: range) -> Worker:
            _arrive(tmp_path / "arriving", numbers)
            worker = Worker(
                StreamOptions(
                    source=str(tmp_path / "arriving"),
                    output_dir=f"{store.url}/grown",
                    worker=name,
                    until_idle=0.5,
                    takeover_seconds=1.0,
                    num_workers=1,
                )
            )
            worker.loop()
            return worker

        killed = store_more("first", range(4))
        other = store_more("second", range(4, 6))
        with pytest.raises(RefusedError, match=r"one writer at a time, .* is second"):
            killed.data.claim(["more"])
        other.close()
        log = generations.read_log(Files(f"{store.url}/grown"))
    assert [part.num_records for (part,) in log] == [4, 2]


@pytest.fixture(params=["seaweedfs", "hdfs"])
def folder_url(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[str]:
    """URL of a folder of a store that refuses a second file of one name."""
    if request.param == "seaweedfs":
        yield request.getfixturevalue("s3_folder")
    elif not stores.is_installed("hdfs"):
        pytest.skip("Java or HADOOP_JARS is missing, see BUILD.md")
    else:
        (tmp_path / "hdfs").mkdir()
        with stores.running("hdfs", tmp_path / "hdfs") as store:
            yield f"{store.url}/folder"


def test_a_store_that_refuses_a_second_file(
    tmp_path: pathlib.Path, folder_url: str
) -> None:
    """The log of a URL is written by conditional creates."""
    arriving = tmp_path / "arriving"
    _arrive(arriving, range(NUM_IMAGES))
    options = StreamOptions(
        source=str(arriving),
        output_dir=f"{folder_url}/grown",
        max_records=16,
        until_idle=0.5,
        num_workers=1,
    )
    worker = Worker(options)
    worker.loop()
    worker.close()

    files = Files(f"{folder_url}/grown")
    log = generations.read_log(files)
    assert [part.num_records for (part,) in log] == [16, 14]
    assert not files.create("generations/000002.json", b"another")
    assert generations.read_log(files) == log
    assert not any("probe" in name for name in files.names())
    removed = QueryOptions(
        data_dir=f"{folder_url}/grown", clause="label = 1", remove=True, num_workers=1
    )
    assert query.ask(removed)["generation"] == 3
    left = generations.folders(generations.read_log(files), 3)
    assert sum(part.num_records for part in left) == NUM_IMAGES - 3
    checked = verify.VerifyOptions(data_dir=f"{folder_url}/grown", num_workers=1)
    assert verify.verify(checked).num_faults == 0


REFUSALS = [(401, "AccessDenied"), (403, "AccessDenied"), (404, "NoSuchBucket")]


@pytest.mark.parametrize(("status", "code"), REFUSALS)
@pytest.mark.parametrize("names", ["", "*.jpg"])
def test_a_watched_url_that_refuses_ends_at_once(
    tmp_path: pathlib.Path,
    s3_folder: str,
    bad_proxy: BadProxy,
    status: int,
    code: str,
    names: str,
) -> None:
    """The listing or a file is refused; the same request will not succeed later."""
    Files(s3_folder).write("a/1.jpg", stream_producer.image_of(1))
    options = StreamOptions(
        source=s3_folder, output_dir=str(tmp_path / "set"), patience=60.0
    )
    bad_proxy.faults = [Fault(kind="status", names=names, status=status, code=code)]
    worker = Worker(options)
    with pytest.raises(RefusedError, match=f"failed: {status} .*{code}") as raised:
        worker.loop()
    worker.close()
    assert "\n" not in str(raised.value)


def test_a_watched_url_that_is_away_is_asked_again(
    tmp_path: pathlib.Path, s3_folder: str, bad_proxy: BadProxy
) -> None:
    Files(s3_folder).write("a/1.jpg", stream_producer.image_of(1))
    options = StreamOptions(
        source=s3_folder,
        output_dir=str(tmp_path / "set"),
        until_idle=1.0,
        num_workers=1,
    )
    bad_proxy.faults = [Fault(kind="status", names="", times=3)]
    worker = Worker(options)
    worker.loop()
    worker.close()
    assert worker.counts["num_records"] == 1


def _require_all(folder: pathlib.Path) -> None:
    names: list[str] = []
    for (part,) in generations.read_log(Files(str(folder))):
        rows = index.load_catalog(folder / part.name, "train", ["filename"])
        names += map(str, rows["filename"])
    assert sorted(names) == [f"{n:08d}.jpg" for n in range(NUM_IMAGES)]
