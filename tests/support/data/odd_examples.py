"""Serialized examples as other writers may order, repeat and split their fields.

Features are `image`, one byte string, `height` and `label`, one whole number each.
"""

import random


def span(tag: int, data: bytes) -> bytes:
    """A length-delimited field of less than 128 bytes."""
    return bytes([tag, len(data)]) + data


def feature(key: bytes, value: bytes) -> bytes:
    """An entry of a map of features: the key, then the feature."""
    return span(0x0A, span(0x0A, key) + span(0x12, value))


def number(*bytes_of_list: int) -> bytes:
    """A feature with the bytes of an Int64List."""
    return span(0x1A, bytes(bytes_of_list))


_TEXT = span(0x0A, span(0x0A, b"jpeg"))
IMAGE = feature(b"image", _TEXT)
PACKED, SINGLE = number(0x0A, 1, 5), number(0x08, 6)
HEIGHT = feature(b"height", SINGLE)
_BOTH = IMAGE + HEIGHT
_KEY, _VALUE = span(0x0A, b"label"), span(0x12, PACKED)
_LABEL = span(0x0A, _KEY + _VALUE)

# Serialized features of one list of features.
_FEATURES = {
    "usual": _BOTH + _LABEL,
    "unpacked": _BOTH + feature(b"label", SINGLE),
    "the last one counts": _BOTH + feature(b"label", SINGLE) + _LABEL,
    "an empty one does not": _BOTH + _LABEL + feature(b"label", b""),
    "an empty list does": _BOTH + _LABEL + feature(b"label", number()),
    "two values": _BOTH + feature(b"label", number(0x0A, 2, 5, 6)),
    "two values, unpacked": _BOTH + feature(b"label", number(8, 5, 8, 6)),
    "no value": _BOTH + feature(b"label", number()),
    "no packed value": _BOTH + feature(b"label", number(0x0A, 0)),
    "none": _BOTH,
    "another type": _BOTH + feature(b"label", _TEXT),
    "no image": HEIGHT + _LABEL,
    "negative": _BOTH + feature(b"label", number(0x0A, 10, *[0xFF] * 9, 1)),
    "value first": _BOTH + span(0x0A, _VALUE + _KEY),
    "all values first": b"".join(
        span(0x0A, span(0x12, value) + span(0x0A, key))
        for key, value in {b"label": PACKED, b"image": _TEXT, b"height": SINGLE}.items()
    ),
    "value first, then again": _BOTH
    + span(0x0A, _VALUE + _KEY)
    + feature(b"label", SINGLE),
    "key alone": _BOTH + _LABEL + span(0x0A, _KEY),
    "value alone": _BOTH + _LABEL + span(0x0A, _VALUE),
    "two keys": _BOTH + _LABEL + span(0x0A, span(0x0A, b"height") + _KEY),
    "two values in an entry": _BOTH + _LABEL + span(0x0A, _VALUE + _VALUE),
    "key twice in an entry": _BOTH + span(0x0A, _KEY + _KEY + _VALUE),
    "value twice in an entry": _BOTH + span(0x0A, _KEY + _VALUE + _VALUE),
    "unknown in an entry": _BOTH + span(0x0A, _KEY + _VALUE + b"\x18\x07"),
    "unknown beside entries": _BOTH + _LABEL + b"\x10\x07",
    "two packed runs": _BOTH + feature(b"label", number(0x0A, 1, 5, 0x0A, 1, 6)),
    "packed, then not": _BOTH + feature(b"label", number(0x0A, 1, 5, 8, 6)),
    "not packed, then packed": _BOTH + feature(b"label", number(8, 6, 0x0A, 1, 5)),
    "an empty run, then a value": _BOTH + feature(b"label", number(0x0A, 0, 8, 6)),
    "two lists": _BOTH + feature(b"label", PACKED + SINGLE),
    "two kinds": _BOTH + feature(b"label", PACKED + _TEXT),
    "two kinds, bytes first": _BOTH + feature(b"label", _TEXT + PACKED),
    "unknown after a list": _BOTH + feature(b"label", PACKED + b"\x48\x01"),
    "unknown before a list": _BOTH + feature(b"label", b"\x48\x01" + PACKED),
    "unknown before the list of an earlier one": feature(b"label", b"\x48\x01" + PACKED)
    + _BOTH
    + _LABEL,
    "another type of an earlier one": feature(b"label", _TEXT) + _BOTH + _LABEL,
    "a list of floats": _BOTH + feature(b"label", span(0x12, b"\x0a\x04\0\0\x80\x3f")),
    "a key that is no text": _BOTH + _LABEL + feature(b"\xff\xfe", PACKED),
    "unknown in a list": _BOTH + feature(b"label", number(0x0A, 1, 5, 0x10, 7)),
    "two images": HEIGHT
    + _LABEL
    + feature(b"image", span(0x0A, span(0x0A, b"a") + span(0x0A, b"b"))),
}
ODD = {name: span(0x0A, data) for name, data in _FEATURES.items()} | {
    "unknown fields around": b"\x18\x07"
    + span(0x0A, _BOTH + _LABEL)
    + span(0x22, b"ab")
    + b"\x2d1234\x3112345678",
    "in two parts": span(0x0A, _BOTH) + span(0x0A, _LABEL),
    "the last part counts": span(0x0A, _BOTH + feature(b"label", SINGLE))
    + span(0x0A, _LABEL),
    "a group": span(0x0A, _BOTH + _LABEL) + b"\x13\x14",
    "zeros behind": span(0x0A, _BOTH + _LABEL) + b"\0\0",
    "nothing": b"",
}


def _list(rng: random.Random) -> bytes:
    """A feature: usually one number, and seldom anything else that is a feature."""
    values = rng.choices(range(128), k=rng.choice([*[1] * 8, 0, 2]))
    packed, single = span(0x0A, bytes(values)), b"".join(b"\x08%c" % v for v in values)
    usual = [span(0x1A, packed), span(0x1A, single)]
    floats = span(0x12, span(0x0A, b"\0\0\x80\x3f"))
    odd = [b"", _TEXT, floats, span(0x1A, packed + single), b"\x40\x01" + usual[0]]
    return rng.choice(usual if rng.random() < 0.8 else [*odd, usual[1] + _TEXT])


def _entry(rng: random.Random, key: bytes, value: bytes) -> bytes:
    """An entry of a map, seldom in an odd order or with more than two fields."""
    fields = [span(0x0A, key), span(0x12, value)]
    if rng.random() < 0.1:
        fields += rng.choices([*fields, b"\x18\x07", b"\x1d1234", b""], k=1)
        rng.shuffle(fields)
    return span(0x0A, b"".join(fields))


def drawn(rng: random.Random) -> bytes:
    """An example of random features in random order, in one list or in several."""
    image = _TEXT if rng.random() < 0.9 else span(0x0A, b"")
    entries = [_entry(rng, b"image", image)]
    other = rng.choices([b"label", b"", b"\xff\xfe", b"labels"], k=rng.randrange(3))
    for key in [b"label", b"height", *other]:
        entries.append(_entry(rng, key, _list(rng)))
    rng.shuffle(entries)
    cut = rng.choice([0, 0, rng.randrange(len(entries))])
    parts = [b"".join(entries[:cut]), b"".join(entries[cut:])]
    around = rng.choice([b"", b"", b"\x10\x05", b"\x1a\x01a", b"\x0b\x0c", b"\x25abcd"])
    return b"".join([*(span(0x0A, part) for part in parts if part), around])
