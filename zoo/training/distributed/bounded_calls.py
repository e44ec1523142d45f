"""Calls that may not return, such as to a store whose machine is stopped or cut off."""

import threading
from collections.abc import Callable


def call_within(seconds: float, function: Callable[[], bool]) -> bool:
    """Call a function in a thread, and return its result if it returns in time, else ``False``.

    A client of torch's store waits for an answer without a limit. A call that has not returned
    goes on in its thread, which ends with this process, and blocks later calls of that client.
    """
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(results) and results[0]
