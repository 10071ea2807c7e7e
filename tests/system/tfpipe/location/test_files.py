"""Files on a real S3 server, also one that fails, and on a real web server."""

import dataclasses
import os
import pathlib
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.servers import web_server
from tests.support.servers.s3_server import BUCKET, KEY, SECRET
from tfpipe import errors
from tfpipe.location import object_store
from tfpipe.location.files import Files

PASSING = {
    "truncate": Fault(kind="truncate", after=1000),
    "stall": Fault(kind="stall", after=1000),
    "delay": Fault(kind="delay", seconds=30),
    "reset": Fault(kind="reset"),
    "503": Fault(kind="status", status=503),
    "429": Fault(kind="status", status=429),
    "408": Fault(kind="status", status=408),
    "RequestTimeout": Fault(kind="status", status=400, code="RequestTimeout"),
}
# Each answer comes later than the time limit allows, and none is ever whole.
ENDLESS = {
    "trickle": Fault(kind="trickle", seconds=0.1),
    "stall": Fault(kind="stall", after=1000),
    "RequestTimeout": Fault(kind="status", status=400, code="RequestTimeout"),
}


def test_files_are_written_listed_read_and_removed(
    s3_folder: str, tmp_path: pathlib.Path
) -> None:
    files = pickle.loads(pickle.dumps(Files(f"{s3_folder}/a b%20c/ü")))
    (tmp_path / "source").write_bytes(b"0123456789")
    files.write("index.json", b"{}")
    files.upload("dali_idx/train-00000-of-00001", tmp_path / "source")
    files.write("odd name%20#?+=&", b"1")

    assert files.names() == {
        "dali_idx/train-00000-of-00001": 10,
        "index.json": 2,
        "odd name%20#?+=&": 1,
    }
    assert files.names("dali_idx/tr") == {"dali_idx/train-00000-of-00001": 10}
    assert files.read("index.json") == b"{}"
    assert files.read("odd name%20#?+=&") == b"1"
    assert files.read_range("dali_idx/train-00000-of-00001", 2, 5) == b"234"
    assert files.size("index.json") == 2

    files.delete("index.json")

    assert not files.exists("index.json")
    assert Files(s3_folder).names("index") == {}


def test_many_threads_read_ranges(s3_folder: str, tmp_path: pathlib.Path) -> None:
    content, files = os.urandom(1_000_000), Files(s3_folder)
    files.write("shard", content)
    with ThreadPoolExecutor(16) as pool:
        pieces = pool.map(
            lambda start: files.read_range("shard", start, start + 10_000),
            range(0, 1_000_000, 10_000),
        )

        assert b"".join(pieces) == content


def test_an_upload_in_parts_is_whole_or_not_at_all(
    s3_folder: str, bad_proxy: BadProxy, tmp_path: pathlib.Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(2 * object_store.UPLOAD_PART_BYTES + 1000))
    bad_proxy.faults.append(Fault(kind="status", methods=("PUT",), times=2))
    Files(s3_folder).upload("shard", source)

    assert Files(s3_folder).read("shard") == source.read_bytes()
    assert bad_proxy.num_requests("*/shard", "PUT") == 3 + 2

    bad_proxy.faults[:] = [Fault(kind="reset", methods=("PUT",))]
    with pytest.raises(errors.RemoteError, match=f"Writing {s3_folder}/new failed"):
        Files(s3_folder, time_limit=1).upload("new", source)

    assert list(Files(s3_folder).names()) == ["shard"]


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_fault_that_passes_is_not_seen_and_one_that_stays_ends_in_time(
    fault: Fault, s3_folder: str, bad_proxy: BadProxy
) -> None:
    content = os.urandom(300_000)
    Files(s3_folder).write("shard", content)
    # A request that hangs is given up so early that two more fit into the limit.
    bad_proxy.faults.append(_times(fault, 2))

    assert (
        Files(s3_folder, time_limit=5).read_range("shard", 7, 250_000)
        == (content[7:250_000])
    )
    assert bad_proxy.num_requests("*/shard") > 2

    bad_proxy.faults[:] = [_times(fault, None)]
    start = time.monotonic()
    with pytest.raises(errors.RemoteError) as raised:
        Files(s3_folder, time_limit=1.5).read_range("shard", 7, 250_000)
    seconds = time.monotonic() - start

    assert f"Reading bytes 7 to 250000 of {s3_folder}/shard failed" in str(raised.value)
    assert (
        "try again, or give a --store_time_limit (in Python: time_limit) above 1.5 s."
        in str(raised.value)
    )
    assert 0.3 < seconds < 15


