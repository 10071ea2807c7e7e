"""The meaning of an error of obstore, for people and for a second try.

In: an error of obstore. Out: the answer, as a short line without secrets; a remedy;
and whether the same request may succeed later.
"""

import dataclasses
import errno
import html
import os
import re
import urllib.parse
import urllib.request

from tfpipe import errors
from tfpipe.location import limits

_IN_BODIES = (
    r"<Code>([^<]*)</Code>",
    r"<Message>([^<]*)</Message>",
    r'"message": ?"([^"]*)"',
)
_MAX_CHARACTERS = 300
# Kinds of obstore's HttpError.
_KINDS = {
    "Connect": "cannot be reached",
    "Timeout": "did not answer in time",
    "Interrupted": "broke off the connection",
}
# Where the AWS, Google and Azure machines hand out credentials.
_METADATA_SERVERS = ("169.254.169.254", "latest/api/token", "metadata.google.internal")
LOGINS = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a "
    "profile of ~/.aws/credentials; for a public bucket AWS_SKIP_SIGNATURE=true.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default "
    "login`; for a public bucket set GOOGLE_SKIP_SIGNATURE=true.",
    "az": "Set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or run `az login` and set "
    "AZURE_USE_AZURE_CLI=true.",
}
LOGINS["abfs"] = LOGINS["az"]
_RIGHTS = {
    "s3": "s3:PutObject, s3:DeleteObject and s3:ListBucket",
    "gs": "the role roles/storage.objectUser",
    "az": "the role Storage Blob Data Contributor, or a SAS with sp=racwdl",
}
_RIGHTS["abfs"] = _RIGHTS["az"]

_MADE_BY = "External AWS credential provider: "
_REFUSED = (
    r"(?:status|response) code: 40[13]\b|Unauthenticated|ExpiredToken|InvalidToken"
)
_WHOLE = "RangeNotSupported|non-partial response"
ELSEWHERE = (
    "Set the region of the bucket (AWS_REGION) and its own endpoint (AWS_ENDPOINT_URL)."
)
# Patterns of texts and their remedies; the first match counts.
_REMEDIES = {
    r"RequestTimeTooSkewed|AuthenticationFailed.*Date header": "Set the clock of this "
    "host.",
    r"status code: 407|tunnel error": "The proxy of HTTPS_PROXY or HTTP_PROXY refuses: "
    "correct its user name and password, or put the host of the store into NO_PROXY.",
    r"UnknownIssuer|CaUsedAsEndEntity|BadSignature": "No authority that this host "
    "trusts has signed the certificate of the store. Set SSL_CERT_FILE, for s3:// also "
    "AWS_CA_BUNDLE, to the PEM file of the authority.",
    r"InvalidCertificate": "The certificate of the store must be valid now and for "
    "this host name. Have it renewed, or write the name that it has.",
    r"InvalidContentType|InvalidMessage": "The port does not speak TLS. Write http:// "
    "in the endpoint or the URL.",
    r"HTTP request (?:was sent )?to (?:an )?HTTPS": "The port speaks TLS. Write "
    "https:// in the endpoint or the URL.",
    r"[Rr]edirect|status code: 30[1278]": "The store sends the request elsewhere. "
    f"{ELSEWHERE}",
    r"status code: 412": "The file is another one than when the data set was opened: "
    "the data set was replaced or copied again while it was read. Start the run again.",
    r"status code: 416": "The file is too short: copy it again.",
    r"NoSuchBucket|ContainerNotFound": "Check the bucket's name; make it if it is new.",
    _WHOLE: "Use a web server that can send ranges of bytes.",
}


