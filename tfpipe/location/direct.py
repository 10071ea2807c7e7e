"""Reading shards by URL with TensorFlow's own readers, through tensorflow-io.

In: the URL of a data set. Out: nothing; TensorFlow can then read files by URLs of the
same scheme, or an error says what is missing. `prepare` imports TensorFlow.
"""

import atexit
import ctypes
import functools
import os
import warnings
from collections.abc import Mapping

from tfpipe.location import aws, limits
from tfpipe.location.location import Location

# Schemes whose URLs tensorflow-io writes as everybody does.
SCHEMES = ("s3", "gs", "http", "https", "hdfs")
# Variables of tensorflow-io for the settings of `aws`.
_S3_NAMES = {
    "region": "AWS_REGION",
    "endpoint": "S3_ENDPOINT",
    "ca_bundle": "S3_CA_FILE",
}

_REMEDY = (
    "Leave shard_cache at 'auto' or give a tfpipe.ShardCache, which reads the URL with "
    "any TensorFlow"
)


def require_scheme(location: Location) -> None:
    """Checks the scheme of a URL for TensorFlow's readers.

    Raises:
        ValueError: If tensorflow-io does not read such URLs.
    """
    if location.scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ValueError(
            f"Direct reading takes URLs with one of {known}, got {location.shown}. "
            f"{_REMEDY}."
        )


def prepare(location: Location) -> None:
    """Makes TensorFlow able to read the files of a URL.

    TensorFlow's file systems read environment variables of their own. Missing variables
    are set from the usual variables of the store.

    Args:
        location: A URL.

    Raises:
        ValueError: If tensorflow-io is not installed, does not load with the installed
            TensorFlow, or does not read URLs of the scheme.
        RemoteError: If the settings of the store are wrong.
    """
    scheme = location.scheme
    require_scheme(location)
    if scheme == "s3":
        for name, value in s3_settings(os.environ).items():
            os.environ.setdefault(name, value)
    import tensorflow as tf

    with warnings.catch_warnings():
        # tensorflow-io that does not fit TensorFlow warns; the error below says more.
        warnings.simplefilter("ignore")
        try:
            import tensorflow_io  # noqa: F401
        except ImportError:
            found = "is not installed"
        else:
            found = f"does not load with TensorFlow {tf.__version__}"
    _skip_destructors_at_exit()
    if scheme not in tf.io.gfile.get_registered_schemes():
        raise ValueError(
            f"Direct reading takes {scheme}:// with tensorflow-io, which {found}."
            f" {_REMEDY}. Or install TensorFlow 2.16 or 2.17 and tensorflow-io 0.37.1."
        )


def s3_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of tensorflow-io that say the same as the usual variables.

    Args:
        environ: The environment.

    Raises:
        RemoteError: If the settings of AWS are wrong, see `aws.settings`.
    """
    usual = aws.settings(environ)
    settings = {_S3_NAMES[name]: value for name, value in usual.items()}
    # With parts, tensorflow-io reads at least 50 MB at a time, and may abort when
    # Python exits.
    settings["S3_DISABLE_MULTI_PART_DOWNLOAD"] = "1"
    if limits.TIME_LIMIT in environ:
        seconds = limits.seconds()
        settings["S3_REQUEST_TIMEOUT_MSEC"] = str(int(1000 * seconds))
    return settings


@functools.cache
def _skip_destructors_at_exit() -> None:
    """Ends the process with its exit code before the libraries' destructors run.

    The destructor of tensorflow-io's s3 ends the process with SIGABRT, after all work
    is done. Python has flushed its files by then, and called all functions of `atexit`.
    """
    libc = ctypes.CDLL(None)
    # The C library calls the last registered function first, here _exit(exit code).
    libc.on_exit(libc._exit, None)
    atexit.register(libc.fflush, None)