def test_a_store_may_think_for_a_quarter_of_the_time_limit(
    s3_folder: str, bad_proxy: BadProxy
) -> None:
    Files(s3_folder).write("shard", b"0123456789")
    bad_proxy.faults.append(Fault(kind="delay", seconds=2))

    assert Files(s3_folder, time_limit=8).read_range("shard", 2, 5) == b"234"
    assert bad_proxy.num_requests("*/shard", "GET") == 1


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_no_kind_of_request_sees_a_fault_that_passes(
    fault: Fault, s3_folder: str, bad_proxy: BadProxy, tmp_path: pathlib.Path
) -> None:
    """Some bodies of answers are read by obstore without a second chance."""
    files = Files(s3_folder, time_limit=5)
    content = os.urandom(20_000)
    (tmp_path / "local").write_bytes(content)
    methods = ["GET", "PUT", "POST", "DELETE"]
    if not fault.code:  # the answer to HEAD has no body, so no code either
        methods.append("HEAD")
    fault = dataclasses.replace(fault, after=10, methods=tuple(methods))
    for number in range(20):  # a listing has a body to cut
        files.write(f"old-{number}", content)
    files.version("old-0")
    requests: dict[str, Callable[[], object]] = {
        "read": lambda: files.read("old-0") == content,
        "range": lambda: files.read_range("old-0", 5, 9_000) == content[5:9_000],
        "size": lambda: files.size("old-0") == 20_000,
        "version": lambda: "20000 " in files.version("old-0"),
        "names": lambda: len(files.names()) >= 20,
        "exists": lambda: files.exists("old-0"),
        "missing": lambda: not files.exists("new"),
        "write": lambda: files.write("w", content) or files.read("w") == content,
        "create": lambda: files.create("c", content) and files.read("c") == content,
        "upload": lambda: (
            files.upload("u", tmp_path / "local") or files.read("u") == content
        ),
        "delete": lambda: files.delete("w") or not files.exists("w"),
    }
    for name, request in requests.items():
        bad_proxy.faults[:] = [_times(fault, 1)]
        assert request(), name


@pytest.mark.parametrize("fault", ENDLESS.values(), ids=ENDLESS)
def test_the_time_limit_holds_for_all_tries_together(
    fault: Fault, s3_folder: str, bad_proxy: BadProxy
) -> None:
    Files(s3_folder).write("shard", bytes(300_000))
    bad_proxy.faults.append(fault)
    with pytest.raises(errors.RemoteError, match=r"--store_time_limit .*above 2 s"):
        Files(s3_folder, time_limit=2).read("shard")

    assert bad_proxy.num_requests("*/shard") > 0
    assert bad_proxy.num_bytes("*/shard") < 300_000


def test_a_store_that_sends_elsewhere_is_told_apart(
    s3_folder: str, s3_address: str, bad_proxy: BadProxy
) -> None:
    """In circles, or to another server, to which the login is not sent."""
    for address, said in (
        (bad_proxy.address, "sends the request elsewhere"),
        (s3_address, f"sends the request to {s3_address.removeprefix('http://')}. Set"),
    ):
        bad_proxy.faults[:] = [Fault(kind="redirect", status=307, location=address)]
        with pytest.raises(errors.RemoteError, match=said):
            Files(s3_folder, time_limit=2).read("shard")


