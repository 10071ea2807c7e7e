"""In a notebook, objects of tfpipe show what print shows."""

import html
import pathlib

import pytest

import tfpipe
from tfpipe.profiling.measure import ThroughputFigures
from tfpipe.profiling.profile import PipelineProfile
from tfpipe.training.headspace import HeadspaceFigures
from tfpipe.training.step_timer import StepFigures

KINDS = (
    tfpipe.Search,
    PipelineProfile,
    HeadspaceFigures,
    ThroughputFigures,
    StepFigures,
)


def test_a_pipeline_shows_its_stages_escaped(data_dir: pathlib.Path) -> None:
    pipeline = tfpipe.imagenet_train(data_dir, batch_size=4, ops=[lambda e: e])

    shown = pipeline._repr_html_()

    assert "<lambda>" in str(pipeline)
    assert shown.startswith("<pre>")
    assert shown.endswith("</pre>")
    assert html.unescape(shown[5:-6]) == str(pipeline)
    assert "<lambda>" not in shown


@pytest.mark.parametrize("kind", KINDS)
def test_figures_show_what_print_shows(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "__str__", lambda _: "a < b")
    figures = object.__new__(kind)

    assert figures._repr_html_() == "<pre>a &lt; b</pre>"
