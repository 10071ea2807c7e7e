"""Several logs of faults as one: those of a mixture's parts, or of several stages.

In: the `FaultLog`s of a pipeline. Out: one log to read, with the faults of all of them;
each log keeps its own budget.
"""

from collections.abc import Sequence

from tfpipe.errors import BadRecordError
from tfpipe.stages.faults import Fault, FaultLog


def combined(logs: Sequence[FaultLog | None]) -> FaultLog | None:
    """Returns the only log, or one log that shows several; None if there is none."""
    different = list({id(log): log for log in logs if log is not None}.values())
    if len(different) <= 1:
        return different[0] if different else None
    return FaultLogs(different)


class FaultLogs(FaultLog):
    """The faults of several logs, to read.

    Args:
        logs: The logs, each with its own budget.
    """

    def __init__(self, logs: Sequence[FaultLog]) -> None:
        super().__init__(sum(log.max_faults for log in logs))
        self.logs = tuple(logs)

    def __repr__(self) -> str:
        return f"FaultLogs({list(self.logs)})"

    @property
    def faults(self) -> list[Fault]:
        """The faults so far, log after log, each in the order of its split."""
        return [fault for log in self.logs for fault in log.faults]

    def add(self, fault: Fault) -> None:
        """Refuses the fault, as it is not known to which log it belongs.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"A fault must be added to one of the {len(self.logs)} logs, not to all of "
            f"them, got {fault}."
        )

    def error(self) -> BadRecordError | None:
        """Returns the error to raise if a log exceeds its budget, otherwise None."""
        found = (log.error() for log in self.logs)
        return next((error for error in found if error is not None), None)
