"""Settings of the AWS command line that obstore does not read.

In: the environment. Out: region, endpoint and authorities of a store; credentials that
are read again while a job runs. obstore itself reads the variables of keys, and the
roles of machines, containers and web identities.
"""

import configparser
import contextlib
import dataclasses
import datetime
import pathlib
import re
import shlex
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

from tfpipe import errors
from tfpipe.location import location as locations

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
# A profile with one of these has keys that the AWS command line makes.
_MADE = {"role_arn", "sso_session", "sso_start_url", "login_session"}
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
# The most specific one first.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# Any of these says where else the credentials are.
_OTHER_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

# obstore asks for new credentials when these have less time left.
_OBSTORE_MARGIN = datetime.timedelta(minutes=5)
# Credentials are read again after this time, and not before.
_KEPT_FOR = datetime.timedelta(minutes=1)
_PROCESS_SECONDS = 60.0


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns settings of the store that are no credentials.

    The profile AWS_PROFILE, or `default`, of ~/.aws/credentials and ~/.aws/config
    applies where no variable does.

    Args:
        environ: The environment. AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name
            other files.

    Returns:
        Some of `region`, `endpoint` and `ca_bundle`.

    Raises:
        RemoteError: If a variable is wrong, a file cannot be understood, or the files
            lack the profile AWS_PROFILE.
    """
    for name in (*map(str.upper, _KEYS), *_REGIONS, *_ENDPOINTS):
        if re.search(r"\s", environ.get(name, "")):
            raise errors.RemoteError(f"{name} must have no space and no end of line.")
    profile = _profile(environ)
    result = {}
    if "region" in profile and not any(environ.get(name) for name in _REGIONS):
        result["region"] = profile["region"]
    if bundle := environ.get("AWS_CA_BUNDLE") or profile.get("ca_bundle"):
        result["ca_bundle"] = bundle
    named = [environ[name] for name in _ENDPOINTS if environ.get(name)]
    if text := (*named, profile.get("endpoint_url", ""))[0]:
        what = "AWS_ENDPOINT_URL, or endpoint_url of the AWS profile,"
        result["endpoint"] = endpoint(what, text)
    return result


def endpoint(what: str, text: str) -> str:
    """Returns the endpoint of a store; a password in it would be printed.

    Raises:
        RemoteError: If the text is no URL of a server, or has a user name.
    """
    if not (re.match("(?i)https?://", text) and locations.has_no_secret(text)):
        raise errors.RemoteError(
            f"{what} must have the endpoint https://HOST:PORT or http://HOST:PORT, "
            "without a user name."
        )
    return text.rstrip("/")


def credentials(environ: Mapping[str, str]) -> "Credentials | None":
    """Returns the credentials of the profile; None if obstore finds others.

    Raises:
        RemoteError: If a file cannot be understood.
    """
    if any(environ.get(name) for name in _OTHER_CREDENTIALS):
        return None
    profile = _profile(environ)
    is_made = "credential_process" in profile or _MADE & set(profile)
    has_keys = _KEYS[0] in profile or is_made
    return Credentials(dict(environ)) if has_keys else None


@dataclasses.dataclass(eq=False)
class Credentials:
    """The keys of a profile, read again when they may have changed.

    The files of the profile are read each minute. `credential_process` is run, or
    `aws configure export-credentials` for a role or a single sign-on, when its keys
    come to their end.

    Args:
        environ: The environment.
    """

    environ: Mapping[str, str] = dataclasses.field(repr=False)
    _lock: Any = dataclasses.field(default_factory=threading.Lock, repr=False)
    _keys: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    _end: datetime.datetime | None = None
    _next_read: datetime.datetime | None = None

    def __call__(self) -> dict[str, Any]:
        """Returns the keys as obstore takes them, with the time of their end.

        Raises:
            RemoteError: If there are no keys that are valid now.
        """
        with self._lock:
            now = datetime.datetime.now(datetime.UTC)
            if self._next_read is None or now >= self._next_read:
                self._read(now)
            # obstore asks again when its margin begins, which is the next read.
            asks_again = self._next_read or now
            return self._keys | {"expires_at": asks_again + _OBSTORE_MARGIN}

    def have_changed(self) -> bool:
        """Reads the keys at once, and returns whether they are others than before."""
        with self._lock, contextlib.suppress(errors.RemoteError):
            before = self._keys
            self._read(datetime.datetime.now(datetime.UTC))
            return bool(before) and self._keys != before
        return False

    def _read(self, now: datetime.datetime) -> None:
        try:
            self._keys, self._end = _read_keys(self.environ)
        except errors.RemoteError:
            if self._end is None or self._end <= now:
                raise
        self._next_read = now + _KEPT_FOR
        if self._end is not None:
            self._next_read = max(self._next_read, self._end - _OBSTORE_MARGIN)


def _read_keys(
    environ: Mapping[str, str],
) -> tuple[dict[str, str], datetime.datetime | None]:
    """Returns the keys of the profile, and the time of their end if it is known."""
    profile = _profile(environ)
    if _KEYS[0] in profile and not _MADE & set(profile):
        if _KEYS[1] not in profile:
            raise errors.RemoteError(
                "The AWS profile has aws_access_key_id and no aws_secret_access_key."
            )
        names = ("access_key_id", "secret_access_key", "token")
        named = zip(names, _KEYS, strict=True)
        return {k: profile[key] for k, key in named if key in profile}, None
    command = shlex.split(profile.get("credential_process", ""))
    if not command or _MADE & set(profile):
        name = _profile_name(environ)
        command = ["aws", "configure", "export-credentials", "--format", "process"]
        command += ["--profile", name]
    return _made_by(command, environ)


def _made_by(
    command: list[str], environ: Mapping[str, str]
) -> tuple[dict[str, str], datetime.datetime | None]:
    """Runs the command that makes keys. No error repeats its output."""
    what = f"{command[0]}, which must make the credentials of the AWS profile,"
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            capture_output=True,
            timeout=_PROCESS_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"no end in {_PROCESS_SECONDS} s"
        raise errors.RemoteError(
            f"{what} cannot be run: {reason}. Install it, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        ) from None
    if done.returncode:
        raise errors.RemoteError(
            f"{what} ended with exit code {done.returncode}. Log in again (`aws sso "
            f"login`), and try `{shlex.join(command)}`."
        )
    try:
        document = errors.from_json(done.stdout)
        keys = {
            "access_key_id": str(document["AccessKeyId"]),
            "secret_access_key": str(document["SecretAccessKey"]),
        }
        if document.get("SessionToken"):
            keys["token"] = str(document["SessionToken"])
        end = document.get("Expiration")
        return keys, None if end is None else _time(end)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise errors.RemoteError(
            f"{what} must print JSON with AccessKeyId and SecretAccessKey, as "
            "credential_process of the AWS command line does."
        ) from None


def _time(text: str) -> datetime.datetime:
    time = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)


def _profile_name(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"


def _profile(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the keys and values of the profile in both files."""
    name = _profile_name(environ)
    found: dict[str, str] = {}
    is_there = False
    for variable, file, prefix in (
        ("AWS_CONFIG_FILE", "config", "" if name == "default" else "profile "),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", ""),
    ):
        path = pathlib.Path(environ.get(variable) or f"~/.aws/{file}").expanduser()
        # A value may hold a %.
        parser = configparser.ConfigParser(interpolation=None, default_section="\0")
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, ValueError):
            # The parser's own error repeats lines of the file.
            raise errors.RemoteError(
                f"{path} cannot be read as a file of AWS profiles: correct it, or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            ) from None
        if parser.has_section(prefix + name):
            is_there = True
            found |= dict(parser[prefix + name])
    if not is_there and name != "default":
        raise errors.RemoteError(
            f"AWS_PROFILE is {name!r}, but neither ~/.aws/credentials nor "
            "~/.aws/config has this profile."
        )
    return found
