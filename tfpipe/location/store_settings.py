"""The settings of each object store, from the variables that its users set.

In: a URL and the environment. Out: settings for obstore. obstore reads most
variables of credentials itself; here are those of emulators, endpoints, authorities of
certificates, and of the AWS command line.

| scheme | variables that are read here |
|---|---|
| s3 | those of `aws` |
| gs | STORAGE_EMULATOR_HOST |
| az, abfs | AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ENDPOINT |
| all | SSL_CERT_FILE |
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Mapping

from tfpipe import errors
from tfpipe.location import aws
from tfpipe.location.location import Location

_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
_AZURE_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
# The public account of Azure's emulator, from its documentation.
_DEVELOPMENT = {
    "AccountName": "devstoreaccount1",
    "AccountKey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
    "K1SZFPTOtr/KBHBeksoGMGw==",
    "BlobEndpoint": "http://127.0.0.1:10000/devstoreaccount1",
}
_IN_CONNECTION = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Settings of a store for obstore.

    Attributes:
        config: Settings of the store; some are credentials.
        credentials: Makes credentials while a job runs; None leaves them to obstore.
        allow_http: Whether the endpoint itself says http://.
        certificates: PEM text of authorities besides those of the system, or "".
    """

    config: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    credentials: aws.Credentials | None = None
    allow_http: bool = False
    certificates: str = ""


def find(location: Location, environ: Mapping[str, str]) -> StoreSettings:
    """Returns the settings of the store of a URL.

    Args:
        location: A URL of `location.OBJECT_SCHEMES`.
        environ: The environment.

    Raises:
        RemoteError: If a variable or a file that it names is wrong.
    """
    if environ.get("SSL_CERT_FILE"):  # obstore reads the file, and says no error
        _certificates("SSL_CERT_FILE", environ["SSL_CERT_FILE"])
    return _FINDERS[location.scheme](location, environ)


def _s3(location: Location, environ: Mapping[str, str]) -> StoreSettings:
    config = aws.settings(environ)
    bundle = config.pop("ca_bundle", "")
    return StoreSettings(
        config=config,
        credentials=aws.credentials(environ),
        allow_http=_is_http(config),
        certificates=_certificates("AWS_CA_BUNDLE", bundle) if bundle else "",
    )


def _google(location: Location, environ: Mapping[str, str]) -> StoreSettings:
    host = environ.get("STORAGE_EMULATOR_HOST", "")
    if not host:
        return StoreSettings()
    host = host if "://" in host else f"http://{host}"
    endpoint = aws.endpoint("STORAGE_EMULATOR_HOST", host)
    # The emulator asks for no login, as in Google's own clients.
    account = {"gcs_base_url": endpoint, "disable_oauth": True}
    account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    config = {"service_account_key": json.dumps(account)}
    return StoreSettings(config=config, allow_http=endpoint.startswith("http://"))


def _azure(location: Location, environ: Mapping[str, str]) -> StoreSettings:
    config = {}
    if connection := environ.get(_CONNECTION):
        config = _connection(connection)
    for name in _AZURE_ENDPOINTS:
        if environ.get(name):
            config["endpoint"] = aws.endpoint(name, environ[name])
    account = re.match(r"abfs://[^@/]+@([^./]+)", location.text)
    if account and config.pop("account_name", account[1]) != account[1]:
        raise errors.RemoteError(
            f"{location.shown} must be of the account that {_CONNECTION} has the key "
            "of. Set the connection string of this account, or write az://CONTAINER."
        )
    return StoreSettings(config=config, allow_http=_is_http(config))


def _connection(text: str) -> dict[str, str]:
    """Returns the settings in a connection string of Azure."""
    pairs = [part.partition("=") for part in text.strip().strip(";").split(";")]
    parts = {name.strip(): value.strip() for name, _, value in pairs}
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        parts = _DEVELOPMENT | parts
    if "BlobEndpoint" not in parts and "AccountName" in parts:
        protocol = parts.get("DefaultEndpointsProtocol", "https")
        suffix = parts.get("EndpointSuffix", "core.windows.net")
        host = f"{parts['AccountName']}.blob.{suffix}"
        parts["BlobEndpoint"] = f"{protocol}://{host}"
    config = {new: parts[old] for old, new in _IN_CONNECTION.items() if old in parts}
    if not {"account_key", "sas_key"} & set(config) or "endpoint" not in config:
        raise errors.RemoteError(
            f"{_CONNECTION} must have AccountName and AccountKey, or BlobEndpoint and "
            "SharedAccessSignature, as NAME=VALUE with ; between them."
        )
    config["endpoint"] = aws.endpoint(_CONNECTION, config["endpoint"])
    if "account_name" not in config:  # the emulator has the account in the path
        _, _, host, *path = config["endpoint"].split("/")
        config["account_name"] = path[0] if path else host.partition(".")[0]
    return config


def _web(location: Location, environ: Mapping[str, str]) -> StoreSettings:
    return StoreSettings(allow_http=location.scheme == "http")


_FINDERS: dict[str, Callable[[Location, Mapping[str, str]], StoreSettings]] = {
    "s3": _s3,
    "gs": _google,
    "az": _azure,
    "abfs": _azure,
    "http": _web,
    "https": _web,
}


def _is_http(config: Mapping[str, str]) -> bool:
    return config.get("endpoint", "").lower().startswith("http://")


def _certificates(name: str, path: str) -> str:
    """Returns the text of a PEM file with the authorities of certificates."""
    try:
        text = pathlib.Path(path).expanduser().read_text("utf-8", "replace")
    except OSError as error:
        raise errors.RemoteError(
            f"{name} names {path}, which cannot be read: {error.strerror}. Give the "
            "PEM file of the authority that signed the certificate of the store."
        ) from None
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise errors.RemoteError(
            f"{name} names {path}, which must be a PEM file with certificates."
        )
    return text
