"""studies/results: the documents show the stored figures; each file has its commit."""

import functools
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[3]
RESULTS = ROOT / "studies/results"
NAMES = sorted(path.name for path in RESULTS.glob("*.json"))

# "# page result": the page, and the stored result that the next lines are about.
# "keys format: begin": keys of a figure, its format, and how its line begins. The
# format of a figure with its least and its most ends in an s.
FIGURES = """
# performance 2026-11-26-decode
ways.tfpipe_foreign_uint8.cpu_ratio .2fs: | the same, shards of another
# performance 2026-11-26-decode-two-rows
ways.tfpipe_default_uint8.cpu_ratio .2fs: | `imagenet_train`, nothing set |
ways.tfpipe_whole_float32.cpu_ratio .2fs: | the same as float32, as
ways.entries_default_uint8.cpu_ratio .2fs: | nothing set, data with [entry
ways.tfpipe_eval_uint8.cpu_ratio .2fs: | `imagenet_eval`, over
ways.entries_eval_uint8.cpu_ratio .2fs: | `imagenet_eval`, over
# performance 2026-11-24-decode
ways.tfpipe_whole_bfloat16.cpu_ratio .2fs: | the same as float32, as
ways.entries_whole_float32.cpu_ratio .2fs: | the same as float32 |
# performance 2026-11-23-decode-large
ways.tfpipe_default_uint8.cpu_ratio .2fs: | `imagenet_train`, nothing set |
ways.entries_default_uint8.cpu_ratio .2fs: | nothing set, data with [entry
# performance 2026-11-25-conversion
images_per_second_ratio_to_bare_loop.converter.writing .2fs: | writing alone, no
images_per_second_ratio_to_bare_loop.converter_fsync.writing .2fs: | writing alone, with
images_per_second_ratio_to_bare_loop.entry_points.whole .2fs: | the whole command with
verify_to_sha256sum_speed_ratio .1f: The bare loop
# performance 2026-11-23-peers
peers.uint8.tfpipe_whole.cpu_ratio .2fs: | `imagenet_train`, nothing set (
peers.uint8.tfpipe_whole.images_per_second .0f: | `imagenet_train`, nothing set (
peers.uint8.tfpipe_native.cpu_ratio .2fs: | the same with `whole_batches=False`
peers.float32.tfpipe_native.cpu_ratio .2fs: | the same with `whole_batches=False`
peers.float32.garden.cpu_ratio .2fs: | tf.data as Model Garden
peers.uint8.dali.cpu_ratio .2fs: | DALI
peers.float32.torch_cv.cpu_ratio .2fs: | PyTorch DataLoader, simplejpeg
peers.uint8.spdl_cv.cpu_ratio .2fs: | SPDL
peers.float32.ffcv.cpu_ratio .2fs: | FFCV
peers.uint8.webdataset_cv.cpu_ratio .2fs: | WebDataset
peers.float32.torch_pil.cpu_ratio .2fs: | PyTorch DataLoader, Pillow
# performance 2026-11-25-cores
variants.ranks.cpu_ratio .2fs: The rows from
rate_ratio .2f: The rows from
# performance 2026-11-21-realism-decode
cpu_ratio .2f: | CPU-seconds to decode
bytes_ratio .2f: | bytes |
# performance 2026-11-23-shard-cache
cost.warm cache.cpu_ratio .3f: | a filled cache
hits.0.hit_rate .1%: | a cache of a part
hits.2.optimal_hit_rate .1%: | a cache of a part
# performance 2026-11-23-shard-cache-download
download.shard cache.ratio .2f: | an empty cache
# performance 2026-11-27-shard-cache-capacity
capacity.2.open_seconds .2f: | a full cache of 10 TB
capacity.2.megabytes_per_second ,.0f: | a full cache of 10 TB
capacity.3.users_megabytes .0f: | a full cache of 10 TB
capacity.3.megabytes_per_second ,.0f: | a full cache of 10 TB
# performance 2026-11-27-stock
ways.tfpipe_uint8.cpu_ratio .2fs: | `imagenet_train`, stock ops |
ways.tfpipe_uint8_without_native_op.cpu_ratio .2fs: | the same where the native
# performance 2026-11-28-decode-epyc
ways.tfpipe_whole_float32.cpu_ratio .2fs: | `imagenet_train`, nothing set, and
ways.entries_default_uint8.cpu_ratio .2fs: | nothing set, with entry points
ways.entries_eval_uint8.cpu_ratio .2fs: | `imagenet_eval`, without and
# performance 2026-11-27-cores
variants.ranks.cpu_ratio .2fs: The rows from
# performance 2026-11-28-epochs
ways.keras.cpu_ratio .2fs: | an epoch of `for_keras()` |
ways.first.cpu_seconds .2fs: | `build(epoch=...)` and
ways.first_keras.cpu_seconds .2fs: | a new iterator of `for_keras()`
# performance 2026-11-24-tuning
cases.serial map.tuned_of_best .2f: | one decode at a time
cases.one reader.tuned_of_autotune .2f: | one reader
# performance 2026-11-28-tuning
cases.no prefetch.tuned_of_best .2f: Batches have 32
cases.given cache.tuned_of_best .2f: Batches have 32
cases.tiny batch copies.tuned_of_best .2f: Batches have 32
cases.cache that does not fit.tuned_of_autotune .2f: Batches have 32
cases.given cache.tuned_of_autotune .2f: Batches have 32
# entry_points 2026-11-26-decode-two-rows
ways.tfpipe_default_uint8.cpu_ratio .2fs: | `imagenet_train`, nothing set |
ways.entries_eval_uint8.cpu_ratio .2fs: | `imagenet_eval`, over
# entry_points 2026-11-23-decode-large
ways.entries_default_uint8.cpu_ratio .2fs: | `imagenet_train`, 299 pixels
# entry_points 2026-11-23-decode-progressive
ways.rewritten_whole_uint8.cpu_ratio .2f: Markers win
# performance 2026-11-28-object-store
cold.ratio .2fs: | an epoch in training order
warm.ratio .2fs: | an epoch in training order
# performance 2026-11-28-fill
parts.order.ratio to obstore.ratio .2fs: | an epoch in training order
# native_reading 2026-11-24-decode
ways.tfpipe_foreign_uint8.cpu_ratio .2f: The records may be
ways.tfpipe_foreign_uint8_read_by_tensorflow.cpu_ratio .2fs: The records may be
# table 2026-11-27-tables
ratio.uncompressed .2fs: | Parquet with bytes, uncompressed
ratio.snappy .2fs: | Parquet with bytes, Snappy
# service 2026-11-28-service
ways.service.ratio .2fs: `python -m studies.service
ways.compressed.ratio .2f: `python -m studies.service
# studies 2026-11-28-service
ways.tensorflow.ratio .2fs: `service` compares
ways.service.ratio .2fs: `service` compares
# studies 2026-11-23-storage-probe
readings.0.ratio .3f: `storage` reads
readings.1.ratio .3f: `storage` reads
# studies 2026-11-28-cache-faults
num_errors ,d: `cache_faults` kills
num_records ,d: `cache_faults` kills
# studies 2026-11-27-fill
parts.small.ratio to obstore.ratio .2f: `fill` brings
# studies 2026-11-28-fill-large
parts.large.ratio to obstore.ratio .2fs: `fill` brings
parts.large.ratio to synced.ratio .2fs: `fill` brings
parts.large.shard cache.process_cpu_seconds .2f: `fill` brings
parts.large.obstore.process_cpu_seconds .2f: `fill` brings
# studies 2026-11-28-fill
parts.order.ratio to obstore.ratio .2fs: `fill` brings
# README 2026-11-28-fill
parts.order.ratio to obstore.ratio .2fs: | rate of an epoch from an object
# README 2026-11-28-object-store
cold.ratio .2fs: | rate of an epoch from an object
warm.ratio .2fs: | rate of an epoch from an object
# studies 2026-11-28-object-store
cold.ratio .2fs: `object_store` reads
warm.ratio .2fs: `object_store` reads
# studies 2026-11-26-object-store
ratio .2f: `object_store` reads
cpu_ratio .2f: `object_store` reads
# studies 2026-11-22-dlio
step_times_ms.25.dlio.au .1%: | steps of 25 ms
step_times_ms.100.read_only.au .1%: | steps of 100 ms
# query 2026-11-23-query
clauses.all.query.median .2f: | none |
clauses.all.num_chosen ,d: | none |
clauses.classes.total.median .2f: | `width
# order 2026-11-26-affinity
affinity.64.records_met ,.0f: Two hosts behind
affinity.4.records_met ,.0f: Two hosts behind
affinity.none.records_met ,.0f: Two hosts behind
# predictions 2026-11-23-advice-this-host
rows.0.measured_images_per_second .1f: | 1 | 32 | 108.8
"""


