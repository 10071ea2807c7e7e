"""TensorFlow set up for unit tests: tiny graphs that run once each.

With UNIT_TESTS_WITH_GRAPPLER=1 nothing of TensorFlow or tfpipe is off or patched.

The workers of a session import it with their first test file. The process that hands
out the tests needs no TensorFlow.
"""

import contextlib
import functools

import pytest
import tensorflow as tf
from tensorflow.python.autograph.core import config
from tensorflow.python.util import tf_contextlib, tf_stack

from tests.unit.conftest import IS_WHOLE
from tfpipe.consumers.reminder import Reminder
from tfpipe.reading import read_ahead
from tfpipe.service import on_workers
from tfpipe.stages import interleave, map as map_stage, traced

# Grappler prepares the graph of each iterator for longer than these few images take. It
# also runs in the tests of ranks.
if not IS_WHOLE:
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # AutoGraph gets the functions that tests give to `Dataset.map`. It would parse and
    # compile all that these call in the library too, which needs it nowhere.
    config.CONVERSION_RULES = (
        config.DoNotConvert("tfpipe"),
        *config.CONVERSION_RULES,
    )
    # Each node of a graph keeps the stack of Python calls that made it, for messages
    # that no test reads. Below pytest these stacks are long: 6 % of the CPU time.
    _stack = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: _stack
    # TensorFlow makes such functions anew for each node and each graph, and inspects
    # the signature of each: 5 % of the CPU time.
    tf_contextlib.contextmanager = contextlib.contextmanager
    # The tests of a session build more pipelines than a process of a user.
    traced.traced = functools.lru_cache(maxsize=1000)(traced.traced.__wrapped__)
    for _module in (read_ahead, on_workers, interleave, map_stage):
        _module.traced = traced.traced

# The reminder takes a sixth of the time of a build; its own tests put it back.
REMINDER_AMONG = Reminder.among


def set_up(patch: pytest.MonkeyPatch) -> None:
    """Leaves out of each test what is dear and is tested elsewhere."""
    if not IS_WHOLE:
        patch.setattr(Reminder, "among", lambda self, stages: [*stages])
    # AutoGraph loads itself once a process; no test shall pay for it.
    tf.data.Dataset.range(1).map(lambda number: number if number > 0 else -number)
