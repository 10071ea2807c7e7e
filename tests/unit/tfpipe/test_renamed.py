"""Old public names work for one version and warn; docs/upgrading.md has the table."""

import importlib
import pathlib
import re
import warnings

import pytest

import tfpipe
from tfpipe import renamed

DOCS = pathlib.Path(__file__).parents[3] / "docs/upgrading.md"


@pytest.mark.parametrize("old", renamed.RENAMED)
def test_an_old_name_warns_once_and_gives_the_object_of_the_new_name(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(vars(tfpipe), old, raising=False)
    module, _, name = f"tfpipe.{renamed.RENAMED[old]}".rpartition(".")

    with pytest.warns(DeprecationWarning, match=f"tfpipe.{old} is now") as said:
        found = getattr(tfpipe, old)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = getattr(tfpipe, old)

    assert found is again is getattr(importlib.import_module(module), name)
    (warning,) = said
    assert f" is now {module}.{name}." in str(warning.message)
    assert warning.filename == __file__
    monkeypatch.delitem(vars(tfpipe), old)


def test_no_old_name_is_public() -> None:
    assert not set(renamed.RENAMED) & set(tfpipe.__all__)
    assert len(tfpipe.__all__) <= 64


def test_the_docs_have_the_table() -> None:
    rows = re.findall(
        r"^\| `tfpipe\.(\w+)` \| `tfpipe\.([\w.]+)` \|", DOCS.read_text(), re.M
    )

    assert dict(rows) == dict(renamed.RENAMED)
    assert len(rows) == len(renamed.RENAMED)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="imagenet_trian"):
        tfpipe.imagenet_trian  # noqa: B018
