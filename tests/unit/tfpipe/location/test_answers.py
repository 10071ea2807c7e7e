"""Messages say why a store refused, and which errors are worth another try."""

import pytest

from tfpipe import errors
from tfpipe.location import answers
from tfpipe.location.answers import Answer

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
SERVER = "the server http://127.0.0.1:9"
NETWORK = (
    "Check the network and the server, and try again, or give a --store_time_limit"
)
KEYS = "Check the credentials. Set AWS_ACCESS_KEY_ID"
ENDED = "The login has ended: log in again. Set AWS_ACCESS_KEY_ID"
AUTHORITY = "No authority that this host trusts"
ELSEWHERE = "The store sends the request elsewhere. Set the region"


def rust(old: str, new: str) -> str:
    """Returns REFUSED with another detail of the failed connection."""
    return REFUSED.replace(old, new)


@pytest.mark.parametrize(
    ("text", "came_back", "remedy"),
    [
        (REFUSED, f"{SERVER} cannot be reached (Connection refused)", NETWORK),
        (EXPIRED, f"{SERVER} cannot be reached (InvalidCertificate(Expired))", "The c"),
        (
            EXPIRED.replace("Expired", "UnknownIssuer"),
            f"{SERVER} cannot be reached (InvalidCertificate(UnknownIssuer))",
            AUTHORITY,
        ),
        (rust("sending request", "following redirect"), None, ELSEWHERE),
        (rust("refused", "InvalidContentType"), None, "The port does not speak TLS"),
        (rust("tcp connect", "tunnel"), None, "The proxy of HTTPS_PROXY"),
        ("a builder error. \n", "a builder error", "Check the settings of the store"),
        ("503 Service Unavailable, SlowDown", "", NETWORK),
        ("408 Request Timeout, X", "", NETWORK),
        ("400 Bad Request, RequestTimeout", "", NETWORK),
        ("400 Bad Request, ExpiredToken", "", ENDED),
        ("400 Bad Request, Other", "", "Check the settings of the store"),
        ("401 Unauthorized, X", "", KEYS),
        ("403 Forbidden, AccessDenied", "", KEYS),
        ("403 Forbidden, ExpiredToken", "", ENDED),
        ("403 Forbidden, RequestTimeTooSkewed", "", "Set the clock of this host."),
        ("407 Proxy Authentication Required, X", "", "The proxy of HTTPS_PROXY"),
        ("301 Moved Permanently, PermanentRedirect", "", ELSEWHERE),
        ("307 Temporary Redirect, TemporaryRedirect", "", ELSEWHERE),
        ("404 Not Found, NoSuchKey", "", "Check its name, its folder and its bucket."),
        ("404 Not Found, NoSuchBucket", "", "Check the bucket's name; make it if it"),
        ("404 Not Found, ContainerNotFound", "", "Check the bucket's name; make it if"),
        ("416 Range Not Satisfiable, InvalidRange", "", "The file is too short: copy"),
    ],
)
def test_an_error_is_one_line_with_a_remedy_and_without_secrets(
    text: str, came_back: str | None, remedy: str
) -> None:
    kind = FileNotFoundError if text.startswith("404") else OSError
    if came_back == "":
        text, came_back = STATUS.format(*text.split(", ")), f"{text}, You & I"

    answer, said, then = Answer(kind(text), "s3", time_limit=10.0).explain()

    assert came_back is None or said == came_back
    assert "hidden" not in said
    assert "\n" not in said
    assert then.startswith(remedy)
    may_pass = remedy == NETWORK or ("HttpError" in text and remedy != ELSEWHERE)
    refused = errors.MissingFileError if "NoSuchKey" in text else errors.RefusedError
    assert answer is (errors.RemoteError if may_pass else refused)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "abfs"])
def test_a_login_that_may_only_read_is_told_what_it_needs(scheme: str) -> None:
    text = STATUS.format("403 Forbidden", "AccessDenied")

    assert answers.LOGINS[scheme] in Answer(OSError(text), scheme).explain()[2]
    writing = Answer(OSError(text), scheme, is_write=True).explain()[2]
    assert "must be allowed to write there" in writing


def test_an_answer_that_is_no_xml_is_one_line() -> None:
    json = 'status code: 400 Bad Request: {"error":{"message": "invalid type"}}'
    azure = "status code: 404 Not Found: <Message>None.\nRequestId:7\nTime:8</Message>"

    assert Answer(OSError(json)).explain()[1] == "400 Bad Request, invalid type"
    assert Answer(OSError(azure)).explain()[1] == "404 Not Found, None"


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({"http_proxy": "http://me:hidden@127.0.0.1:3128"}, "127.0.0.1:3128"),
        ({"all_proxy": "127.0.0.1:3128"}, "127.0.0.1:3128"),
        ({"https_proxy": "http://127.0.0.1:3128"}, ""),
        ({"http_proxy": "http://127.0.0.1:3128", "no_proxy": "127.0.0.1"}, ""),
        ({}, ""),
    ],
)
def test_a_proxy_is_told_apart_from_the_store(
    variables: dict[str, str], proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    _, said, remedy = Answer(OSError(REFUSED), "s3").explain()

    assert ("through the proxy" in said) == bool(proxy)
    assert proxy in said
    assert remedy.startswith(f"Check the proxy {proxy}," if proxy else "Check the net")
    assert "hidden" not in said + remedy


@pytest.mark.parametrize(
    ("text", "may_pass", "is_refused"),
    [
        (STATUS.format("400 Bad Request", "RequestTimeout"), True, False),
        (STATUS.format("400 Bad Request", "ExpiredToken"), False, True),
        (STATUS.format("401 Unauthorized", "X"), False, True),
        (STATUS.format("403 Forbidden", "X"), False, True),
        (STATUS.format("404 Not Found", "RequestTimeout"), False, False),
        (STATUS.format("412 Precondition Failed", "X"), False, False),
        (STATUS.format("503 Service Unavailable", "X"), True, False),
        (REFUSED, True, False),
    ],
)
def test_what_may_be_asked_again(text: str, may_pass: bool, is_refused: bool) -> None:
    answer = Answer(OSError(text))

    assert (answer.may_pass, answer.is_refused) == (may_pass, is_refused)


def test_credentials_that_cannot_be_made_say_why() -> None:
    text = "Access: External AWS credential provider: RemoteError: aws is not there.\n"

    assert Answer(OSError(text), "s3").explain() == (
        errors.RefusedError,
        "no credentials were made",
        "aws is not there.",
    )
