"""converters.compat: side files for other readers."""

from converters import classes, compat


def test_labels_are_in_the_form_that_slim_reads() -> None:
    lines = compat.labels_text(classes.imagenet_classes()).splitlines()

    assert len(lines) == 1001
    assert lines[:2] == ["0:background", "1:tench"]
    assert lines[-1] == "1000:toilet tissue"
