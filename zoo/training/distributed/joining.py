"""How the processes of a run join: a store of their own, and the same software and data."""

import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec
from torch.distributed.distributed_c10d import PrefixStore, Store

from zoo.errors import Interrupted, first_names

JOIN_KEY = "zoo/join/{rank}"  # The store's key of the token of a process that starts.
ANSWER_KEY = "zoo/join/answer/{token}"  # The store's key of the prefix that it is answered with.
COUNT_KEY = "joined"  # The key, with that prefix, of the number of processes that use it.
SHARED_STORE_SWITCH = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
POLL_SECONDS = 0.05
READ_SECONDS = 2.0  # Time in which other processes read a result.
MAX_VALUE_LENGTH = 16  # characters of a digest in a message


class HostValues(msgspec.Struct):
    """What a process writes to be compared."""

    host: str
    values: dict[str, str]


class NotStarted(Interrupted):
    """Work that waited for another process in vain."""


def join(store: Store, rank: int, world_size: int, timeout: float) -> Store:
    """Return a part of the store of the rendezvous that only these processes use.

    The agents of ``torchrun`` keep their store when they start the processes again, and gloo would
    connect to the addresses of processes that have ended. A process cannot know from the store
    which keys are old, so each writes a random token, and the main process answers tokens.

    Raises:
        NotStarted: other processes have not started in time, or before a signal.
    """
    token = uuid.uuid4().hex
    try:
        if rank == 0:
            return _answer_others(store, token, world_size, timeout)
        store.set(JOIN_KEY.format(rank=rank), token)
        answer_key = ANSWER_KEY.format(token=token)
        wait_for_key(store, answer_key, 0, timeout)
    except KeyboardInterrupt as error:
        raise NotStarted(
            f"interrupted before all {world_size} processes have started",
            "the launcher says whether one has ended",
        ) from error
    own_store = PrefixStore(store.get(answer_key).decode(), store)
    own_store.add(COUNT_KEY, 1)
    return own_store


def _answer_others(store: Store, token: str, world_size: int, timeout: float) -> Store:
    """Tell all other processes which part of the store is theirs, and return it."""
    prefix = f"zoo/{token}"
    own_store = PrefixStore(prefix, store)
    deadline = time.monotonic() + timeout
    answered_tokens = set()
    while (joined_count := own_store.add(COUNT_KEY, 0)) < world_size - 1:
        for peer in range(1, world_size):
            key = JOIN_KEY.format(rank=peer)
            if not store.check([key]):
                continue
            peer_token = store.get(key).decode()
            if peer_token not in answered_tokens:  # It may be that of a process that has ended.
                store.set(ANSWER_KEY.format(token=peer_token), prefix)
                answered_tokens.add(peer_token)
        if time.monotonic() > deadline:
            missing_count = world_size - 1 - joined_count
            raise NotStarted(
                f"{missing_count} of {world_size} processes have not started after {timeout:.0f} s",
                "look at their machines",
            )
        time.sleep(POLL_SECONDS)
    return own_store


def wait_for_key(store: Store, key: str, rank: int, timeout: float) -> None:
    """Wait for a key that a process sets when it starts.

    A signal interrupts this; it would not interrupt the store's ``wait``.

    Raises:
        NotStarted: the process has not set it in time.
    """
    deadline = time.monotonic() + timeout
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise NotStarted(
                f"process {rank} has not started after {timeout:.0f} s", "look at its machine"
            )
        time.sleep(POLL_SECONDS)


def late_host_warning(environment: Mapping[str, str]) -> str:
    """Return a warning if a host could not join the job later, or an empty text.

    The agents of ``torchrun`` keep the address of the store that they made for the first start, and
    one that joins a later start waits for an address that nobody writes (torch 2.13,
    ``DynamicRendezvousHandler.next_rendezvous``).

    Args:
        environment: variables that ``torchrun`` gives its processes.
    """
    restarts = environment.get("TORCHELASTIC_MAX_RESTARTS", "0")
    hosts = environment.get("GROUP_WORLD_SIZE", "1")
    shares_store = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if not shares_store or restarts == "0" or hosts == "1":
        return ""
    return (
        "a host that replaces another one could not join this job; before torchrun starts, "
        f"export {SHARED_STORE_SWITCH}=1 on all hosts"
    )


def compare_values(
    store: Store,
    key: str,
    values: Mapping[str, str],
    rank: int,
    world_size: int,
    wait: Callable[[str, int], None],
) -> str:
    """Return which values of the processes differ, and on which hosts, or an empty text.

    Args:
        store: store of these processes.
        key: prefix of the keys of this comparison, which no other one uses.
        values: name -> value of this process.
        rank: rank of this process.
        world_size: number of processes.
        wait: waits for a key that the process of a rank sets.
    """
    result_key = f"{key}/result"
    count_key = f"{key}/readers"
    own_record = HostValues(socket.gethostname(), dict(values))
    if rank != 0:
        store.set(f"{key}/{rank}", msgspec.json.encode(own_record).decode())
        wait(result_key, 0)
        differences = store.get(result_key).decode()
        store.add(count_key, 1)
        return differences
    records = [own_record]
    for peer in range(1, world_size):
        peer_key = f"{key}/{peer}"
        wait(peer_key, peer)
        records.append(msgspec.json.decode(store.get(peer_key), type=HostValues))
    differences = "; ".join(_differences(records))
    store.set(result_key, differences)
    if differences:  # The store may end with this process.
        deadline = time.monotonic() + READ_SECONDS
        while store.add(count_key, 0) < world_size - 1 and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    return differences


def _differences(records: Sequence[HostValues]) -> list[str]:
    """Return the values that differ, such as ``torch is 2.13 on hosta, 2.14 on hostb``."""
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(record.values))
    texts = []
    for name in names:
        hosts_by_value: dict[str, list[str]] = {}
        for record in records:
            hosts = hosts_by_value.setdefault(record.values.get(name, "none"), [])
            if record.host not in hosts:
                hosts.append(record.host)
        if len(hosts_by_value) == 1:
            continue
        parts = []
        for value, hosts in hosts_by_value.items():
            parts.append(f"{value[:MAX_VALUE_LENGTH]} on {first_names(hosts)}")
        texts.append(f"{name} is {', '.join(parts)}")
    return texts
