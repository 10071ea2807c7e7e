"""Workers of a service that do not answer are named, once."""

from benchmarks.distributed.silent_workers import SilentWorkers

ADDRESS = "host:5051"


def test_a_silent_worker_is_named_once_and_again_when_it_is_back() -> None:
    alive, now = {"a:1", "b:2"}, [0.0]
    silent = SilentWorkers(10, alive.__contains__, lambda: now[0])

    def look(seconds: float) -> list[str]:
        now[0] += seconds
        return silent.look(["a:1", "b:2"])

    assert [look(5), look(60)] == [[], []]
    alive.remove("b:2")
    assert look(9) == []
    (sentence,) = look(1)
    assert sentence.startswith("The worker at b:2 has not answered for 10 seconds.")
    assert "--address=b:2" in sentence
    assert look(100) == []
    alive.add("b:2")
    assert look(1) == ["The worker at b:2 answers again."]
    assert look(9) == []


def test_a_worker_that_never_answered_is_named_after_the_limit() -> None:
    now = [0.0]
    silent = SilentWorkers(10, lambda _: False, lambda: now[0])

    assert silent.look([ADDRESS]) == []
    now[0] = 10.0
    assert len(silent.look([ADDRESS])) == 1
