"""Frames are read from pieces of any size, and launches are sent unchanged, with their secrets named."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.agent.frames import Frame, FrameParser
from drumline.engine.agent.launches import incarnation_from_text, incarnation_to_text, launch_from_data, launch_to_data
from drumline.plan.types import Extended, Launch, LaunchValue, Place, Replica, ReplicaId, Resources, Secret, Shared
from drumline.run.incarnation import Incarnation

_FRAMES = st.lists(st.builds(lambda text, data: Frame({"do": text}, data), st.text(), st.binary(max_size=50)))


@given(frames=_FRAMES, cuts=st.lists(st.integers(1, 40)))
def test_frames_are_read_from_pieces_of_any_size(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(frame.encode() for frame in frames)
    heard, reader = [], FrameParser()
    for cut in [*cuts, len(data)]:
        heard += list(reader.feed(data[:cut]))
        data = data[cut:]
    assert [({"do": each.message["do"]}, each.data) for each in heard] == [
        (frame.message, frame.data) for frame in frames
    ]


def test_an_incarnation_is_unchanged_after_it_was_written_and_read() -> None:
    incarnation = Incarnation(ReplicaId("worker", 3), 2, 1)
    assert incarnation_from_text(incarnation_to_text(incarnation)) == incarnation


def test_a_launch_is_unchanged_on_a_host_and_names_its_secrets() -> None:
    replica = Replica(ReplicaId("worker", 0), "w", ("python", "train.py"), {}, Resources(cpus=2.0))
    place = Place("10.0.0.1", 2222, "/w", "/o", "/o/c", cores=2, data_dirs=("/d",), gpus=("0",))
    env: dict[str, LaunchValue] = {
        "A": "b",
        "KEY": Secret("TOKEN"),
        "TF_CONFIG": Shared("{", "cluster", "x", "}"),
        "PATH": Extended("/bin", ":", ("PATH",)),
    }
    found = launch_from_data(launch_to_data(Launch(replica, 1, place, env, 2), {"TOKEN": "abc"}))
    said: dict[str, LaunchValue] = {
        "A": "b",
        "KEY": "abc",
        "TF_CONFIG": "{x}",
        "PATH": Extended("/bin", ":", ("PATH",)),
    }
    assert found == Launch(replica, 1, place, said, 2)