def test_a_dead_proxy_is_named(s3_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:hidden@127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(errors.RemoteError, match=r"the proxy 127\.0\.0\.1:1") as raised:
        Files(s3_folder, time_limit=1).read("shard")

    assert "hidden" not in str(raised.value)


def test_keys_that_a_file_gets_during_a_job_are_used(
    s3_folder: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Files(s3_folder).write("shard", b"1")
    path = tmp_path / "credentials"
    text = f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = "
    path.write_text(f"{text}old-{SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    files = Files(s3_folder)
    with pytest.raises(errors.RemoteError, match="SignatureDoesNotMatch"):
        files.read("shard")
    path.write_text(f"{text}{SECRET}\n")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(files.read, ["shard"] * 8)) == [b"1"] * 8


def _https_as_s3(patch: pytest.MonkeyPatch, url: str) -> str:
    patch.setenv("AWS_ENDPOINT_URL", url)
    return f"s3://{BUCKET}"


def _https(patch: pytest.MonkeyPatch, url: str) -> str:
    return f"{url}/{BUCKET}"


@pytest.mark.parametrize(
    ("place", "variable"),
    [(_https_as_s3, "AWS_CA_BUNDLE"), (_https, "SSL_CERT_FILE")],
)
def test_a_certificate_needs_an_authority_that_a_variable_may_name(
    place: Callable[[pytest.MonkeyPatch, str], str],
    variable: str,
    s3_folder: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / BUCKET).mkdir()
    (tmp_path / BUCKET / "shard").write_bytes(b"1")
    certificates = web_server.certificates(tmp_path)
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    with web_server.serve(tmp_path, certificates=certificates) as url:
        where = place(monkeypatch, url)
        with pytest.raises(errors.RemoteError, match="Set SSL_CERT_FILE, for s3"):
            Files(where, time_limit=2).read("shard")
        monkeypatch.setenv(variable, str(certificates / "ca.crt"))

        assert Files(where).read("shard") == b"1"
    with web_server.serve(tmp_path) as url:
        where = place(monkeypatch, url.replace("http:", "https:"))
        with pytest.raises(errors.RemoteError, match="does not speak TLS"):
            Files(where, time_limit=2).read("shard")


def test_a_file_that_is_shorter_than_asked_is_named(s3_folder: str) -> None:
    files = Files(s3_folder)
    files.write("shard", bytes(10))

    for start in (5, 50):
        with pytest.raises(errors.RemoteError, match=f"{s3_folder}/shard .* too short"):
            files.read_range("shard", start, start + 10)


def _missing_bucket(patch: pytest.MonkeyPatch) -> Files:
    return Files("s3://no-such-bucket/photos", time_limit=0.8)


def _wrong_secret(patch: pytest.MonkeyPatch) -> Files:
    patch.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET}-wrong")
    return Files(f"s3://{BUCKET}/photos", time_limit=0.8)


def _wrong_key(patch: pytest.MonkeyPatch) -> Files:
    patch.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONG")
    return Files(f"s3://{BUCKET}/photos", time_limit=0.8)


def _no_credentials(patch: pytest.MonkeyPatch) -> Files:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.delenv(name)
    patch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    return Files(f"s3://{BUCKET}/photos", time_limit=0.8)


def _no_server(patch: pytest.MonkeyPatch) -> Files:
    patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    return Files(f"s3://{BUCKET}/photos", time_limit=0.8)


def _no_http(patch: pytest.MonkeyPatch) -> Files:
    address = os.environ["AWS_ENDPOINT_URL"].replace("http:", "https:")
    patch.setenv("AWS_ENDPOINT_URL", address)
    return Files(f"s3://{BUCKET}/photos", time_limit=0.8)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_missing_bucket, "NoSuchBucket, .*Check the bucket's name"),
        (_wrong_secret, "403 Forbidden, SignatureDoesNotMatch.*Set AWS_ACCESS_KEY_ID"),
        (_wrong_key, "403 Forbidden, InvalidAccessKeyId.*Set AWS_ACCESS_KEY_ID"),
        (_no_credentials, "no credentials were found. Set AWS_ACCESS_KEY_ID"),
        (_no_server, r"http://127.0.0.1:1 cannot be reached \(Connection refused\)"),
        (_no_http, "https://127.0.0.1:.* (cannot be reached|did not answer in time)"),
    ],
    ids=["bucket", "secret", "key", "no key", "no server", "no http"],
)
def test_wrong_settings_are_one_line_in_time_without_secrets(
    make: Callable[[pytest.MonkeyPatch], Files],
    said: str,
    s3_folder: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    files = make(monkeypatch)
    start = time.monotonic()
    for ask in (files.names, lambda: files.read("a"), lambda: files.write("a", b"")):
        with pytest.raises(errors.RemoteError, match=said) as raised:
            ask()
        shown = "".join(traceback.format_exception(raised.value)) + repr(files)

        assert "\n" not in str(raised.value)
        assert SECRET not in shown
        assert KEY not in shown

    assert time.monotonic() - start < 30
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("place", "variable"),
    [
        ("gs://bucket/photos", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://container/photos", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("abfs://container@account.dfs.core.windows.net/a", "AZURE_STORAGE_SAS_TOKEN"),
    ],
)
def test_other_stores_without_credentials_say_how_to_set_them(
    place: str, variable: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing leaves this host: the requests go to a proxy that knows no address."""
    for name in [n for n in os.environ if n.startswith(("GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    with web_server.serve(tmp_path) as address:
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, address)
            monkeypatch.setenv(name.lower(), address)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")

        with pytest.raises(errors.RemoteError) as raised:
            Files(place, time_limit=2).read("shard")

    said = str(raised.value)
    assert f"Reading {place}/shard failed" in said
    assert "no credentials were found" in said
    assert variable in said
    assert "\n" not in said


def test_a_profile_of_the_aws_files_opens_the_store(
    s3_folder: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Files(s3_folder).write("a", b"1")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        f"[team]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    (tmp_path / ".aws/config").write_text(
        f"[profile team]\nendpoint_url = {os.environ['AWS_ENDPOINT_URL']}\n"
        "region = eu-north-1\n"
    )
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "team")

    assert Files(s3_folder).read("a") == b"1"


def test_a_process_made_by_fork_says_that_it_cannot_use_urls(s3_folder: str) -> None:
    code = """if True:
    import os, sys
    from tfpipe.errors import RemoteError
    from tfpipe.location.files import Files
    files = Files(sys.argv[1])
    files.write("a", b"1")
    pid = os.fork()
    try:
        Files(sys.argv[1]).read("a")
    except RemoteError as error:
        print(error, flush=True)
    if not pid:
        os._exit(0)
    os.wait()
    """

    result = subprocess.run(
        [sys.executable, "-c", code, s3_folder],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.count("made by fork") == 1
    assert "spawn" in result.stdout


def test_a_web_server_is_read(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/shard").write_bytes(b"0123456789")
    with web_server.serve(tmp_path) as address:
        files = Files(f"{address}/photos", time_limit=5)

        assert files.read("shard") == b"0123456789"
        assert files.read_range("shard", 2, 5) == b"234"
        assert files.size("shard") == 10
        assert not files.exists("nothing")
        with pytest.raises(errors.MissingFileError, match=f"{address}/photos/nothing"):
            files.read("nothing")
        with pytest.raises(errors.RemoteError, match="too short"):
            files.read_range("shard", 5, 15)
    with web_server.serve(tmp_path, has_ranges=False) as address:
        files = Files(f"{address}/photos")

        assert files.read_range("shard", 0, 10) == b"0123456789"
        assert files.read_range("shard", 2, 5) == b"234"
        monkeypatch.setattr(object_store, "_MOST_WHOLE_BYTES", 9)
        with pytest.raises(errors.RemoteError, match="send ranges"):
            files.read_range("shard", 2, 5)


def _times(fault: Fault, times: int | None) -> Fault:
    return dataclasses.replace(fault, times=times)


def test_a_listed_file_that_is_replaced_is_named_as_such(s3_folder: str) -> None:
    files = pickle.loads(pickle.dumps(Files(s3_folder, is_pinned=True)))
    writer = Files(s3_folder)
    writer.write("shard", b"0123456789")
    assert files.read_range("shard", 2, 5) == b"234"
    assert files.names() == {"shard": 10}
    assert files.read_range("shard", 2, 5) == b"234"

    writer.write("shard", b"9876543210")
    for _ in range(2):  # a later listing changes nothing
        with pytest.raises(errors.RemoteError, match="replaced or copied again") as got:
            files.read_range("shard", 2, 5)
        assert f"{s3_folder}/shard" in str(got.value)
        files.names()

    writer.write("shard", b"0123456789")
    assert files.read_range("shard", 2, 5) == b"234"
    assert writer.read_range("shard", 2, 5) == b"234"
