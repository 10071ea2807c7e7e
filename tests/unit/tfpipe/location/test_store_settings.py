"""Settings of the stores from the variables that their users set."""

import json
import pathlib

import pytest

from tfpipe import errors
from tfpipe.location import store_settings
from tfpipe.location.location import Location

S3, GS = Location("s3://bucket/a"), Location("gs://bucket/a")
AZ, ABFS = Location("az://files/a"), Location("abfs://files@me.dfs.core.windows.net/a")
CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
HOST = "STORAGE_EMULATOR_HOST"


def azure(connection: str) -> store_settings.StoreSettings:
    return store_settings.find(AZ, {CONNECTION: connection})


@pytest.mark.parametrize(
    ("connection", "config", "allow_http"),
    [
        (
            "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=a/b==;"
            "EndpointSuffix=core.windows.net",
            {
                "account_name": "me",
                "account_key": "a/b==",
                "endpoint": "https://me.blob.core.windows.net",
            },
            False,
        ),
        (
            "AccountName=me;AccountKey=k=;BlobEndpoint=http://127.0.0.1:7/me/;",
            {
                "account_name": "me",
                "account_key": "k=",
                "endpoint": "http://127.0.0.1:7/me",
            },
            True,
        ),
        (
            "BlobEndpoint=https://me.blob.core.windows.net;SharedAccessSignature=sv=1&b",
            {
                "account_name": "me",
                "sas_key": "sv=1&b",
                "endpoint": "https://me.blob.core.windows.net",
            },
            False,
        ),
        (
            "BlobEndpoint=http://127.0.0.1:7/me;SharedAccessSignature=sv=1",
            {
                "account_name": "me",
                "sas_key": "sv=1",
                "endpoint": "http://127.0.0.1:7/me",
            },
            True,
        ),
    ],
)
def test_a_connection_string_of_azure(
    connection: str, config: dict[str, str], allow_http: bool
) -> None:
    settings = azure(connection)

    assert settings.config == config
    assert settings.allow_http == allow_http
    assert "a/b==" not in repr(settings)


def test_the_emulator_of_azure() -> None:
    settings = azure("UseDevelopmentStorage=true")

    assert settings.config["account_name"] == "devstoreaccount1"
    assert settings.config["endpoint"] == "http://127.0.0.1:10000/devstoreaccount1"
    assert settings.allow_http


def test_the_account_of_a_url_and_of_the_connection_string_are_one() -> None:
    connection = "AccountName={};AccountKey=k="
    mine = {CONNECTION: connection.format("me")}

    assert "account_name" not in store_settings.find(ABFS, mine).config
    with pytest.raises(errors.RemoteError, match="must be of the account that"):
        store_settings.find(ABFS, {CONNECTION: connection.format("you")})


@pytest.mark.parametrize(
    ("location", "variable", "value", "said"),
    [
        (AZ, CONNECTION, "hidden", "must have AccountName and AccountKey"),
        (AZ, CONNECTION, "AccountName=me", "must have AccountName and AccountKey"),
        (
            AZ,
            "AZURE_STORAGE_ENDPOINT",
            "127.0.0.1:7",
            "must have the endpoint https://",
        ),
        (AZ, "AZURE_STORAGE_ENDPOINT", "http://a:hidden@b", "without a user name"),
        (GS, HOST, "ftp://host", "must have the endpoint https://"),
        (S3, "AWS_CA_BUNDLE", "/no/file.pem", "which cannot be read: No such file"),
        (S3, "AWS_CA_BUNDLE", "/dev/null", "must be a PEM file with certificates"),
        (
            AZ,
            "SSL_CERT_FILE",
            "/no/file.pem",
            "SSL_CERT_FILE names /no/file.pem, which",
        ),
    ],
)
def test_a_wrong_variable_is_named_without_secrets(
    location: Location, variable: str, value: str, said: str
) -> None:
    with pytest.raises(errors.RemoteError, match=said) as raised:
        store_settings.find(location, {variable: value})

    assert variable in str(raised.value)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("host", "endpoint", "allow_http"),
    [
        ("127.0.0.1:4443", "http://127.0.0.1:4443", True),
        ("http://127.0.0.1:4443/", "http://127.0.0.1:4443", True),
        ("https://emulator", "https://emulator", False),
    ],
)
def test_the_emulator_of_google(host: str, endpoint: str, allow_http: bool) -> None:
    settings = store_settings.find(GS, {HOST: host})
    account = json.loads(settings.config["service_account_key"])

    assert (account["gcs_base_url"], account["disable_oauth"]) == (endpoint, True)
    assert settings.allow_http == allow_http


def test_without_variables_obstore_finds_all_itself() -> None:
    for location in (GS, AZ, ABFS, Location("https://host/a")):
        assert store_settings.find(location, {}) == store_settings.StoreSettings()
    assert store_settings.find(Location("http://host/a"), {}).allow_http


def test_an_authority_of_s3_comes_from_a_variable_or_the_profile(
    tmp_path: pathlib.Path,
) -> None:
    pem = "-----BEGIN CERTIFICATE-----\n"
    (tmp_path / "ca.pem").write_text(pem)
    (tmp_path / "config").write_text(f"[default]\nca_bundle = {tmp_path}/ca.pem\n")
    none = {"AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_CONFIG_FILE": "/none"}
    config = none | {"AWS_CONFIG_FILE": str(tmp_path / "config")}
    variable = none | {"AWS_CA_BUNDLE": str(tmp_path / "ca.pem")}

    assert store_settings.find(S3, config).certificates == pem
    assert store_settings.find(S3, variable).certificates == pem
    assert store_settings.find(S3, none).certificates == ""
