"""Wishes: what is waited for comes first, and nothing is kept that nobody waits for."""

import tfpipe
from tfpipe.shard_cache.downloader import Claim, FetchTask, Wishes

ERROR = tfpipe.errors.RemoteError("the store is down")


def test_pieces_that_are_waited_for_come_before_those_ahead():
    wishes = Wishes()
    wishes.set_ahead(1, list(range(20)))
    wishes.set_ahead(2, [50])
    wishes.wait_for([90, 91], 0)

    assert wishes.next() == Claim([90, 91], is_ahead=False)
    tasks = [FetchTask(90, True), FetchTask(91, False)]
    with wishes.awaited([90, 91]):
        wishes.claimed(tasks, {}, False)
    assert [wishes.next(), wishes.next()] == tasks
    # The readers take turns, each in its order.
    claims = []
    for _ in range(4):
        claims.append(wishes.next())
        wishes.claimed([], {}, False)
    assert claims == [
        Claim([0, 1, 2, 3, 4, 5, 6, 7], is_ahead=True),
        Claim([50], is_ahead=True),
        Claim([8, 9, 10, 11, 12, 13, 14, 15], is_ahead=True),
        Claim([16, 17, 18, 19], is_ahead=True),
    ]
    assert wishes.is_busy(0)
    wishes.done(90, None)
    wishes.done(91, None)
    assert not wishes.is_busy(0)
    wishes.end()
    assert wishes.next() is None


def test_a_piece_on_its_way_is_not_asked_for_again():
    wishes = Wishes()
    wishes.wait_for([1, 2], 0)
    assert wishes.next() == Claim([1, 2], is_ahead=False)
    wishes.claimed([FetchTask(1, True)], {}, False)
    wishes.next()

    wishes.wait_for([1, 2], 0)

    assert wishes.next() == Claim([2], is_ahead=False)


def test_a_claim_is_always_followed_by_its_task():
    """The disk was full for the first task: its claim ended before the task did."""
    wishes = Wishes()
    for _ in range(2):
        wishes.set_ahead(1, [5])
        wishes.next()
        wishes.claimed([FetchTask(5, True)], {}, False)
        assert wishes.next() == FetchTask(5, True)
    wishes.done(5, None)
    wishes.done(5, None)
    assert not wishes.is_busy(0)


def run(wishes, piece, result):
    wishes.wait_for([piece], 0)
    wishes.next()
    wishes.claimed([FetchTask(piece, True)], {}, False)
    wishes.next()
    wishes.done(piece, result)


def test_bytes_and_errors_are_kept_for_those_who_wait_and_no_longer():
    wishes = Wishes()
    run(wishes, 1, memoryview(b"unwanted"))
    run(wishes, 2, ERROR)
    assert (wishes.in_memory, wishes.failed) == ({}, {})

    with wishes.awaited([1, 2]):
        with wishes.awaited([1, 2]):
            run(wishes, 1, memoryview(b"wanted"))
            run(wishes, 2, ERROR)
        assert wishes.in_memory == {1: b"wanted"}
        assert wishes.failed[2][1] is ERROR
    assert (wishes.in_memory, wishes.failed) == ({}, {})


def test_look_ahead_ends_where_there_is_no_room_or_no_store():
    for tasks, failed, is_full in [([], {}, True), ([], {3: ERROR}, False)]:
        wishes = Wishes()
        wishes.set_ahead(1, list(range(20)))
        wishes.next()
        wishes.claimed(tasks, failed, is_full)
        assert not wishes.is_busy(0)
