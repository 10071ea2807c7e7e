"""Rows of 0 and 1 are told from lists of labels."""

from tfpipe.shards import label_rows


def test_rows_are_told_from_lists_of_labels() -> None:
    for rows, num_classes, is_one_hot in (
        ([[0, 1, 0], [1, 1, 0]], None, True),
        ([[0, 1, 0], [1, 1, 0]], 3, True),
        ([[0, 1, 0], [1, 1, 0]], 4, False),
        ([[0, 1]], None, False),  # two labels as well
        ([[0, 1]], 2, True),
        ([[1], [0]], None, False),
        ([[1, 1, 1]], None, True),
        ([[0, 0, 0]], None, True),
        ([[0, 1, 2]], None, False),
        ([[0, 1, -1]], None, False),
        ([[0, 1, 0], [1, 0]], None, False),
        ([[0, 1, 0], [1, 0]], 3, False),
        ([], None, False),
        ([], 0, False),
    ):
        case = rows, num_classes
        assert label_rows.is_one_hot(rows, num_classes) is is_one_hot, case
