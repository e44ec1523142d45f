"""How processes join: with a store that outlives them, and with values that may differ."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

from zoo.training.distributed.joining import (
    NotStarted,
    compare_values,
    join,
    late_host_warning,
)

TIMEOUT = 20.0


@pytest.fixture
def server() -> Any:
    """The store of a launcher, which stays when processes start again."""
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=TIMEOUT))


def in_ranks(count: int, function: Callable[[int], Any]) -> list[Any]:
    """Call a function once for each rank, at the same time."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, range(count)))


def client(server: Any) -> Store:
    return TCPStore("127.0.0.1", server.port, is_master=False)


def joined(server: Any, count: int) -> list[Store]:
    return in_ranks(count, lambda rank: join(client(server), rank, count, TIMEOUT))


@pytest.mark.parametrize("counts", [(2, 2), (3, 2), (2, 3)])
def test_a_second_start_sees_no_key_of_the_first(server: Any, counts: tuple[int, int]) -> None:
    first, second = counts
    for store in joined(server, first):
        store.set("address", "of a process that has ended")
    stores = joined(server, second)
    assert [store.check(["address"]) for store in stores] == [False] * second
    stores[0].set("address", "new")
    assert [store.get("address") for store in stores] == [b"new"] * second


def test_a_process_that_does_not_start_is_missed(server: Any) -> None:
    with pytest.raises(NotStarted, match="2 of 3 processes have not started after 0 s"):
        join(client(server), 0, 3, 0.1)
    with pytest.raises(NotStarted, match="process 0 has not started"):
        join(client(server), 1, 3, 0.1)


def test_a_signal_ends_a_process_that_waits_for_others(server: Any) -> None:
    """A launcher sends one when another process has ended; Ctrl-C is one as well."""
    for rank in (0, 1):
        own_client = client(server)
        sender = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        sender.start()
        start = time.monotonic()
        with pytest.raises(NotStarted, match="interrupted before all 2 processes have started"):
            join(own_client, rank, 2, TIMEOUT)
        assert time.monotonic() - start < TIMEOUT / 2
        sender.join()


def test_values_that_differ_are_named_with_their_hosts(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [{"torch": "2.13.0", "zoo": "1.0"}] * 2 + [{"torch": "2.12.1", "zoo": "1.0"}]
    hosts = iter(["hosta", "hosta", "hostb"])
    monkeypatch.setattr(socket, "gethostname", lambda: next(hosts))
    stores = [client(server) for _ in range(3)]

    def compare(rank: int) -> str:
        wait = partial(wait_in, stores[rank])
        return compare_values(stores[rank], "software", values[rank], rank, 3, wait)

    # One after the other: the hosts are in the order of the ranks.
    with ThreadPoolExecutor(3) as pool:
        results = []
        for rank in range(3):
            results.append(pool.submit(compare, rank))
            while rank and not server.check([f"software/{rank}"]):
                pass
        texts = {result.result(TIMEOUT) for result in results}
    assert texts == {"torch is 2.13.0 on hosta, 2.12.1 on hostb"}


def test_equal_values_are_no_difference(server: Any) -> None:
    stores = [client(server) for _ in range(2)]

    def compare(rank: int) -> str:
        wait = partial(wait_in, stores[rank])
        return compare_values(stores[rank], "data", {"the corpus": "3f2a"}, rank, 2, wait)

    assert in_ranks(2, compare) == ["", ""]


def wait_in(store: Store, key: str, rank: int) -> None:
    store.wait([key], timedelta(seconds=TIMEOUT))


@pytest.mark.parametrize(
    ("hosts", "restarts", "shares_store", "is_warned"),
    [
        ("2", "3", "True", True),
        ("2", "3", "False", False),
        ("2", "0", "True", False),  # Nothing starts again.
        ("1", "3", "True", False),
    ],
)
def test_hosts_that_could_not_be_replaced(
    hosts: str, restarts: str, shares_store: str, is_warned: bool
) -> None:
    """The variables are those that agents of ``torchrun`` set."""
    environment = {
        "GROUP_WORLD_SIZE": hosts,
        "TORCHELASTIC_MAX_RESTARTS": restarts,
        "TORCHELASTIC_USE_AGENT_STORE": shares_store,
    }
    warning = late_host_warning(environment)
    assert bool(warning) == is_warned
    assert warning == "" or "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on all hosts" in warning
    assert late_host_warning({}) == ""
