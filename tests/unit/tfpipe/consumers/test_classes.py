"""class_names, num_classes, class_counts and class_weights of a pipeline."""

import collections
import dataclasses

import pytest

import tfpipe
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import make_jpeg

COUNTS = {"ant": 4, "bee": 2, "cat": 2}


def convert(raw, output_dir, **options):
    config = conversion(
        "folder",
        input_dir=str(raw),
        output_dir=str(output_dir),
        **{"num_train_shards": 1, "num_workers": 1, "fsync": False, **options},
    )
    conversions.convert(config)
    return output_dir


@pytest.fixture(scope="module")
def data_dirs(tmp_path_factory):
    """Three classes of 4, 2 and 2 images, with the labels 0.. and 1.. on disk."""
    made = tmp_path_factory.mktemp("classes")
    for name, count in COUNTS.items():
        (made / "raw" / name).mkdir(parents=True)
        for number in range(count):
            path = made / "raw" / name / f"{number}.jpg"
            path.write_bytes(make_jpeg(100 * len(name) + number + ord(name[0])))
    return [convert(made / "raw", made / str(base), label_base=base) for base in (0, 1)]


def make_pipeline(data_dir, **parse):
    source = tfpipe.TFRecordSource(data_dir, "train", shuffle="none")
    return tfpipe.Pipeline(
        source, [tfpipe.Interleave(), tfpipe.Map(tfpipe.Parse(**parse))]
    )


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_names_and_counts_are_those_of_the_labels_that_arrive(data_dirs, base, offset):
    pipeline = make_pipeline(data_dirs[base], label_base=base, label_offset=offset)

    arrived = collections.Counter(int(e["label"]) for e in pipeline.to_numpy())

    assert pipeline.class_names == [""] * offset + ["ant", "bee", "cat"]
    assert pipeline.num_classes == offset + 3
    assert pipeline.class_counts == dict.fromkeys(range(offset), 0) | arrived
    named = {pipeline.class_names[label]: n for label, n in arrived.items()}
    assert named == COUNTS


def test_another_label_base_than_that_of_the_index_moves_the_names(data_dirs):
    """Label 0 is the background if the labels 1, 2, 3 on disk stay as they are."""
    pipeline = make_pipeline(data_dirs[1], label_base=0)

    assert pipeline.class_names == ["", "ant", "bee", "cat"]
    assert pipeline.class_counts == {0: 0, 1: 4, 2: 2, 3: 2}
    assert pipeline.class_weights() == pytest.approx(
        {0: 0, 1: 2 / 3, 2: 4 / 3, 3: 4 / 3}
    )
    with pytest.raises(ValueError, match=r"must be >= 0, got -1: .*label_base"):
        _ = make_pipeline(data_dirs[0], label_base=1).class_names


def test_a_preset_knows_the_names_of_its_folder(data_dir):
    pipeline = tfpipe.imagenet_eval(data_dir, batch_size=4)

    assert pipeline.num_classes == 1000
    assert pipeline.class_names[:2] == ["tench", "goldfish"]
    assert sum(pipeline.class_counts.values()) == 7
    assert len(pipeline.class_counts) == 1000


def test_weights_are_those_of_scikit_learn(data_dirs):
    pipeline = make_pipeline(data_dirs[1], label_base=1)

    # compute_class_weight("balanced"): n_samples / (n_classes * bincount(y))
    assert pipeline.class_weights() == pytest.approx({0: 2 / 3, 1: 4 / 3, 2: 4 / 3})
    assert pipeline.class_weights(power=0) == {0: 1, 1: 1, 2: 1}
    gentle = pipeline.class_weights(power=0.5)
    assert gentle[1] / gentle[0] == pytest.approx(2**0.5)
    mean = sum(pipeline.class_counts[label] * gentle[label] for label in gentle) / 8
    assert mean == pytest.approx(1)


def test_a_class_without_records_has_no_weight_and_is_named(data_dirs, tmp_path):
    two = convert(data_dirs[0].parent / "raw", tmp_path / "two", classes=("ant", "cat"))
    pipeline = make_pipeline(two, label_base=1)

    assert pipeline.class_names == ["ant", "bee", "cat"]
    assert pipeline.class_counts == {0: 4, 1: 0, 2: 2}
    with pytest.warns(UserWarning, match="the weight 0, 1 of 3 classes: 'bee'") as seen:
        weights = pipeline.class_weights()

    assert weights == pytest.approx({0: 6 / 8, 1: 0, 2: 6 / 4})
    assert seen[0].filename == __file__


def test_pipelines_that_cannot_know_their_classes_say_so(data_dirs, copy_dir):
    synthetic = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=2), [])
    part = make_pipeline(data_dirs[1], label_base=1)
    mixture = tfpipe.Pipeline(tfpipe.Mixture([part, part], [1, 1]), [])
    unparsed = dataclasses.replace(part, stages=[tfpipe.Interleave()])
    (copy_dir / "index.json").unlink()
    scanned = make_pipeline(copy_dir, label_base=1)

    for read in (
        lambda pipeline: pipeline.class_names,
        lambda pipeline: pipeline.num_classes,
        lambda pipeline: pipeline.class_counts,
        lambda pipeline: pipeline.class_weights(),
    ):
        with pytest.raises(ValueError, match=r"must be a TFRecordSource .* Synthetic"):
            read(synthetic)
        with pytest.raises(ValueError, match=r"got Mixture: .* pipelines of its parts"):
            read(mixture)
        with pytest.raises(ValueError, match="must have a Map with a Parse"):
            read(unparsed)
        with pytest.raises(
            tfpipe.errors.BadIndexError, match=r"converters.verify .*_index"
        ):
            read(scanned)


def test_records_of_several_labels_are_not_counted_by_the_catalog(data_dirs):
    pipeline = make_pipeline(data_dirs[1], label_base=1)
    parse = pipeline.stages[1].ops[0]
    object.__setattr__(parse, "multi_label", True)

    assert pipeline.class_names == ["ant", "bee", "cat"]
    with pytest.raises(ValueError, match="must hold the label of each record"):
        _ = pipeline.class_counts