@dataclasses.dataclass(frozen=True)
class Answer:
    """An error of obstore.

    Args:
        error: The error.
        scheme: Scheme of the URL.
        is_write: Whether the request writes or removes.
        time_limit: The time limit of the request in seconds.
    """

    error: Exception
    scheme: str = ""
    is_write: bool = False
    time_limit: float = 0.0

    @property
    def text(self) -> str:
        """The text of obstore."""
        return str(self.error)

    @property
    def is_missing(self) -> bool:
        """Whether only the file is missing."""
        is_bucket = re.search("NoSuchBucket|ContainerNotFound", self.text)
        return isinstance(self.error, FileNotFoundError) and not is_bucket

    @property
    def is_refused(self) -> bool:
        """Whether the store refuses the login."""
        return re.search(_REFUSED, self.text) is not None

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        is_timeout = re.search(r"status code: 400.*<Code>RequestTimeout<", self.text)
        return _kind(self.text) is not None or is_timeout is not None

    @property
    def is_whole(self) -> bool:
        """Whether a whole file came where a range was asked."""
        return re.search(_WHOLE, self.text) is not None

    @property
    def kind(self) -> type[errors.RemoteError]:
        """A missing file, a refusal, or a failure that may pass."""
        if self.is_missing:
            return errors.MissingFileError
        return errors.RemoteError if self.may_pass else errors.RefusedError

    @property
    def url(self) -> str:
        """The URL of the request; "" if unknown."""
        asked = re.search(r"performing [A-Z]+ (https?://\S+)", self.text)
        return asked[1] if asked else ""

    def explain(self) -> tuple[type[errors.RemoteError], str, str]:
        """Returns the kind of the error, what came back, and a remedy."""
        line = self.text.splitlines()[0] if self.text else ""
        if _MADE_BY in line:
            said = line.partition(_MADE_BY)[2].partition(": ")[2]
            return errors.RefusedError, "no credentials were made", said
        if any(server in self.text for server in _METADATA_SERVERS):
            login = LOGINS.get(self.scheme, "")
            return errors.RefusedError, "no credentials were found", login
        return self.kind, _came_back(self.text), self._remedy()

    def known_remedy(self) -> str:
        """Returns the remedy of an answer that says its reason; "" otherwise."""
        for pattern, remedy in _REMEDIES.items():
            if re.search(pattern, self.text):
                return remedy
        return self._login() if self.is_refused else ""

    def _remedy(self) -> str:
        if remedy := self.known_remedy():
            return remedy
        if self.is_missing:
            return "Check its name, its folder and its bucket."
        if not self.may_pass:
            return "Check the settings of the store, see BUILD.md."
        proxy = _proxy(self.text)
        where = f"the proxy {proxy}" if proxy else "the network and the server"
        longer = limits.remedy(self.time_limit)
        return f"Check {where}, and try again, or {longer}."

    def _login(self) -> str:
        login = LOGINS.get(self.scheme, "")
        if re.search("ExpiredToken|InvalidToken|expired", self.text):
            return f"The login has ended: log in again. {login}".rstrip()
        if self.is_write and re.search("AccessDenied|PermissionMismatch", self.text):
            return f"The login must be allowed to write there: {_RIGHTS[self.scheme]}."
        return f"Check the credentials. {login}".rstrip()


def remedy_in(text: str) -> str:
    """Returns the remedy for an error of another library; "" if none is known.

    Args:
        text: The text of the error, with the path or the URL of a file.
    """
    if os.strerror(errno.EMFILE) in text:
        return errors.OPEN_FILES
    scheme = re.search(r"\b([a-z0-9]+)://", text)
    answer = Answer(OSError(text), scheme[1]) if scheme else None
    return answer.known_remedy() if answer else ""


def _came_back(text: str) -> str:
    """Returns the answer in an error of obstore as a short line without secrets."""
    # A query may hold a signature, and an endpoint a password.
    line = re.sub(r"\?\S*|(?<=//)[^/\s@]*@", "", (text or "nothing").splitlines()[0])
    status = re.search(r"status code: ([0-9]+ [A-Za-z -]+)", line)
    if status:
        said = [re.search(pattern, text) for pattern in _IN_BODIES]
        parts = [status[1], *(part[1].split("\nRequestId")[0] for part in said if part)]
        return ", ".join(
            " ".join(html.unescape(part).split()).strip(" .") for part in parts
        )
    kind = _kind(text)
    if kind is None:
        return line[:_MAX_CHARACTERS].strip(" .")
    server, proxy = _server(text), _proxy(text)
    detail = re.search(r'(?:message|error): "([^"]+)"|(Invalid\w+\(\s*\w+)', text)
    details = re.sub(r"\s+", "", detail[2]) + ")" if detail and detail[2] else ""
    details = detail[1] if detail and detail[1] else details
    return (
        f"the server {server} ".replace("  ", " ")
        + _KINDS.get(kind, "failed")
        + (f" through the proxy {proxy}" if proxy else "")
        + (f" ({details})" if details else "")
    )


def _server(text: str) -> str:
    found = re.search(r"performing [A-Z]+ (https?://[^/\s]+)", text)
    return re.sub(r"(?<=//)[^/@]*@", "", found[1]) if found else ""


def _proxy(text: str) -> str:
    """Returns the proxy that the variables set for an unreachable server."""
    server = urllib.parse.urlsplit(_server(text))
    if _kind(text) != "Connect" or not server.hostname:
        return ""
    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get(server.scheme) or proxies.get("all", "")
    if not proxy or urllib.request.proxy_bypass(server.netloc):
        return ""
    return urllib.parse.urlsplit(proxy).netloc.rpartition("@")[2] or proxy


def _kind(text: str) -> str | None:
    """Returns the kind of a failure of connection or server; None for other errors."""
    found = re.search(r"HttpError {\s*kind: (\w+)", text)
    if found and "builder error" not in text and "redirect" not in text:
        return found[1]
    return "Status" if re.search(r"status code: (?:5\d\d|429|408)", text) else None
