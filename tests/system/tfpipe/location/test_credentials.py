"""Credentials that a command makes, or a file holds, and that change during a job."""

import json
import pathlib
import re

import pytest

from tfpipe import errors
from tfpipe.location import aws


def made_by(tmp_path: pathlib.Path, output: str, profile: str = "") -> dict[str, str]:
    """Returns variables of a profile whose keys a command prints, as it is now."""
    (tmp_path / "output").write_text(output)
    command = tmp_path / "aws"
    command.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        f"[ -s {tmp_path}/output ] && cat {tmp_path}/output\n"
    )
    command.chmod(0o755)
    (tmp_path / "calls").touch()
    process = f"credential_process = {command} --for me"
    (tmp_path / "config").write_text(f"[default]\n{profile or process}\n")
    (tmp_path / "credentials").write_text("")
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "PATH": f"{tmp_path}:/bin:/usr/bin",
    }


def printed(key: str, end: str | None = None) -> str:
    """Returns what a command prints that makes keys."""
    document = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "hidden"}
    return json.dumps(document | ({"Expiration": end} if end else {}))


@pytest.mark.parametrize(
    ("profile", "called_with"),
    [
        ("", "--for me"),
        *(
            (line, "configure export-credentials --format process --profile default")
            for line in (
                "sso_session = company",
                "sso_start_url = https://company",
                "role_arn = arn:aws:iam::1:role/reader",
                # A role whose source profile is in the same file has both.
                "role_arn = arn:aws:iam::1:role/reader\naws_access_key_id = AKIA",
            )
        ),
    ],
)
def test_a_command_makes_keys_that_are_kept_until_they_end(
    profile: str, called_with: str, tmp_path: pathlib.Path
) -> None:
    environ = made_by(tmp_path, printed("AKIA1", "2099-01-01T00:00:00Z"), profile)
    made = aws.credentials(environ)
    assert made is not None

    assert made()["access_key_id"] == "AKIA1"
    assert made()["expires_at"].year in (2098, 2099)
    assert (tmp_path / "calls").read_text() == f"{called_with}\n"
    assert "hidden" not in repr(made)

    # Keys that end soon are made again, and not for each request.
    (tmp_path / "output").write_text(printed("AKIA2", "2001-01-01T00:00:00+00:00"))
    made = aws.credentials(environ)
    assert made is not None
    assert made()["access_key_id"] == "AKIA2"
    assert made()["access_key_id"] == "AKIA2"
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", "ended with exit code 1. Log in again"),
        ("no JSON hidden", "must print JSON with AccessKeyId"),
        ('{"AccessKeyId": "hidden"}', "must print JSON with AccessKeyId"),
        ("[]", "must print JSON with AccessKeyId"),
    ],
)
def test_a_command_that_makes_no_keys_is_named_without_its_output(
    output: str, said: str, tmp_path: pathlib.Path
) -> None:
    made = aws.credentials(made_by(tmp_path, output))
    assert made is not None

    with pytest.raises(errors.RemoteError, match=re.escape(said)) as raised:
        made()

    assert str(tmp_path / "aws") in str(raised.value)
    assert "hidden" not in str(raised.value)
    (tmp_path / "aws").unlink()
    with pytest.raises(errors.RemoteError, match="cannot be run: No such file"):
        made()


def test_keys_that_are_still_good_outlive_a_command_that_fails(
    tmp_path: pathlib.Path,
) -> None:
    made = aws.credentials(made_by(tmp_path, printed("AKIA1", "2099-01-01T00:00:00Z")))
    assert made is not None
    assert made()["access_key_id"] == "AKIA1"
    (tmp_path / "output").write_text("")

    assert not made.have_changed()
    assert made()["access_key_id"] == "AKIA1"
