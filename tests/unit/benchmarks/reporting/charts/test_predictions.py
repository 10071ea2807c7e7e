"""benchmarks.reporting.charts.sweeps: the answer and the table of a prediction."""

from benchmarks.reporting.charts import sweeps
from benchmarks.results.collection import Result
from tests.support.data import sample_results


def test_a_prediction_has_its_sentences_and_a_row_for_each_number() -> None:
    (chart,) = sweeps.predictions([Result("advice", sample_results.advice())])

    assert chart.title == "Predicted: resnet50 on v100"
    assert chart.sentences[0].startswith(
        "72 V100 on 9 hosts with 8 each, training resnet50"
    )
    assert chart.plots == []
    assert [row[0] for row in chart.rows] == [
        *("1", "2", "4", "8", "16", "32", "64", "72")
    ]
    last = dict(zip(chart.columns, chart.rows[-1], strict=True))
    columns = ("hosts", "images/s", "bound by", "1st epoch, images/s")
    assert [last[name] for name in columns] == ["9", "91,872", "accelerator", "51,236"]
    assert last["1st epoch, bound by"] == "storage"


def test_documents_without_figures_have_no_chart() -> None:
    for rows in ([], ["x", 3], [{"num_accelerators": "8"}]):
        document = {"command": "benchmarks.advise", "rows": rows}
        assert sweeps.predictions([Result("advice", document)]) == []
