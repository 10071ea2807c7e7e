"""tests.torture.campaigns: the table of the documents has the stored figures."""

import pathlib
import subprocess

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


@pytest.mark.parametrize("name", campaigns.read())
def test_the_commit_of_a_run_is_in_the_history(name: str) -> None:
    commit = campaigns.read()[name]["commit"]

    if _git("rev-parse", "--is-shallow-repository").stdout != "false\n":
        pytest.skip("this is no checkout with the whole history")

    assert _git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0, commit


def _git(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["git", *words],
        cwd=campaigns.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_report_is_counted() -> None:
    assert campaigns.count(REPORT) == {
        **{"injections": 203, "tests": 4, "failures": 2, "skipped": 1}
    }


def test_a_campaign_without_figures_was_not_run() -> None:
    figures = {"kills": dict.fromkeys(("failures", "skipped"), 0)}
    figures["kills"] |= {"injections": 1234, "date": "2026-01-02", "commit": "abc"}
    figures["flips"] = figures["kills"] | {"share": 0.25, "skipped": 2}
    figures["clocks"] = figures["kills"] | {"share": 0.0}

    rows = campaigns.table(figures).splitlines()

    assert rows[2].endswith("| `kills` | 1,234 | 0 | 2026-01-02, abc |")
    assert rows[3].endswith("| `system_calls` | not run | |  |")
    assert rows[4].endswith("abc; 25% of the rounds; 2 tests skipped |")
    assert rows[5].endswith("abc; the few rounds of `make test` |")


def test_curves_of_a_load_are_shown() -> None:
    curves = [
        "verify: [[10, 1.5, 90], [1000, 20.0, 95]]",
        '3 shards: {"open_files": 2}',
    ]
    row = {"injections": 3, "failures": 0, "skipped": 0, "date": "", "commit": ""}

    text = campaigns.table({"load": row | {"curves": curves}})

    shown = "10 records, 1.5 s, 90 MB; 1,000 records, 20.0 s, 95 MB"
    assert f"| verify | {shown} |\n| 3 shards | 2 open files |\n" in text


def test_mutants_are_a_row() -> None:
    (row,) = [r for r in campaigns.table({}).splitlines() if "`make mutants`" in r]

    mutants, survived = (cell.strip() for cell in row.split("|")[4:6])
    assert int(mutants) > 200
    assert int(survived) == 0
