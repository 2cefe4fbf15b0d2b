"""What is in a rank's memory is counted to the byte, and torch is left as it was."""

import itertools

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import lablib
from lablib.analysis import memory
from lablib.engine.memory import MemoryWatch
from lablib.errors import RankFailed, UsageError
from lablib.trace import Category

WIDTHS = [37, 53, 41, 7]  # no power of two anywhere
SHAPES = [shape for i, o in itertools.pairwise(WIDTHS) for shape in ((o, i), (o,))]
P = 4 * sum(torch.Size(shape).numel() for shape in SHAPES)
ADAM = 2 * P + 4 * len(SHAPES)  # two moments of each number, and each parameter's count of steps


def model():
    torch.manual_seed(0)
    layers = [nn.Linear(i, o) for i, o in itertools.pairwise(WIDTHS)]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def take_steps(net, optimizer, steps=3, batch=16):
    for _ in range(steps):
        net(torch.ones(batch, WIDTHS[0])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def ddp_steps(view):
    net = DistributedDataParallel(model(), gradient_as_bucket_view=view)
    take_steps(net, torch.optim.Adam(net.parameters()))


def named(held):
    return {str(category): nbytes for category, nbytes in held.items() if nbytes}


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("view", [False, True])
def test_ddp_to_the_byte(world_size, view):
    trace = lablib.run(ddp_steps, view, world_size=world_size, memory=True).trace
    buckets = {} if view else {"communication": P}
    for rank in range(world_size):
        for iteration in range(3):
            at = {"rank": rank, "iteration": iteration}
            stays = {"parameters": P, "gradients": P, "optimizer state": ADAM} | buckets
            assert named(memory.at_end(trace, phase="optimizer", **at)) == stays
            held = memory.at_end(trace, phase="backward", **at)
            assert held[Category.GRADIENTS] == P
            assert held[Category.COMMUNICATION] == (0 if view else P)


def plain_steps():
    net = model()
    take_steps(net, torch.optim.Adam(net.parameters()))


def test_a_plain_step_has_torchs_own_totals():
    def with_torchs_own():
        with MemTracker() as tracker:
            net = model()
            take_steps(net, torch.optim.Adam(net.parameters()), steps=1)
            return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]

    def one_step():
        net = model()
        take_steps(net, torch.optim.Adam(net.parameters()), steps=1)

    with lablib.Cluster(1) as cluster:
        [peak] = cluster.run(with_torchs_own).values
        trace = cluster.run(one_step, memory=True).trace
    assert memory.peak(trace, rank=0).total == peak


def test_what_stays_of_forward_are_its_inputs_and_saved_tensors():
    trace = lablib.run(plain_steps, world_size=1, memory=True).trace
    batch = 16
    saved = 4 * batch * (WIDTHS[0] + WIDTHS[1] + WIDTHS[2])  # inputs of the three Linears; ReLU keeps its output
    output = 4 * batch * WIDTHS[3]
    assert memory.at_end(trace, rank=0, phase="forward", iteration=1)[Category.ACTIVATIONS] == saved + output
    for sample in trace.memory:
        assert min(sample.nbytes) >= 0
        assert sample[Category.OTHER] == 0


def test_phases_modules_and_iterations():
    trace = lablib.run(plain_steps, world_size=1, memory=True).trace
    seen = [(one.iteration, one.phase) for one in trace.memory if one.phase and one.iteration is not None]
    assert list(dict.fromkeys(seen)) == [(i, phase) for i in range(3) for phase in ("forward", "backward", "optimizer")]
    assert {one.module for one in trace.memory if one.phase == "forward"} >= {"0", "2", "4"}
    assert {one.module for one in trace.memory if one.phase == "backward"} >= {"0", "2", "4"}
    assert trace.only("optimizer").iterations == [0, 1, 2]


def test_temporaries_of_the_step_are_no_optimizer_state():
    trace = lablib.run(plain_steps, world_size=1, memory=True).trace
    first = [one for one in trace.memory if one.phase == "optimizer" and one.iteration == 0]
    assert max(one[Category.TEMPORARY] for one in first) < ADAM / 2  # state is known as such when it is made
    stepping = [one for one in trace.memory if one.phase == "optimizer" and one.iteration == 2]
    assert {one[Category.OPTIMIZER] for one in stepping} == {ADAM}
    assert max(one[Category.TEMPORARY] for one in stepping) > 0
    assert stepping[-1][Category.TEMPORARY] == 0


