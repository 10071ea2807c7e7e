"""One run: from a `Config` and the ranks to the result document.

In: what to run. Out: the result, and in the report folder its JSON and a picture of the
first batch, both written by rank 0.
"""

import datetime
import pathlib
from typing import Any

import tensorflow as tf

import tfpipe
from benchmarks import environment, loop, output
from benchmarks.config import Config
from benchmarks.ranks import Ranks
from benchmarks.setting import Setting, make_setting

SCHEMA_VERSION = 1


def run(config: Config, ranks: Ranks) -> dict[str, Any]:
    """Runs what the config says and returns the result document, on every rank.

    Raises:
        ValueError: If the config does not fit the data or the checkpoint.
        TfpipeError: If the data set is not complete, or too many records are damaged.
        OSError: If a folder cannot be written.
    """
    if config.report_dir and ranks.is_first:  # an unusable one is known before the work
        pathlib.Path(config.report_dir).mkdir(parents=True, exist_ok=True)
    setting = make_setting(config, ranks)
    if ranks.is_first:
        print(setting.pipeline, flush=True)
    result = {
        "command": "benchmarks.train",
        "schema_version": SCHEMA_VERSION,
        "config": setting.config.as_json(),
        "pipeline": str(setting.pipeline).splitlines(),
        "num_ranks": ranks.num_ranks,
        **_work(setting, ranks),
        "environment": environment.describe(),
    }
    if config.report_dir and ranks.is_first:
        _write_report(pathlib.Path(config.report_dir), setting, result)
    return result


def _work(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    work = loop.evaluate if setting.config.mode == "eval" else loop.train
    try:
        return work(setting, ranks)
    except tf.errors.OpError:
        log = setting.pipeline.faults
        if log is not None and (error := log.error()) is not None:
            raise error from None
        raise


def _write_report(
    folder: pathlib.Path, setting: Setting, result: dict[str, Any]
) -> None:
    """Writes `<time>-<mode>-<model>-x<ranks>.json` and the `.png` of a batch."""
    config = setting.config
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    name = f"{now}-{config.mode}-{config.model}-x{result['num_ranks']}"
    batch = next(iter(setting.pipeline.build().take(1)))
    names = [text.partition(",")[0] for text in setting.class_names]
    tfpipe.contact_sheet(batch, class_names=names).save(folder / f"{name}.png")
    # The JSON comes last: what has one is complete.
    output.write(result, folder / f"{name}.json")
