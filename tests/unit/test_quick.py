"""tests.unit.quick: parts of TensorFlow and tfpipe are off, or all of it is on."""

import inspect

import tensorflow as tf
from tensorflow.python.autograph.core import config
from tensorflow.python.util import tf_stack

from tests.unit import quick
from tests.unit.conftest import IS_WHOLE
from tfpipe.consumers.reminder import Reminder


def test_all_parts_are_off_or_none_is() -> None:
    options = tf.config.optimizer.get_experimental_options()
    rules = list(map(str, config.CONVERSION_RULES))
    is_off = {
        "Grappler": options.get("disable_meta_optimizer", False),
        "AutoGraph": str(config.DoNotConvert("tfpipe")) in rules,
        "stacks": inspect.getmodule(tf_stack.extract_stack) is not tf_stack,
        "Reminder": Reminder.among is not quick.REMINDER_AMONG,
    }

    assert is_off == dict.fromkeys(is_off, not IS_WHOLE)
