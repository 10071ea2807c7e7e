"""Several logs of faults as one: of the parts of a mixture, or of several stages.

In: what `FaultLog`s a pipeline has. Out: one to look at, which counts all of them; each
log keeps its own budget.
"""

from collections.abc import Sequence

from tfpipe.errors import BadRecordError
from tfpipe.stages.faults import Fault, FaultLog


def combined(logs: Sequence[FaultLog | None]) -> FaultLog | None:
    """The log that these are, or one that shows all of them; None if there is none."""
    different = list({id(log): log for log in logs if log is not None}.values())
    if len(different) <= 1:
        return different[0] if different else None
    return FaultLogs(different)


class FaultLogs(FaultLog):
    """What several logs met, to look at.

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
        """Those met so far, log after log, each in the order of its split."""
        return [fault for log in self.logs for fault in log.faults]

    def add(self, fault: Fault) -> None:
        """Refuses, as it is not known which of the logs met it.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"A fault must be added to one of the {len(self.logs)} logs, not to all of "
            f"them, got {fault}."
        )

    def error(self) -> BadRecordError | None:
        """What to raise, if one of the logs has more than its budget allows."""
        found = (log.error() for log in self.logs)
        return next((error for error in found if error is not None), None)
