"""tests.torture.campaigns: the table of the documents has the stored figures."""

import pathlib

import pytest

from tests.torture import campaigns

REPORT = """<testsuites><testsuite>
<testcase name="a"><properties><property name="injections" value="200"/></properties>
</testcase>
<testcase name="b"/>
<testcase name="c"><skipped message="no program"/></testcase>
<testcase name="d"><failure message="wrong"/></testcase>
<testcase name="e"><error message="broken"/></testcase>
</testsuite></testsuites>"""


def test_the_table_of_the_documents_has_the_stored_figures() -> None:
    text = campaigns.PAGE.read_text()

    assert text == campaigns.page(text, campaigns.read())


@pytest.mark.parametrize("name", campaigns.CAMPAIGNS)
def test_the_tests_of_a_campaign_exist(name: str) -> None:
    for path in campaigns.CAMPAIGNS[name].tests:
        assert pathlib.Path(campaigns.ROOT, "tests", path).is_file(), path


def test_a_report_is_counted() -> None:
    assert campaigns.count(REPORT) == {
        **{"injections": 203, "tests": 4, "failures": 2, "skipped": 1}
    }


def test_a_campaign_without_figures_was_not_run() -> None:
    figures = {"kills": dict.fromkeys(("failures", "skipped"), 0)}
    figures["kills"] |= {"injections": 1234, "date": "2026-01-02", "commit": "abc"}
    figures["flips"] = figures["kills"] | {"share": 0.25, "skipped": 2}

    rows = campaigns.table(figures).splitlines()

    assert rows[2].endswith("| `kills` | 1,234 | 0 | 2026-01-02, abc |")
    assert rows[3].endswith("| `system_calls` | not run | |  |")
    assert rows[4].endswith("abc; 25% of the rounds; 2 tests skipped |")
