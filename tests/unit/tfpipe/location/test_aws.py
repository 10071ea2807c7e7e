"""Settings and credentials of the AWS command line's files and variables."""

import pathlib

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
