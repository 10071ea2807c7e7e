"""converters.exports.parquet: what Hugging Face `datasets` is told of the columns."""

import types
from typing import Any

from converters.exports import parquet
from converters.jobs.side_files import Class


def test_all_labels_of_an_image_are_a_feature_only_if_they_are_a_column() -> None:
    classes = [Class(1, "n1", "cat"), Class(2, "n2", "dog")]
    known = types.SimpleNamespace(label_base=1)
    source = types.SimpleNamespace(classes=classes, known=known)
    plan: Any = types.SimpleNamespace(source=source)
    label = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    whole = types.SimpleNamespace(id="bigint", children=[])
    several = types.SimpleNamespace(id="list", children=[("child", whole)])

    features = parquet._metadata(plan, {"count": whole})["info"]["features"]
    assert features["label"] == label
    assert features["count"] == {"dtype": "int64", "_type": "Value"}
    assert parquet.LABELS not in features
    found = parquet._metadata(plan, {parquet.LABELS: several})["info"]["features"]
    assert label in found[parquet.LABELS].values()