@functools.cache
def _stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _figure(result: str, keys: str) -> Any:
    value = _stored(result)
    for key in keys.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def _shown(result: str, keys: str, form: str) -> str:
    """The text of a figure in a document."""
    if not form.endswith("s"):
        return format(_figure(result, keys), form).replace("%", " %")
    is_summary = isinstance(_figure(result, keys), dict)
    ends = (".median", ".min", ".max") if is_summary else ("", "_min", "_max")
    median, least, most = (
        format(_figure(result, keys + end), form[:-1]) for end in ends
    )
    return f"{median} ({least} to {most})"


def _lines(page: str, begin: str) -> str:
    """All lines of a page that begin so."""
    (path,) = [*ROOT.glob(f"docs/*/{page}.md"), *ROOT.glob(f"{page}.md")]
    text = path.read_text()
    return "\n".join(line for line in text.splitlines() if line.startswith(begin))


def _missing() -> Iterator[str]:
    page = result = ""
    for row in FIGURES.strip().splitlines():
        if row.startswith("# "):
            page, result = row[2:].split()
            continue
        figure, _, begin = row.partition(": ")
        keys, _, form = figure.rpartition(" ")
        text = _shown(result, keys, form)
        if not re.search(rf"(?<![\d.]){re.escape(text)}(?!\d)", _lines(page, begin)):
            yield f"{page}.md: {begin!r} lacks {text}, {keys} of {result}"


def test_documents_show_the_stored_figures() -> None:
    assert [*_missing()] == []


def test_links_to_results_lead_to_files() -> None:
    links = {
        link
        for page in ROOT.glob("docs/**/*.md")
        for link in re.findall(
            r"\((?:\.\./)+studies/results/([^)]+)\)", page.read_text()
        )
    }

    assert len(links) > 20
    assert links <= {*NAMES, "README.md"}


@pytest.mark.parametrize("name", NAMES)
def test_a_result_has_the_commit_that_was_measured(name: str) -> None:
    code = "(?:benchmarks|studies|tests)"
    row = rf"\[{name}\]\({name}\) \| `{code}/\S+\.py` \| (\w{{9}}) \|"
    match = re.search(row, (RESULTS / "README.md").read_text())

    assert match, "studies/results/README.md names code and commit of each result"
    revision = _stored(name.removesuffix(".json"))["environment"].get("git_revision")
    if revision and not name.startswith("2026-11-24-tuning"):  # not in the history
        assert revision.startswith(match[1])
