"""converters.jobs.again: an input is listed again by the options that an index has."""

from converters.jobs import again


def test_a_source_of_a_merge_keeps_its_own_options() -> None:
    options = {
        "sources": {"a": "/old/a", "b": "/old/b"},
        "how": {"a": {"kind": "table", "image_column": "x"}, "b": {"kind": "tree"}},
    }

    found = again._of_merge(options, ["a=/new/a", "b=/new/b=c"], ["a=/root"])

    assert found == {
        "sources": {"a": "/new/a", "b": "/new/b=c"},
        "how": {"root": {"a": "/root"}, "image_column": {"a": "x"}},
    }
