"""Settings and credentials of the AWS command line's files and variables."""

import datetime
import json
import pathlib
import types

import pytest

from tfpipe import errors
from tfpipe.location import aws

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
    def keys(environ: dict[str, str]) -> dict[str, str] | None:
        made = aws.credentials(environ)
        return made and {k: v for k, v in made().items() if k != "expires_at"}

    team = files | {"AWS_PROFILE": "team"}
    assert aws.settings(files) == {"region": "eu-north-1"}
    assert aws.settings(team) == {
        "region": "eu-west-1",
        "endpoint": "http://127.0.0.1:9000",
    }
    assert keys(files) == {"access_key_id": "AKIA1", "secret_access_key": "a/b%c+d"}
    assert keys(team) == {
        "access_key_id": "AKIA2",
        "secret_access_key": "second",
        "token": "token",
    }
    variables = files | {"AWS_ACCESS_KEY_ID": "AKIA3", "AWS_REGION": "us-west-2"}
    assert aws.settings(variables) == {}
    assert keys(variables) is None
    assert aws.settings(variables | {"AWS_ENDPOINT_URL": "https://s3.x"}) == {
        "endpoint": "https://s3.x"
    }


def test_keys_are_made_by_the_command_that_the_profile_asks_for(
    files: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "[profile own]\ncredential_process = tool --of x\n"
        "[profile role]\ncredential_process = tool\nrole_arn = arn\n"
        "[profile login]\nsso_session = s\n"
    )
    ran = []

    def run(command: list[str], **options: object) -> types.SimpleNamespace:
        ran.append(" ".join(command))
        keys = {"Version": 1, "AccessKeyId": "AKIA4", "SecretAccessKey": "made"}
        return types.SimpleNamespace(returncode=0, stdout=json.dumps(keys).encode())

    monkeypatch.setattr(aws.subprocess, "run", run)
    for profile in ("own", "role", "login"):
        made = aws.credentials(files | {"AWS_PROFILE": profile})
        assert made is not None
        assert made()["access_key_id"] == "AKIA4"

    export = "aws configure export-credentials --format process --profile"
    assert ran == ["tool --of x", f"{export} role", f"{export} login"]


def test_keys_are_kept_until_their_end_if_no_new_ones_can_be_had(
    files: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\ncredential_process = tool\n")
    (tmp_path / "credentials").write_text("")
    monkeypatch.setattr(aws, "_KEPT_FOR", datetime.timedelta(0))
    made = aws.credentials(files)
    assert made is not None
    assert repr(made) == "Credentials(_end=None, _next_read=None)"

    def answer(seconds: float) -> None:
        now = datetime.datetime.now(datetime.UTC)
        end = (now + datetime.timedelta(seconds=seconds)).isoformat()
        keys = {"AccessKeyId": "A", "SecretAccessKey": "B", "Expiration": end}
        done = types.SimpleNamespace(stdout=json.dumps(keys), returncode=0)
        monkeypatch.setattr(aws.subprocess, "run", lambda *_, **__: done)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(2, "No such file")

    monkeypatch.setattr(aws.subprocess, "run", refuse)
    with pytest.raises(errors.RemoteError, match="cannot be run: No such file"):
        made()
    for seconds in (200, -1):
        answer(seconds)
        assert made()["access_key_id"] == "A"
        monkeypatch.setattr(aws.subprocess, "run", refuse)
        if seconds > 0:
            assert made()["access_key_id"] == "A"
    with pytest.raises(errors.RemoteError, match="cannot be run: No such file"):
        made()


def test_the_endpoint_of_s3_comes_before_that_of_all_services(
    files: dict[str, str],
) -> None:
    environ = {"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": "http://s3"}

    assert aws.settings(files | environ)["endpoint"] == "http://s3"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"AWS_PROFILE": "other"}, "AWS_PROFILE is 'other', but neither"),
        (
            {"AWS_ENDPOINT_URL": "127.0.0.1:9000"},
            "must have the endpoint https://HOST:PORT",
        ),
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
        aws.settings(files | environ)


def test_a_broken_file_is_named_without_its_lines(
    files: dict[str, str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "credentials").write_text("[default\naws_secret_access_key = hidden")

    with pytest.raises(
        errors.RemoteError, match="credentials cannot be read"
    ) as raised:
        aws.settings(files)

    assert "hidden" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_files_are_read_again(files: dict[str, str], tmp_path: pathlib.Path) -> None:
    made = aws.credentials(files)
    assert made is not None
    assert made()["access_key_id"] == "AKIA1"
    assert not made.have_changed()
    (tmp_path / "credentials").write_text(CREDENTIALS.replace("AKIA1", "AKIA9"))

    assert made()["access_key_id"] == "AKIA1"  # read within this minute
    assert made.have_changed()
    assert made()["access_key_id"] == "AKIA9"
