"""Settings of the AWS command line, and what is said about an answer of a store."""

import pathlib

import pytest

from tfpipe import errors
from tfpipe.location import object_store
from tfpipe.location.location import Location

CREDENTIALS = """
[default]
aws_access_key_id = AKIA1
aws_secret_access_key = a/b%c+d
[team]
aws_access_key_id = AKIA2
aws_secret_access_key = second
aws_session_token = token
"""
CONFIG = """
[default]
region = eu-north-1
[profile team]
region = eu-west-1
endpoint_url = http://127.0.0.1:9000
s3 =
    max_concurrent_requests = 20
"""


@pytest.fixture
def files(tmp_path: pathlib.Path) -> dict[str, str]:
    """Variables that name the two files of the AWS command line."""
    (tmp_path / "credentials").write_text(CREDENTIALS)
    (tmp_path / "config").write_text(CONFIG)
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }


def test_the_profile_applies_where_no_variable_does(files: dict[str, str]) -> None:
    settings = object_store.aws_settings

    assert settings(files) == {
        "access_key_id": "AKIA1",
        "secret_access_key": "a/b%c+d",
        "region": "eu-north-1",
    }
    assert settings(files | {"AWS_PROFILE": "team"}) == {
        "access_key_id": "AKIA2",
        "secret_access_key": "second",
        "session_token": "token",
        "region": "eu-west-1",
        "endpoint": "http://127.0.0.1:9000",
    }
    variables = {"AWS_ACCESS_KEY_ID": "AKIA3", "AWS_REGION": "us-west-2"}
    assert settings(files | variables) == {}
    assert settings(files | variables | {"AWS_ENDPOINT_URL": "https://s3.x"}) == {
        "endpoint": "https://s3.x"
    }


def test_the_endpoint_of_s3_comes_before_that_of_all_services(
    files: dict[str, str],
) -> None:
    environ = {"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": "http://s3"}

    assert object_store.aws_settings(files | environ)["endpoint"] == "http://s3"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"AWS_PROFILE": "other"}, "AWS_PROFILE is 'other', but neither"),
        ({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "must be https://HOST:PORT"),
        ({"AWS_ACCESS_KEY_ID": "AKIA\n"}, "AWS_ACCESS_KEY_ID must have no space"),
        ({"AWS_SECRET_ACCESS_KEY": "a b"}, "AWS_SECRET_ACCESS_KEY must have no space"),
        ({"AWS_REGION": " us-east-1"}, "AWS_REGION must have no space"),
        ({"AWS_ENDPOINT_URL": "http://me:word@host"}, "without a user name"),
    ],
)
def test_wrong_settings_are_named(
    files: dict[str, str], environ: dict[str, str], said: str
) -> None:
    with pytest.raises(errors.RemoteError, match=said):
        object_store.aws_settings(files | environ)


def test_a_broken_file_is_named_without_its_lines(
    files: dict[str, str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "credentials").write_text("[default\naws_secret_access_key = hidden")

    with pytest.raises(
        errors.RemoteError, match="credentials cannot be read"
    ) as raised:
        object_store.aws_settings(files)

    assert "hidden" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_a_profile_with_credentials_of_another_kind_says_the_way_out(
    files: dict[str, str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "config").write_text("[profile sso]\nsso_session = company\n")

    with pytest.raises(errors.RemoteError, match="export-credentials"):
        object_store.aws_settings(files | {"AWS_PROFILE": "sso"})


# As obstore words its errors: a line, then what Rust says of the error.
REFUSED = """Generic HTTP error: Error performing GET http://127.0.0.1:9/x?sig=hidden \
in 318.1ms, after 13 retries, retry_timeout: 300ms  - HTTP error: error sending request

Debug source:
Generic { store: "HTTP", source: RetryError( RetryErrorImpl { inner: Http( HttpError {
    kind: Connect,
    source: ConnectError("tcp connect error", Os { message: "Connection refused" })
"""
EXPIRED = REFUSED.replace(
    'Os { message: "Connection refused" }', "InvalidCertificate(\n  Expired )"
)
STATUS = """Generic HTTP error: Error performing GET http://me:hidden@host/x?s=hidden \
in 1ms - Server returned non-2xx status code: {}: <?xml version="1.0"?><Error>\
<Code>{}</Code><Message>You &amp; I.</Message></Error>

Debug source: Status
"""
NETWORK = "Check the network and the server, and try again."
SERVER = "the server http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("text", "came_back", "remedy"),
    [
        (REFUSED, f"{SERVER} cannot be reached (Connection refused)", NETWORK),
        (EXPIRED, f"{SERVER} cannot be reached (InvalidCertificate(Expired))", NETWORK),
        ("a builder error. \n", "a builder error", "Check the settings of the store"),
        ("503 Service Unavailable, SlowDown", "", NETWORK),
        ("403 Forbidden, AccessDenied", "", "Check the credentials."),
        ("404 Not Found, NoSuchKey", "", "Check its name, its folder and its bucket."),
        ("404 Not Found, NoSuchBucket", "", "Check the bucket's name; make it if it"),
        ("416 Range Not Satisfiable, InvalidRange", "", "The file is too short: copy"),
    ],
)
def test_an_error_is_one_line_with_a_remedy_and_without_secrets(
    text: str, came_back: str, remedy: str
) -> None:
    store = object_store.ObjectStore(Location("http://127.0.0.1:9/x"), 10.0)
    kind = FileNotFoundError if text.startswith("404") else OSError
    if not came_back:
        text, came_back = STATUS.format(*text.split(", ")), f"{text}, You & I"

    is_missing, said, then = store.explain(kind(text))

    assert said == came_back
    assert then.startswith(remedy)
    assert is_missing == ("NoSuchKey" in text)


def test_requests_take_no_longer_than_the_time_limit() -> None:
    store = object_store._open(Location("https://127.0.0.1:9/x"), 10.0)

    retry, client = store.retry_config, store.client_options
    assert retry["retry_timeout"].total_seconds() == 6
    assert retry["backoff"]["max_backoff"].total_seconds() == 0.5
    assert (client["timeout"], client["read_timeout"]) == ("3s", "1s")
    assert client["connect_timeout"] == "1s"
    assert client["allow_http"] == "false"


def test_s3_has_the_bucket_and_the_folder_of_the_url(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (files | {"AWS_PROFILE": "team"}).items():
        monkeypatch.setenv(name, value)

    store = object_store._open(Location("s3://bucket/photos/2024"), 10.0)

    assert (store.config["bucket"], store.prefix) == ("bucket", "photos/2024")
    assert store.config["endpoint"] == "http://127.0.0.1:9000"
    assert store.client_options["allow_http"] == "true"