def checkpointed_steps(use):
    torch.manual_seed(0)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()) for _ in range(6))
    optimizer = torch.optim.SGD(blocks.parameters())

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = blocks

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if use else block(x)
            return x

    net = Blocks()
    for _ in range(2):
        net(torch.ones(64, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.sum().item() for parameter in net.parameters()]


def test_checkpointing_keeps_a_blocks_input_only():
    with lablib.Cluster(1) as cluster:
        runs = {use: cluster.run(checkpointed_steps, use, memory=True) for use in (False, True)}
    assert runs[True][0] == runs[False][0]
    row = 4 * 64 * 32
    kept = {
        use: memory.at_end(run.trace, rank=0, phase="forward", iteration=1)[Category.ACTIVATIONS]
        for use, run in runs.items()
    }
    assert kept[False] == (1 + 6 * 2) * row  # the input, and what each ReLU gives: its own and the next Linear's
    assert kept[True] == (1 + 6) * row
    assert memory.peak(runs[True].trace, rank=0).total < memory.peak(runs[False].trace, rank=0).total


def zero_steps():
    from torch.distributed.optim import ZeroRedundancyOptimizer  # its import warns of torch's own old ways

    net = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam)
    take_steps(net, optimizer)
    return sum(parameter.numel() for group in optimizer.optim.param_groups for parameter in group["params"])


def test_zero_redundancy_optimizer_counts_its_own_share_only():
    run = lablib.run(zero_steps, world_size=2, memory=True)
    shares = [memory.at_end(run.trace, rank=rank, phase="optimizer")[Category.OPTIMIZER] for rank in range(2)]
    assert sum(shares) == ADAM
    assert [share // 8 for share in shares] == pytest.approx(run.values, abs=len(SHAPES))


def all_reduce_something():
    import torch.distributed as dist

    mine = torch.ones(1000)
    dist.all_reduce(mine)
    return mine.sum().item()


def test_what_a_collective_is_given_is_communication():
    trace = lablib.run(all_reduce_something, world_size=2, memory=True).trace
    assert memory.highest(trace, "communication", rank=0) == 4000


def test_torch_is_left_as_it_was():
    def state():
        from torch.nn.modules import module as modules
        from torch.optim import optimizer as optimizers

        return (
            torch.UntypedStorage.resize_.__qualname__,
            torch._C._len_torch_dispatch_stack(),
            len(modules._global_forward_pre_hooks),
            len(modules._global_forward_hooks),
            len(modules._global_parameter_registration_hooks),
            len(modules._global_buffer_registration_hooks),
            len(optimizers._global_optimizer_pre_hooks),
            len(optimizers._global_optimizer_post_hooks),
        )

    with lablib.Cluster(2) as cluster:
        before = cluster.run(state).values
        cluster.run(ddp_steps, False, memory=True)
        assert cluster.run(state).values == before


def fails_in_its_step():
    net = model()
    net(torch.ones(4, WIDTHS[0])).sum().backward()
    raise KeyError("labels")


def test_a_run_that_fails_brings_its_samples_back():
    with pytest.raises(RankFailed) as failed:
        lablib.run(fails_in_its_step, world_size=2, memory=True)
    trace = failed.value.run.trace
    assert memory.highest(trace, Category.GRADIENTS, rank=failed.value.rank) == P


def test_wrong_wishes_are_refused():
    with pytest.raises(UsageError, match="memory='yes' is neither True nor False"):
        lablib.run(plain_steps, memory="yes")
    trace = lablib.run(plain_steps, world_size=1, record=True).trace
    assert trace.memory == ()
    with pytest.raises(UsageError, match=r"no memory of rank=0; record it with run\(…, memory=True\)"):
        memory.peak(trace, rank=0)


def test_on_a_gpu_the_allocators_figures_come_along(monkeypatch):
    allocated = iter(range(0, 100_000, 1000))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(allocated))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**21)
    watch = MemoryWatch(3, "cuda:0", iteration=lambda: 7)
    watch.start()
    torch.ones(10)  # of the host: not in the device's categories
    first, *_ = watch.stop()
    assert (first.rank, first.iteration, first.allocated, first.reserved, first.total) == (3, 7, 0, 2**21, 0)
