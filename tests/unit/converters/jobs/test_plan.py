"""converters.jobs.plan: which image goes where, before any work."""

import pickle

import pytest

from converters.inputs.image import Image
from converters.jobs import plan


def _images(count: int, num_bytes: int = 100) -> list[Image]:
    return [
        Image(f"train/n0/{number}.JPEG", 0, "", 0, num_bytes) for number in range(count)
    ]


@pytest.mark.parametrize(
    ("num_images", "num_shards"), [(1, 1), (8, 3), (9, 3), (10, 3), (1251, 1024)]
)
def test_shards_differ_by_at_most_one_record(num_images: int, num_shards: int) -> None:
    images = _images(num_images)

    plans = plan.make_plan({"train": images}, {"train": num_shards}, seed=0)

    sizes = [len(item.images) for item in plans]
    assert len(sizes) == num_shards
    assert max(sizes) - min(sizes) <= 1
    assert sorted(image for item in plans for image in item.images) == sorted(images)


def test_plan_depends_on_the_seed_alone() -> None:
    splits = {"train": _images(50)}
    again = {"train": _images(50)[::-1]}

    first = plan.make_plan(splits, {"train": 4}, seed=1)

    assert plan.make_plan(again, {"train": 4}, seed=1) == first
    assert plan.make_plan(splits, {"train": 4}, seed=2) != first


def test_order_is_pinned() -> None:
    """If this test fails, a conversion that is run again gives other bytes."""
    (only,) = plan.make_plan({"train": _images(6)}, {"train": 1}, seed=0)

    names = [image.name.rpartition("/")[2] for image in only.images]
    assert names == ["5.JPEG", "4.JPEG", "0.JPEG", "2.JPEG", "3.JPEG", "1.JPEG"]


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("inception", ["train-00000-of-00002", "train-00001-of-00002"]),
        (
            "tfds",
            [
                "photos-train.tfrecord-00000-of-00002",
                "photos-train.tfrecord-00001-of-00002",
            ],
        ),
    ],
)
def test_names_are_those_that_readers_expect(layout: str, names: list[str]) -> None:
    plans = plan.make_plan(
        {"train": _images(3)}, {"train": 2}, 0, layout=layout, dataset_name="photos"
    )

    assert [item.name for item in plans] == names
    assert [item.number for item in plans] == [0, 1]


@pytest.mark.parametrize(
    ("split", "count", "num_bytes", "expected"),
    [
        ("train", 1_281_167, 113_000, 1024),  # ImageNet's customary numbers
        ("validation", 50_000, 133_000, 128),
        ("train", 1000, 110_000, 3),
        ("train", 1, 10, 1),
        ("train", 2, 500_000_000, 2),  # never more shards than images
        ("train", 3, 0, 1),  # empty files
    ],
)
def test_default_number_of_shards(
    split: str, count: int, num_bytes: int, expected: int
) -> None:
    image = Image("x", 0, "x", 0, num_bytes)

    assert plan._default_num_shards(split, [image] * count) == expected


def test_more_shards_than_images_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="--num_train_shards must be at most the 3 imag"
    ):
        plan.make_plan({"train": _images(3)}, {"train": 4}, seed=0)


def test_split_without_images_is_an_error() -> None:
    with pytest.raises(ValueError, match="Split validation must have at least one"):
        plan.make_plan({"train": _images(3), "validation": []}, {}, seed=0)


def test_packed_images_are_the_same_in_little_memory() -> None:
    images = [
        Image(
            name := f"train/n{n % 50:08d}/n{n % 50:08d}_\udcff{n}.JPEG", n, name, 0, n
        )
        for n in range(1000)
    ]

    packed = plan.pack(images)

    assert list(packed) == images
    assert (len(packed), packed[3], packed[-2:]) == (1000, images[3], images[-2:])
    assert packed == plan.pack(images) != plan.pack(images[::-1])
    assert len(pickle.dumps(packed)) / len(images) < 60
