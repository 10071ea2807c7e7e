"""studies.advice.published: findings of others, from their hardware."""

import dataclasses

import pytest

from benchmarks.advisor.scenario import Data, Host, Scenario, Storage, Work
from studies.advice import published
from studies.advice.published_tests import TESTS, Published, PublishedTest

# One accelerator of 100 images/s of 1 MB; a storage of 1 GB/s feeds 10 of them.
SCENARIO = Scenario(
    data=Data(num_images=100_000, record_bytes=1e6),
    work=Work(accelerator_images_per_second=100.0, cpu_seconds=0.01, batch_size=10),
    host=Host(num_accelerators=1, num_cores=4),
    storage=Storage(bytes_per_second=1e9),
)


@pytest.fixture(autouse=True)
def _short_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study simulates more steps, which take seconds for all tests together."""
    simulate = published.simulation.simulate
    monkeypatch.setattr(
        published.simulation, "simulate", lambda s, **_: simulate(s, max_steps=2)
    )


def one_test(*figures: Published, binding: str = "accelerator") -> PublishedTest:
    return PublishedTest(
        name="test",
        scenario=SCENARIO,
        binding=binding,
        figures=figures,
        source="somebody",
        inputs="given",
    )


def figures(test: PublishedTest) -> dict[str, float]:
    """Returns the predicted figures of a test, by quantity."""
    return {f["quantity"]: f["predicted"] for f in published.compare(test)["figures"]}


def test_each_quantity_is_that_of_the_scenario() -> None:
    test = one_test(
        Published(quantity="images_per_second", value=100),
        Published(quantity="storage_bytes_per_second", value=1e8),
        Published(quantity="cpu_share", value=0.25),
        Published(quantity="busy_share", value=1.0),
        Published(quantity="num_accelerators", value=11),
    )

    assert figures(test) == pytest.approx(
        {
            "images_per_second": 100,
            "storage_bytes_per_second": 1e8,
            "cpu_share": 0.25,
            "busy_share": 1.0,
            "num_accelerators": 11,  # 12 of them are busy for 83 % of the time
        }
    )


@pytest.mark.parametrize("hosts_accelerators", [1, 4])
def test_accelerators_are_counted_in_whole_hosts(hosts_accelerators: int) -> None:
    host = dataclasses.replace(SCENARIO.host, num_accelerators=hosts_accelerators)
    scenario = dataclasses.replace(SCENARIO, host=host)

    found = published.num_busy_accelerators(scenario)

    assert found == 11 // hosts_accelerators * hosts_accelerators


def test_a_storage_that_feeds_nobody_keeps_none_busy() -> None:
    slow = dataclasses.replace(SCENARIO, storage=Storage(bytes_per_second=1e6))

    assert published.num_busy_accelerators(slow) == 0


@pytest.mark.parametrize(
    ("test", "problems"),
    [
        (one_test(Published(quantity="images_per_second", value=114)), []),
        (
            one_test(Published(quantity="images_per_second", value=120)),
            ["test: images_per_second is 0.83 times the published figure"],
        ),
        (one_test(Published(quantity="images_per_second", value=120, reason="r")), []),
        (one_test(binding="cpu"), ["test: binding is accelerator, published cpu."]),
    ],
)
def test_a_difference_needs_a_reason(test: PublishedTest, problems: list[str]) -> None:
    rows = [published.compare(test)]

    found = published.problems(rows)

    assert len(found) == len(problems)
    assert all(
        text.startswith(start) for text, start in zip(found, problems, strict=True)
    )
    assert test.name in published.table(rows) or not test.figures


def test_a_reason_is_shown_only_where_it_is_needed() -> None:
    near = one_test(Published(quantity="images_per_second", value=101, reason="far"))
    far = one_test(Published(quantity="images_per_second", value=200, reason="far"))

    assert "far" not in published.table([published.compare(near)])
    assert "[1] test, images/s: far." in published.table([published.compare(far)])


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_each_published_test_is_reproduced(
    test: PublishedTest,
) -> None:
    row = published.compare(test)

    assert published.problems([row]) == []
    assert test.source
    assert test.inputs


def test_wrong_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="quantity must be one of"):
        Published(quantity="speed", value=1)
    with pytest.raises(ValueError, match="value must be above 0"):
        Published(quantity="cpu_share", value=0)
