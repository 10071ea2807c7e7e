"""The end of a process waits for threads that read a dataset."""

import threading
from types import CodeType

import numpy as np
import pytest
import tensorflow as tf

from tfpipe import at_exit


def test_a_thread_gets_its_element_before_the_process_goes_on_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answer = threading.Event(), threading.Event()
    deleted, is_any_in = threading.Event(), at_exit._is_any_in
    seen, raised = [], []

    def wait(number: np.int64) -> np.int64:
        asked.set()
        answer.wait()
        return number

    numbers = tf.data.Dataset.range(100).map(
        lambda number: tf.numpy_function(wait, [number], tf.int64)
    )

    def read() -> None:
        try:
            for number in numbers:
                seen.append(int(number))
            seen.append("the end")
        except BaseException as error:
            raised.append(error)

    def is_waiting(waits: set[CodeType]) -> bool:
        deleted.set()  # all iterators are, when the exit begins to wait
        return is_any_in(waits)

    monkeypatch.setattr(at_exit, "_is_any_in", is_waiting)
    reader = threading.Thread(target=read, daemon=True)
    ending = threading.Thread(target=at_exit.end_iterators)
    reader.start()
    asked.wait()
    ending.start()
    deleted.wait()
    ending.join(timeout=0.1)
    was_ending = ending.is_alive()
    answer.set()
    ending.join()
    reader.join()

    assert was_ending
    assert seen == [0]  # the rest is not read, nor is it taken for the end
    assert [type(error) for error in raised] == [SystemExit]
