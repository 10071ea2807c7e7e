"""benchmarks.models.accelerators: figures with their sources."""

import pathlib

import pytest

from benchmarks.models import catalog
from benchmarks.models.accelerators import Figure, find
from benchmarks.planning.published import ACCELERATORS

FULL = ("v100", "a100", "h100", "h200", "b200")


def _step_seconds(name: str, model: str, mode: str, batch_size: int) -> float:
    return find(ACCELERATORS, name, model, mode).step_seconds(batch_size)


def test_step_of_mlperf_storage_takes_its_published_time() -> None:
    assert _step_seconds(
        "h100_mlperf_storage", "resnet50", "train", 400
    ) == pytest.approx(0.224)
    assert _step_seconds(
        "a100_mlperf_storage", "resnet50", "train", 400
    ) == pytest.approx(0.435)


LIGHTER = [
    *(("resnet50", "resnet101"), ("resnet101", "resnet152"), ("googlenet", "resnet50")),
    *(("resnet50", "inception_v3"), ("inception_v3", "inception_v4")),
    ("resnet50", "resnet50_v1.5"),
]


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_less_work_is_not_slower_on_the_same_accelerator(mode: str) -> None:
    for name, accelerator in ACCELERATORS.items():
        rates = accelerator[mode]
        for lighter, heavier in LIGHTER:
            if {lighter, heavier} <= rates.keys():
                slow, fast = rates[heavier], rates[lighter]
                assert fast.images_per_second >= slow.images_per_second, (name, lighter)


def test_a_name_stands_for_one_kind_of_measurement() -> None:
    for name, accelerator in ACCELERATORS.items():
        kinds = {figure.measurement for figure in accelerator["train"].values()}
        assert len(kinds) <= 1, name
        assert ("MLPerf Storage sleep" in kinds) == name.endswith("_mlperf_storage")


def test_each_figure_says_when_it_was_published_and_in_which_precision() -> None:
    for accelerator in ACCELERATORS.values():
        for figure in (*accelerator["train"].values(), *accelerator["infer"].values()):
            assert figure.measurement != "not stated"
            assert figure.date
            assert figure.precision


@pytest.mark.parametrize("name", ["H100", "h100", "RTX 4090", "rtx-4090", "Rtx_4090"])
def test_names_are_found_in_any_case(name: str) -> None:
    assert find(ACCELERATORS, name, "resnet50", "train").accelerator == (
        "h100" if "100" in name else "rtx_4090"
    )


def test_inference_takes_less_than_training() -> None:
    for name, accelerator in ACCELERATORS.items():
        for model in accelerator["infer"].keys() & accelerator["train"].keys():
            train, infer = (
                _step_seconds(name, model, mode, 128) for mode in ("train", "infer")
            )
            assert infer < 0.55 * train


@pytest.mark.parametrize("name", FULL)
def test_every_model_has_a_figure(name: str) -> None:
    models = catalog.MODELS.keys() - {"tiny"}

    assert ACCELERATORS[name]["train"].keys() == models
    assert ACCELERATORS[name]["infer"].keys() == models


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_newer_accelerators_are_faster(mode: str) -> None:
    for model in catalog.MODELS.keys() - {"tiny"}:
        seconds = [_step_seconds(name, model, mode, 128) for name in FULL]
        assert seconds == sorted(seconds, reverse=True)


def test_published_figures_are_those_of_their_sources() -> None:
    def rate(name: str, model: str, mode: str = "train") -> float:
        figure = find(ACCELERATORS, name, model, mode)
        assert figure.basis == "published"
        return figure.images_per_second

    assert rate("v100", "resnet152") == 518
    assert rate("v100", "inception_v4", "infer") == 1184
    assert rate("a100", "resnet50") == 1990
    assert rate("a100", "vgg16") == 1190
    assert rate("h100_mlperf", "resnet50_v1.5") == 7006
    assert rate("h200_mlperf", "resnet50") == 63_559 / 8


def test_scaled_figure_names_ratio_base_and_both_sources() -> None:
    emulation = find(ACCELERATORS, "h100", "resnet152", "train")

    ratio = 7006 / 3396
    assert emulation.as_json() == {
        "accelerator": "h100",
        "model": "resnet152",
        "examples_per_second": pytest.approx(905 * ratio),
        "basis": "scaled",
        "ratio": ratio,
        "base": "a100",
        "source": "H100 over A100, MLPerf Training v3.0 and v2.0, ResNet-50, on 8; no "
        "figure of TensorFlow on an H100 found; a100: Lambda, tf_cnn_benchmarks logs "
        "c17619d",
        "date": "2023-06",
        "precision": "float16",
        "measurement": "training, synthetic input",
    }
    assert str(emulation).startswith(
        "Emulated: resnet152 on h100, 1,867 images/s, scaled by 2.06 from a100 (H100"
    )
    assert str(find(ACCELERATORS, "v100", "vgg16", "infer")) == (
        "Emulated: vgg16 on v100, 1,409 images/s, published "
        "(Lambda, tf_cnn_benchmarks logs c17619d)"
    )


def test_each_scaled_figure_is_its_base_times_the_ratio() -> None:
    def base(name: str, figure: Figure, model: str, mode: str) -> Figure:
        other, _, on = (figure.base or "").rpartition(" on ")
        return ACCELERATORS[on][mode][other or model]

    num_scaled = 0
    for name, accelerator in ACCELERATORS.items():
        for mode in ("train", "infer"):
            for model, figure in accelerator[mode].items():
                if figure.ratio is not None:
                    num_scaled += 1
                    of_base = base(name, figure, model, mode).images_per_second
                    expected = figure.ratio * of_base
                    assert figure.images_per_second == pytest.approx(expected)
    assert num_scaled > 40


@pytest.mark.parametrize(
    ("name", "model", "mode", "message"),
    [
        (
            "h100_mlperf",
            "vgg16",
            "train",
            r"has figures of resnet50, resnet50_v1\.5 to",
        ),
        ("h100_mlperf", "resnet50", "infer", "has figures of no model to"),
        ("l40s", "resnet50", "train", "has figures of no model to"),
        ("h100", "tiny", "train", "--model=tiny, for which no figure was found"),
        ("h1000", "resnet50", "train", "must be one of a100, .*, got h1000"),
    ],
)
def test_what_has_no_figure_is_an_error(
    name: str, model: str, mode: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        find(ACCELERATORS, name, model, mode)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"images_per_second": 0.0, "source": "x"}, "must be above 0, got 0"),
        ({"images_per_second": 1.0, "source": ""}, "source of a figure must be given"),
        (
            {"images_per_second": 1.0, "source": "x", "ratio": 2.0},
            "must have both ratio and base, got 2.0 and None",
        ),
    ],
)
def test_figure_checks_itself(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Figure(accelerator="x", model="vgg16", **fields)


def test_every_accelerator_is_documented() -> None:
    page = pathlib.Path(__file__).parents[4] / "docs/reference/results.md"
    text = page.read_text(encoding="utf-8")

    assert [name for name in ACCELERATORS if f"`{name}`" not in text] == []
