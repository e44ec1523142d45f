"""Which process of a run reports its errors."""

from zoo.errors import Interrupted, ZooError


class ProcessState:
    """State of this process."""

    has_process_group = False  # Whether it has joined the processes of a run.


state = ProcessState()


class ReportedElsewhere(Exception):
    """The end of a process by an error that the main process reports."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        if isinstance(error, ZooError):
            self.exit_code = error.exit_code
        else:
            self.exit_code = Interrupted.exit_code
