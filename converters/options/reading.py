"""Flags that say how an input is read: one input, or each of several sources.

In: values of flags. Out: the one value of a command with one input; or, for a merge,
the values of NAME=VALUE by the name of the source.
"""

from collections.abc import Callable, Mapping, Sequence

from absl import app, flags

from converters.inputs.tables import columns

_DEFINITIONS: Mapping[str, Callable[[], object]] = {
    "image_column": lambda: flags.DEFINE_multi_string(
        "image_column", [], "Column of the images: paths, URLs, bytes or structs."
    ),
    "label_column": lambda: flags.DEFINE_multi_string(
        "label_column", [], "Column of the labels."
    ),
    "name_column": lambda: flags.DEFINE_multi_string(
        "name_column",
        [],
        "Column of the images' names, which must all differ; the catalog has them as "
        "filename. Default: the path, or row-000000001 and so on where there are bytes "
        "alone.",
    ),
    "split_column": lambda: flags.DEFINE_multi_string(
        "split_column",
        [],
        "Column of the split: train, validation (val, valid, dev) or test. Default: "
        "all images are train, unless --split_fractions divides them.",
    ),
    "root": lambda: flags.DEFINE_multi_string(
        "root",
        [],
        "Folder or URL that paths are relative to and must not leave. Default: the "
        "folder of the input.",
    ),
    "query": lambda: flags.DEFINE_multi_string(
        "query",
        [],
        "SELECT over the table, which it names input; see above. Default: all its "
        "rows.",
    ),
    "on_null": lambda: flags.DEFINE_enum(
        "on_null",
        columns.FAIL,
        [columns.FAIL, columns.SKIP],
        "What to do about a row whose image, label or split is NULL or whose file does "
        "not exist: fail, or leave it out and name it in rejects.jsonl.",
    ),
    "label_from": lambda: flags.DEFINE_multi_string(
        "label_from",
        [],
        "Where the class of a sample is: in its part cls, in its part json or in its "
        "key. Default: json if --label_key is given, otherwise cls.",
    ),
    "image_part": lambda: flags.DEFINE_multi_string(
        "image_part",
        [],
        "Part of a sample that is its image, such as jpg or left.png. Default: the one "
        "that ends as that of an image.",
    ),
    "label_key": lambda: flags.DEFINE_multi_string(
        "label_key",
        [],
        "Key of the class. In a tar: in the .json part, with dots between the keys of "
        "nested objects; default: label. In TFRecords: feature of the record; default: "
        "image/class/label or label.",
    ),
    "image_key": lambda: flags.DEFINE_multi_string(
        "image_key",
        [],
        "Feature with the encoded image. Default: image/encoded or image.",
    ),
    "name_key": lambda: flags.DEFINE_multi_string(
        "name_key",
        [],
        "Feature with the name of the image; an empty text numbers the records. "
        "Default: image/filename, file_name or filename, if a record has one.",
    ),
    "file_in_names": lambda: flags.DEFINE_boolean(
        "file_in_names",
        False,
        "Let the name of an image begin with that of its file. This is needed if names "
        "come again in other files.",
    ),
}


def define(*names: str) -> None:
    """Defines flags of this module, unless another module has asked for them."""
    for name in names:
        if name not in flags.FLAGS:
            _DEFINITIONS[name]()


def only(name: str) -> str | None:
    """Returns the value of a flag of a command with one input; None if not given.

    Raises:
        app.UsageError: If it was given several times.
    """
    values = getattr(flags.FLAGS, name)
    if len(values) > 1:
        raise app.UsageError(f"--{name} must be given once.")
    return values[0] if values else None


def by_name(
    what: str, words: Sequence[str], *, form: str = "NAME=VALUE", may_be_empty: bool
) -> dict[str, str]:
    """Returns the values of words like NAME=VALUE by their names.

    Args:
        what: The flag or arguments, for errors.
        form: How a word must be, for errors.
        words: The words. No error shows a value: it may be a URL with a password.
        may_be_empty: Whether a value may be an empty text.

    Raises:
        ValueError: If a word has another form, or a name comes twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals or "://" in name or not (value or may_be_empty):
            got = "a URL" if "://" in word else repr(word)
            raise ValueError(
                f"{what} must be given as {form}, got {got}. NAME is the name of "
                "a source."
            )
        if name in found:
            raise ValueError(f"{what} must have different names, got {name!r} twice.")
        found[name] = value
    return found
