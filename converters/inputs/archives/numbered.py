"""Classes that an input gives as numbers.

In: the names of the classes. Out: names and labels that agree with these numbers. Names
in the order of their characters would give class 10 the label after that of class 1.
"""

import re
from collections.abc import Mapping, Sequence

from converters.inputs.classtree import ClassTree, Place

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
# One more class is one more line of labels.txt.
_MAX_NUMBER = 1_000_000
# The list of names that an input itself has, for errors.
BESIDE = "The list of classes beside the files"


def are_numbers(names: Sequence[str]) -> bool:
    """Whether all classes are whole numbers without leading zeros."""
    return all(_NUMBER.fullmatch(name) for name in names)


def labels(names: Sequence[str], label_base: int | None) -> dict[str, int]:
    """Returns the labels of classes that are numbers.

    Args:
        names: The numbers, which count from 0 if there is a 0, and otherwise from 1. A
            number that no image has gets a label too.
        label_base: Label of the first class; None lets the labels be the numbers.

    Raises:
        ValueError: If a number is too large.
    """
    numbers = sorted(map(int, names))
    first = min(numbers[0], 1)
    if numbers[-1] > _MAX_NUMBER:
        raise ValueError(
            f"Classes that are numbers must be at most {_MAX_NUMBER:,}, got "
            f"{numbers[-1]}. Name the classes, with lines `<label> <class>` in "
            "--label_map."
        )
    base = first if label_base is None else label_base
    return {str(n): n - first + base for n in range(first, numbers[-1] + 1)}


def labels_of_names(names: Mapping[int, str], label_base: int | None) -> dict[str, int]:
    """Returns the labels of the names of numbers, in the order of the numbers.

    Args:
        names: Name of each number.
        label_base: Label of the lowest number; None lets the labels be the numbers.

    Raises:
        ValueError: If two numbers have one name.
    """
    first = min(names)
    base = min(first, 1) if label_base is None else label_base
    found = {names[n]: number + base for number, n in enumerate(sorted(names))}
    if len(found) < len(names):
        raise ValueError(
            f"{BESIDE} must name each class once. Give other names with --label_map."
        )
    return found


def named(tree: ClassTree, names: Mapping[int, str], *, where: str) -> ClassTree:
    """Returns a tree whose classes have names in place of numbers.

    Args:
        tree: The images by split and number.
        names: Name of each number.
        where: File with the names, for errors.

    Raises:
        ValueError: If a number has no name.
    """
    unknown = [n for n in map(int, tree.class_names()) if n not in names]
    if unknown:
        raise ValueError(
            f"{where} must name the class of each number in the input, got no name for "
            f"{unknown[0]}. It has {len(names)} names, the first is for "
            f"{min(names, default=0)}."
        )
    splits = {}
    for split, found in tree.splits.items():
        classes: dict[str, list[Place]] = {}
        for number in sorted(map(int, found)):
            classes.setdefault(names[number], []).extend(found[str(number)])
        splits[split] = {name: classes[name] for name in sorted(classes)}
    return ClassTree(splits, tree.left_out)
