"""The engine's parts that need no ranks: choices, wires, notes, explanations."""

from __future__ import annotations

import os
import signal
import socket
import time

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from lablib import UsageError
from lablib.engine import backend, cargo, diagnosis, logbook, places, shared, tensors, values, wire
from lablib.engine.diagnosis import Evidence
from lablib.engine.logbook import NO_PEER, Entry, Logbook
from lablib.engine.stop import StopButton
from lablib.engine.tail import Tail


@pytest.mark.parametrize(
    ("world_size", "gpus", "backend_asked", "device_asked", "expected"),
    [
        (2, 0, None, None, ("gloo", "cpu", "this host has no GPU")),
        (2, 2, None, None, ("nccl", "cuda", "2 GPUs, one for each of 2 ranks")),
        (4, 2, None, None, ("gloo", "cpu", "2 GPUs are not enough for 4 ranks, and NCCL wants one for each")),
        (1, 1, None, None, ("nccl", "cuda", "1 GPU, one for each of 1 ranks")),
        (2, 2, "gloo", None, ("gloo", "cpu", "backend='gloo' was asked for")),
        (2, 2, None, "cpu", ("gloo", "cpu", "device='cpu' was asked for")),
        (2, 2, None, "cuda", ("nccl", "cuda", "device='cuda' was asked for; 2 GPUs for 2 ranks")),
        (4, 2, "gloo", "cuda", ("gloo", "cuda", "gloo on GPUs was asked for; 4 ranks share 2 GPUs in turn")),
    ],
)
def test_backend_is_chosen_with_a_reason(world_size, gpus, backend_asked, device_asked, expected) -> None:
    choice = backend.choose(world_size, gpus=gpus, backend=backend_asked, device=device_asked)
    assert (choice.backend, choice.device, choice.reason) == expected


@pytest.mark.parametrize(
    ("asked", "gpus"), [({"backend": "nccl"}, 2), ({"device": "cuda"}, 2), ({"backend": "nccl"}, 0)]
)
def test_a_backend_that_cannot_be_is_refused(asked, gpus) -> None:
    with pytest.raises(UsageError, match="needs a GPU for each rank"):
        backend.choose(3, gpus=gpus, **asked)


def test_each_rank_gets_its_gpu() -> None:
    choice = backend.choose(4, gpus=2, backend="gloo", device="cuda")
    assert [choice.device_of(rank, gpus=2) for rank in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]


def test_gpus_are_not_counted_where_there_is_no_driver(monkeypatch) -> None:
    monkeypatch.setattr(backend.os.path, "exists", lambda path: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert backend.count_gpus() == 0
    monkeypatch.setattr(backend.os.path, "exists", lambda path: path == "/dev/nvidiactl")
    assert backend.count_gpus() == 8


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor(3.5),
        torch.empty(0, 3),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]).conj(),
        torch.ones(3).to_sparse(),
        torch.zeros(10_000_000)[:2],
        torch.ones(2).to(torch.float8_e4m3fn),
    ],
    ids=["strided", "scalar", "empty", "bf16", "bool", "conj", "sparse", "view", "fp8"],
)
def test_tensors_come_back_equal_and_small(tensor) -> None:
    payload = values.pack(tensor)
    back = values.unpack(payload)
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(
        back.to_dense().float() if not back.is_complex() else back,
        tensor.to_dense().float() if not tensor.is_complex() else tensor.resolve_conj(),
    )
    assert len(payload) < 5000


def test_values_come_back_detached_and_parameters_stay_parameters() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    back = values.unpack(values.pack({"loss": (weight * 2).sum(), "weight": weight, "layer": torch.nn.Linear(2, 1)}))
    assert not back["loss"].requires_grad
    assert isinstance(back["weight"], torch.nn.Parameter)
    assert all(isinstance(own, torch.nn.Parameter) for own in back["layer"].parameters())


def test_arguments_keep_requires_grad() -> None:
    leaf = torch.ones(2, requires_grad=True)
    assert tensors.reduce(leaf, detach=False)[1][3] is True
    assert tensors.reduce(leaf, detach=True)[1][3] is False


def test_submodules_are_found_as_cloudpickle_finds_them() -> None:
    import torch.distributed.fsdp
    import torch.utils.data

    def mentions():
        return torch.utils.data.DataLoader, torch.distributed.fsdp.wrap, torch.nn.functional.relu, dist.all_reduce

    slow = cloudpickle.cloudpickle._find_imported_submodules
    for used in ([torch], [torch, dist], [dist, 3, None], []):
        ours = cargo.mentioned_submodules(mentions.__code__, used)
        theirs = slow(mentions.__code__, used)
        assert {module.__name__ for module in ours} == {module.__name__ for module in theirs}
    assert cloudpickle.cloudpickle._find_imported_submodules is slow


def test_code_gets_the_label_of_its_cell_and_its_source() -> None:
    code = compile("def f():\n    raise ValueError\n", "somewhere", "exec")
    import linecache

    linecache.cache["somewhere"] = (9, None, ["def f():\n", "    raise ValueError\n"], "somewhere")
    space: dict = {"__name__": "__main__"}
    exec(code, space)
    parcel = cargo.pack(space["f"], (), label_of=lambda name: "cell [7]" if name == "somewhere" else name)
    assert parcel.sources == {"cell [7]": "def f():\n    raise ValueError\n"}
    fn, args = cargo.unpack(parcel)
    assert fn.__code__.co_filename == "cell [7]"
    assert args == ()


