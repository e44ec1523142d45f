"""Which streams generate text at the same time."""

from typing import Any

from zoo.serving.stream_turns import ACTIVE_STREAMS, MAX_BEGUN_STREAMS, Stream, StreamTurns


def add(turns: StreamTurns, client: str, count: int) -> list[Stream]:
    nothing: Any = None
    streams = [Stream(nothing, nothing, nothing, client, nothing, nothing) for _ in range(count)]
    for stream in streams:
        turns.add(stream)
    return streams


def begin(turns: StreamTurns) -> list[str]:
    """Let the active streams begin; return their clients."""
    active = turns.active()
    for stream in active:
        stream.has_begun = True
    return [stream.client for stream in active]


def test_one_client_has_all_places_and_shares_them_with_the_next() -> None:
    turns = StreamTurns()
    add(turns, "a", 12)
    assert begin(turns) == ["a"] * ACTIVE_STREAMS
    add(turns, "b", 1)
    assert begin(turns) == ["a", "b", *["a"] * (ACTIVE_STREAMS - 2)]
    add(turns, "c", 12)
    assert begin(turns) == ["a", "b", "c", "a", "c", "a", "c", "a"]
    assert len(turns) == 25


def test_a_place_that_is_free_is_for_a_client_that_waits() -> None:
    turns = StreamTurns()
    first, *_ = add(turns, "a", 3)
    for number in range(ACTIVE_STREAMS):
        add(turns, f"client {number}", 1)
    waiting = f"client {ACTIVE_STREAMS - 1}"
    assert waiting not in begin(turns)
    turns.remove(first)
    assert begin(turns)[-1] == waiting
    # The client whose stream has ended has its turn after all others.
    assert list(turns)[-1].client == "a"


def test_few_streams_have_begun_and_all_of_them_end() -> None:
    turns = StreamTurns()
    ended = 0
    for number in range(40):  # Clients keep arriving, each with many streams.
        add(turns, f"client {number}", 10)
        for _ in range(3):
            begin(turns)
            assert sum(stream.has_begun for stream in turns) <= MAX_BEGUN_STREAMS
        turns.remove(turns.active()[0])
        ended += 1
    while turns:
        assert begin(turns)
        turns.remove(turns.active()[-1])
        ended += 1
    assert ended == 400
