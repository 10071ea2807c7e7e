"""One rank of a `RankPool`: waits for scenarios, runs them and writes its answers.

horovodrun -np 2 python -m tests.support.processes.rank_pool_worker FOLDER PID

PID is the process of the tests, which the rank does not outlive.
"""

import os
import pathlib
import pickle
import sys
import time
import traceback

from benchmarks.distributed import ranks
from tests.support.processes.rank_pool import POLL_SECONDS, Answer, write_whole


def main() -> None:
    folder, owner = pathlib.Path(sys.argv[1]), pathlib.Path("/proc", sys.argv[2])
    world = ranks.connect()
    (folder / f"rank{world.rank}.pid").write_text(str(os.getpid()))
    number = 0
    while not (folder / "close").exists() and owner.exists():
        task = folder / f"{number}.task"
        if task.exists():
            answer = _answer(task, world)
            write_whole(folder / f"{number}.rank{world.rank}", answer)
            number += 1
        time.sleep(POLL_SECONDS)


def _answer(task: pathlib.Path, world: ranks.Ranks) -> Answer:
    try:
        function, arguments, options = pickle.loads(task.read_bytes())
        value = function(world, *arguments, **options)
        pickle.dumps(value)  # a value that cannot be sent is an error of the scenario
        return Answer(value)
    except BaseException:  # SystemExit too: the rank must stay for the next scenario
        return Answer(error=traceback.format_exc())


if __name__ == "__main__":
    main()