def test_a_message_that_comes_in_pieces_is_put_together() -> None:
    mine, theirs = socket.socketpair()
    channel = wire.Channel(mine)
    message = wire.encode(wire.Done(b"x" * 100_000, reusable=True))
    for start in range(0, len(message), 9_999):
        theirs.sendall(message[start : start + 9_999])
        received = channel.receive()
        assert len(received) == (start + 9_999 >= len(message))
    assert received[0].payload == b"x" * 100_000
    theirs.close()
    assert channel.receive() == []
    assert channel.closed
    channel.close()


def test_a_frozen_rank_does_not_block_its_parent() -> None:
    mine, theirs = socket.socketpair()
    channel = wire.Channel(mine)
    channel.send(wire.Done(b"x" * 50_000_000, reusable=True))
    assert channel.wants_to_send
    theirs.close()
    channel.flush()
    assert channel.closed
    channel.close()


def test_a_logbook_keeps_the_last_calls() -> None:
    descriptor = shared.create(logbook.NBYTES)
    written, read = Logbook(descriptor), Logbook(descriptor)
    os.close(descriptor)
    for index in range(100):
        written.note(
            op="all_reduce", group="0", members=0b101, sequence=index + 1, nbytes=8, peer=NO_PEER, line=3, file="x"
        )
    entries = read.entries()
    assert [entry.number for entry in entries] == list(range(37, 101))
    assert entries[-1] == Entry(100, "all_reduce", "0", 0b101, 100, 8, NO_PEER, 3, "x")
    assert entries[-1].ranks == [0, 2]
    written.clear()
    assert read.entries() == []
    written.close()
    read.close()


def test_a_tail_decodes_what_is_cut_in_two() -> None:
    read, write = os.pipe()
    tail = Tail(read)
    os.write(write, "é".encode()[:1])
    assert tail.read() == ""
    os.write(write, "é".encode()[1:])
    assert tail.read() == "é"
    os.close(write)
    tail.read()
    assert tail.closed
    tail.close()


def test_a_press_of_stop_waits_for_a_safe_point() -> None:
    reached = []
    before = signal.getsignal(signal.SIGINT)  # a shell's background job has it ignored

    def pressed_inside() -> None:
        with StopButton() as stop:
            signal.raise_signal(signal.SIGINT)
            reached.append("after the press")
            stop.check()
            reached.append("never")

    def pressed_and_not_checked() -> None:
        with StopButton():
            signal.raise_signal(signal.SIGINT)

    for function in (pressed_inside, pressed_and_not_checked):
        with pytest.raises(KeyboardInterrupt):
            function()
    assert reached == ["after the press"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_press_breaks_in_where_the_first_was_not_heard(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def pressed_again_later() -> None:
        with StopButton():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            now[0] += 2
            signal.raise_signal(signal.SIGINT)
            pytest.fail("the late press did not break in")

    with pytest.raises(KeyboardInterrupt):
        pressed_again_later()


def test_stacks_are_parsed_by_thread() -> None:
    dump = (
        "Thread 0x00000000000000aa (most recent call first):\n"
        '  File "/usr/lib/python3/threading.py", line 1 in wait\n\n'
        "Current thread 0x00000000000000bb (most recent call first):\n"
        '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 2 in all_reduce\n'
        '  File "cell [3]", line 2 in demo\n'
    )
    frames = places.parse_stacks(dump, thread=0xBB, sources={"cell [3]": "def demo():\n    dist.all_reduce(t)\n"})
    assert [frame.function for frame in frames] == ["demo", "all_reduce"]
    assert [places.say_with_text(frame) for frame in places.learners(frames)] == [
        "cell [3], line 2, in demo: dist.all_reduce(t)"
    ]


def failed(message: str, at_ns: int, kind: str = "RuntimeError") -> wire.Failed:
    return wire.Failed(kind, message, (), "", None, at_ns)


@pytest.mark.parametrize(
    "message",
    [
        "[pair.cc:553] Connection closed by peer [127.0.0.1]:7052. GLHF!",
        "[pair.cc:537] Read error [127.0.0.1]:13519: Connection reset by peer",
        "NCCL error: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting",
    ],
)
def test_lost_connections_are_consequences(message) -> None:
    innocent = Evidence(0, "failed", failure=failed(message, at_ns=1))
    culprit = Evidence(1, "failed", failure=failed("bad luck", at_ns=2, kind="ValueError"))
    error = diagnosis.explain([innocent, culprit], timeout_s=None)
    assert error.summary == "rank 1 raised ValueError: bad luck"
    assert "rank 0 then lost its connection, which is a consequence" in str(error)
    lost = Evidence(1, "lost", ended="was killed by SIGKILL")
    assert diagnosis.explain([innocent, lost], timeout_s=None).summary == (
        "rank 1 was killed by SIGKILL before the function returned"
    )


def test_the_earliest_cause_comes_first() -> None:
    late = Evidence(0, "failed", failure=failed("second", at_ns=20))
    early = Evidence(1, "failed", failure=failed("first", at_ns=10, kind="KeyError"))
    assert diagnosis.explain([late, early], timeout_s=None).rank == 1
