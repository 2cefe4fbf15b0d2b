# ---
# jupyter:
#   lab:
#     title: ZeRO by hand
#     minutes: 75
#     question: What does each stage stop replicating, and what does it send?
#     measures: each rank's bytes of parameters, gradients and optimizer state, and all bytes that a step sends
# ---

# %% id="imports"
from lablib import warm_up

warm_up()

from lablib import Cluster, checks, views

from collections import Counter
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.flop_counter import FlopCounterMode

from lablib.analysis.memory import at_end
from lablib.parallel import zero
from lablib.sim.memory import Parameter, payload, states
from lablib.trace import Category, Kind
from lablib.training.memory_models import parameters_of

pair, four = Cluster(2, backend="gloo"), Cluster(4, backend="gloo")

# %% [markdown]
# ## What DDP keeps n times
#
# Under DDP every rank has all parameters, all gradients and all of the optimizer's state. The batch is divided; the model is not: 10 GB stay 10 GB on each rank.
#
# **ZeRO** (zero redundancy optimizer) takes that redundancy away, in three stages: first of the optimizer's state, then of the gradients, then of the parameters. You build all three.
#
# The model below has 101,525 parameters of 32 bits, and is trained with Adam. **Predict** how many bytes *a parameter* takes: parameter, gradient and state together. (DDP's buckets, a copy of
# the gradients, do not count here.)

# %%
each = {}
each["on one process"] = 16  # solution
each["on each of four ranks"] = 16  # solution


# %% id="model"
class Model(nn.Sequential):
    def __init__(self, seed):
        torch.manual_seed(seed)
        first, middle, last = nn.Linear(126, 257), nn.Linear(257, 257), nn.Linear(257, 10)
        super().__init__(first, nn.Tanh(), middle, nn.Tanh(), last)


ADAM = partial(torch.optim.Adam, lr=1e-4)


class Plain(nn.Module):
    """A model and its optimizer in one process, with the methods that your stages will have."""

    def __init__(self, module, make_optimizer):
        super().__init__()
        self.module = module
        self.optimizer = make_optimizer(list(module.parameters()))

    def forward(self, x):
        return self.module(x)

    def reduce(self):
        pass

    def step(self):
        self.optimizer.step()

    def whole(self):
        return torch.cat([one.detach().flatten() for one in self.module.parameters()])


class Replicated(Plain):
    """The same under DDP, which averages the gradients in backward."""

    def __init__(self, module, make_optimizer):
        super().__init__(DDP(module), make_optimizer)


# %% [markdown]
# One loop trains everything in this lab. `memory=True` notes what is in each rank's memory, by category.


# %% id="loop"
def batch(step, rank=0, n=1):
    """Return the rows of a step that belong to one of n ranks."""
    rows = torch.randn(32, 126, generator=torch.Generator().manual_seed(step))
    return rows.chunk(n)[rank].clone()


def place(wrap):
    """Return which rank this is, of how many."""
    return (0, 1) if wrap is Plain else (dist.get_rank(), dist.get_world_size())


def train(wrap, make_optimizer=ADAM, steps=5, keep=False):
    """Be one rank, or the one process; with `keep`, return all parameters after each step."""
    rank, n = place(wrap)
    model, history = wrap(Model(seed=rank), make_optimizer), []
    for step in range(steps):
        model.zero_grad()
        model(batch(step, rank, n)).square().mean().backward()
        model.reduce()
        model.step()
        if keep:
            history.append(model.whole())
    return history


KEPT = Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER
NUMEL = sum(one.numel() for one in Model(0).parameters())


def kept(trace, rank=0):
    """Return the bytes that a rank keeps after a step."""
    found = at_end(trace, rank=rank, phase="optimizer")
    return {category: found[category] for category in KEPT}


traces = {
    "one process": four.run(train, Plain, memory=True).trace,  # all four ranks do the same here
    "DDP": four.run(train, Replicated, memory=True).trace,
}

# %% tags=["nbval-check-output"]
print(checks.lab14.per_parameter(each))
for name, trace in traces.items():
    for category, nbytes in kept(trace).items():
        print(f"{name:11} {category:16} {nbytes:9,} bytes, {nbytes / NUMEL:.2f} a parameter")

# %% [markdown]
# Four ranks, and not a byte less on any of them. (The few bytes above 16: Adam counts its steps, 4 bytes for each tensor.)
#
# ## One vector, n slices
#
# By hand it is easiest when all parameters lie in **one vector**, in the order of `model.parameters()`; each parameter is a view of its piece. Rank r *owns* slice r. Collectives want slices of
# one length, so the vector ends with some zeros, the **padding**.
#
# ### Exercise: cut
#
# Return the length of a slice, and how many zeros the vector of all slices ends with.


# %%
def cut(numel, n):
    # solution
    part = -(-numel // n)
    return part, n * part - numel
    # end solution


# %% tags=["nbval-check-output"]
print(checks.lab14.cut(cut))
part, start = -(-NUMEL // 4), 0
for name, parameter in Model(0).named_parameters():
    end = start + parameter.numel()
    ranks = list(range(start // part, (end - 1) // part + 1))
    print(f"{name:9} numbers {start:7,} to {end - 1:7,} are in the slices of ranks {ranks}")
    start = end
print(f"{4 * part - NUMEL} zeros")

# %% [markdown]
# Slices are cut *through* parameters. Adam does not mind: it treats each number alone.
#
# ## Stage 1: the optimizer's state
#
# Every rank of DDP does the same update. Instead, let each rank update **its slice only**: then it needs Adam's state for that slice only. What is new in the slices of the others, it fetches.
#
# `zero.Sliced(model, make_optimizer)` has laid the parameters into one vector, and gives you
#
# - `self.rank`, `self.n`: which rank this is, of how many;
# - `self.flat`: the vector of all parameters; `self.flat.chunk(self.n)` are the slices;
# - `self.mine`: this rank's slice, a view of `flat`, and the only parameter that `self.optimizer` knows;
# - `self.joined_gradient()`: all gradients as one vector, of the same length as `flat`;
# - `self.gather()`: one `all_gather` of everybody's `mine` into `flat`.
#
# ### Exercise: a first try
#
# - `reduce` comes after backward: average the whole vector of gradients with one `all_reduce`, and give `self.mine.grad` its slice.
# - `step`: let the optimizer step, and see to it that `flat` is right again.


# %% id="first-try"
class FirstTry(zero.Sliced):
    def reduce(self):
        gradient = self.joined_gradient()
        # solution
        dist.all_reduce(gradient)
        gradient /= self.n
        self.mine.grad = gradient.chunk(self.n)[self.rank]
        # end solution

    def step(self):
        # solution
        self.optimizer.step()
        self.gather()
        # end solution


first_try = checks.lab14.first_try(FirstTry, four.run)

# %% tags=["nbval-check-output"]
print(first_try)

# %% [markdown]
# The check runs your class on four ranks, and compares every step with plain Adam of *one process with all the data*. (While one of your stages does not pass yet, the lab goes on with
# ours: `lablib/parallel/zero.py`.)
#
# What does it send? P are the bytes of the vector. On n ranks, the best algorithms send for one tensor of P bytes
#
# | call | bytes that a rank sends |
# |---|---|
# | `reduce_scatter`, `all_gather`, `broadcast` (mean over the ranks) | P (n − 1) / n |
# | `all_reduce` | 2 P (n − 1) / n |
#
# **Predict** what a rank sends in a step, in multiples of P (n − 1) / n.

# %%
sends = {}
sends["DDP"] = 2  # solution
sends["first try"] = 3  # solution

# %% id="sent"
P = 4 * 4 * part  # bytes of the vector on four ranks: 4 slices of so many numbers of 4 bytes
TIMES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "broadcast": 1}


def calls(trace, iteration=2):
    """Return the bytes of all tensors that rank 0's calls of a step are about, by operation."""
    total = Counter()
    for one in trace.only(Kind.COLLECTIVE, rank=0, iteration=iteration):
        # an all_gather is recorded with the slice that a rank brings
        total[one.name] += one.nbytes * (trace.world_size if one.name == "all_gather" else 1)
    return total


def multiples(trace):
    """Return what a rank sends in one step, in multiples of P (n - 1) / n."""
    return round(sum(TIMES[op] * nbytes for op, nbytes in calls(trace).items()) / P, 3)


def told(trace):
    found = " + ".join(f"{op} of {nbytes:,} bytes" for op, nbytes in calls(trace).items())
    return f"sends {multiples(trace)} P (n - 1) / n: {found}"


started = FirstTry if first_try else zero.Stage1AllReduce
traces["first try"] = four.run(train, started, record=True).trace

# %% tags=["nbval-check-output"]
print(checks.lab14.first_sent(sends, {name: multiples(traces[name]) for name in sends}))
for name in sends:
    print(f"{name:9} {told(traces[name])}")

# %% [markdown]
# Half as much again as DDP. So ZeRO costs communication?
#
# ## Half an all_reduce
#
# An `all_reduce` *is* a `reduce_scatter` (each rank gets the sum of its slice) and an `all_gather` (each rank gets all slices). Your first try gathered the mean gradient, and used one slice of
# it. Then it gathered again: the parameters. **The optimizer's step belongs between the two halves**:
#
# ```
# DDP:      reduce_scatter   all_gather       step          (all_reduce = the first two)
# ZeRO:     reduce_scatter   step             all_gather
# ```
#
# ### Exercise: stage 1
#
# Write `reduce` anew: `dist.reduce_scatter(output, list_of_slices)` puts the sum of slice r into rank r's `output`. The output may be the slice itself: no new memory.


# %% id="stage-1"
class Stage1(FirstTry):
    def reduce(self):
        slices = list(self.joined_gradient().chunk(self.n))
        # solution
        mine = slices[self.rank]
        dist.reduce_scatter(mine, slices)
        mine /= self.n
        self.mine.grad = mine
        # end solution


stage_1 = checks.lab14.stage_1(Stage1, four.run)

# %% tags=["nbval-check-output"]
print(stage_1)

# %% [markdown]
# ## Stage 2: the gradients
#
# After `reduce`, only the slice of the gradients is of any use. Stage 1 keeps the rest: `parameter.grad` of each parameter looks at its piece of the joined vector.
#
# ### Exercise: stage 2
#
# See to it that after `reduce` nothing of the gradients stays but the slice. `self.trained` is the list of parameters. Memory is free when *nobody* looks at it any more; a slice of a
# vector looks at all of it.


# %% id="stage-2"
class Stage2(Stage1):
    def reduce(self):
        slices = list(self.joined_gradient().chunk(self.n))
        # solution
        mine = torch.empty_like(self.mine)
        dist.reduce_scatter(mine, slices)
        for parameter in self.trained:
            parameter.grad = None
        mine /= self.n
        self.mine.grad = mine
        # end solution


stage_2 = checks.lab14.stage_2(Stage2, four.run)

# %% tags=["nbval-check-output"]
print(stage_2)

# %% [markdown]
# ## Stage 3: the parameters
#
# Between the steps nobody needs all parameters, either. `self.free()` takes the memory of `flat`, and with it that of every parameter; `self.gather()` gives it back, filled. `__init__` has given
# `mine` a memory of its own, and freed `flat`.
#
# ### Exercise: stage 3
#
# - `forward`: all parameters must be there for the model, and gone afterwards. But backward reads them again: `output.register_hook(f)` calls `f(gradient)` when backward begins.
# - `reduce`: as in stage 2, and the parameters go.
# - `step`: what is left of it?


# %% id="stage-3"
class Stage3(Stage2):
    def __init__(self, module, make_optimizer):
        super().__init__(module, make_optimizer)
        self.mine.data = self.mine.detach().clone()
        self.free()

    def forward(self, x):
        # solution
        self.gather()
        output = self.module(x)
        output.register_hook(lambda gradient: self.gather())
        self.free()
        return output
        # end solution

    def reduce(self):
        # solution
        super().reduce()
        self.free()
        # end solution

    def step(self):
        # solution
        self.optimizer.step()
        # end solution


stage_3 = checks.lab14.stage_3(Stage3, four.run)

# %% tags=["nbval-check-output"]
print(stage_3)

# %% [markdown]
# **Predict** what a rank sends in a step of each stage, in multiples of P (n − 1) / n.

# %% claims="M5"
by_stage = {}
by_stage["stage 1"] = 2  # solution
by_stage["stage 2"] = 2  # solution
by_stage["stage 3"] = 3  # solution

# %% claims="M5"
stages = {
    "stage 1": Stage1 if stage_1 else zero.Stage1,
    "stage 2": Stage2 if stage_2 else zero.Stage2,
    "stage 3": Stage3 if stage_3 else zero.Stage3,
}
for name, stage in stages.items():
    traces[name] = four.run(train, stage, memory=True).trace


def gap(wrap, make_optimizer=ADAM):
    """Return the largest difference of any parameter, after any step, from one process's."""
    mine = train(wrap, make_optimizer, steps=5, keep=True)
    adam = train(Plain, steps=5, keep=True)  # here, with all the data
    return max((a - b).abs().max().item() for a, b in zip(mine, adam))


gaps = {
    (name, n): max(cluster.run(gap, stage))
    for name, stage in stages.items()
    for n, cluster in ((2, pair), (4, four))
}
print(f"largest difference of any parameter, on any rank, after any step: {max(gaps.values()):.0e}")

# %% claims="M5" tags=["nbval-check-output"]
print(checks.lab14.sent(by_stage, {name: multiples(traces[name]) for name in stages}))
for name in stages:
    same = all(gaps[name, n] < 1e-6 for n in (2, 4))
    print(f"{name}: equal to Adam of one process after each step, to 1e-6: {same}")
    print(f"         {told(traces[name])}")

# %% [markdown]
# Stages 1 and 2 send **what DDP sends**. Only stage 3 sends more: half as much again, since parameters are gathered twice, for forward and for backward.
#
# ## What each rank keeps
#
# ### Exercise: bytes
#
# Write how many bytes of parameters, gradients and optimizer state a rank keeps after a step of stage 1, 2 and 3, to the byte. 32 bits a number; the padding is there as well; Adam keeps two
# numbers for each number in the slice, and 4 bytes that count its steps.


# %% claims="M5"
def held(stage, numel, n):
    # solution
    part = -(-numel // n)
    parameters = part if stage == 3 else n * part
    gradients = n * part if stage == 1 else part
    return 4 * parameters, 4 * gradients, 8 * part + 4
    # end solution


# %% claims="M5" tags=["nbval-check-output"]
print(checks.lab14.held(held))
FORMS = {"DDP": "ddp", "stage 1": "zero1", "stage 2": "zero2", "stage 3": "zero3"}
parameters = parameters_of(Model(0))
for name, key in FORMS.items():
    found = [kept(traces[name], rank) for rank in range(4)]
    form = states(parameters, stage=key, world_size=4)
    exact = all(one[category] == form[category] for one in found for category in KEPT)
    bytes_of_rank_0 = ", ".join(f"{category} {found[0][category]:,}" for category in KEPT)
    print(f"{name:8} {bytes_of_rank_0}; as predicted: {exact}")

# %% [markdown]
# ("As predicted" is True where it is so on all four ranks, to the byte.) The same as a picture: bars are measured, outlines are predicted.


# %% claims="M5"
def row(name):
    form = partial(states, parameters, stage=FORMS[name], world_size=4)
    return views.MemoryBars(
        name,
        [{category: form(rank=rank)[category] for category in KEPT} for rank in range(4)],
        measured=[kept(traces[name], rank) for rank in range(4)],
        payload=payload(parameters, stage=FORMS[name], world_size=4),
    )


badge = views.Badge("real", 4, backend="gloo")
views.memory_bars(map(row, FORMS), badge=badge, title="What each stage keeps")

# %% [markdown]
# With many ranks a parameter takes 8 bytes in stage 1, 4 in stage 2, and next to nothing in stage 3.
#
# That is what stays *after* a step. During the step there is more: rank 0 in stage 3, one step from left to right (each change as wide as the other).

# %%
views.memory(traces["stage 3"], iteration=2, ranks=[0], timed=False)

# %% [markdown]
# All parameters come twice, and at the end of backward all gradients are there. The high block after backward is those gradients once more, being joined into one vector. (The tracker calls
# "activations" what is made outside of backward and optimizer.) Real implementations cut the model into groups of layers, and gather, reduce and free one group after the other: that is lab 15.
#
# ## What is not divided
#
# **Predict** what a rank of four has in stage 3: bytes of activations that forward keeps for backward, and multiplications, as multiples of what a rank has under DDP; and activations as a multiple
# of those of one process with the whole batch.

# %%
divided = {}
divided["activations, beside DDP"] = 1  # solution
divided["multiplications, beside DDP"] = 1  # solution
divided["activations, beside one process"] = 0.25  # solution


# %% id="divided"
def activations(trace):
    """Return the most bytes of activations that rank 0 has in a forward."""
    forward = [one for one in trace.memory if one.rank == 0 and one.phase == "forward"]
    return max(one[Category.ACTIVATIONS] for one in forward if one.iteration == 2)


def multiplications(wrap):
    """Return the floating-point operations of this rank's forward and backward."""
    rank, n = place(wrap)
    model = wrap(Model(seed=0), ADAM)
    with FlopCounterMode(display=False) as counter:
        model(batch(0, rank, n)).square().mean().backward()
    return counter.get_total_flops()


wraps = {"one process": Plain, "DDP": Replicated, **stages}
kept_for_backward = {name: activations(traces[name]) for name in wraps}
operations = {name: four.run(multiplications, wrap)[0] for name, wrap in wraps.items()}

# %% tags=["nbval-check-output"]
found = {
    f"{what}, beside {other}": measured["stage 3"] / measured[other]
    for what, measured in (("activations", kept_for_backward), ("multiplications", operations))
    for other in ("DDP", "one process")
}
print(checks.lab14.divided(divided, found))
for name in wraps:
    print(f"{name:11} {kept_for_backward[name]:7,} bytes of activations in forward,", end=" ")
    print(f"{operations[name]:10,} floating-point operations")

# %% [markdown]
# - **"Sharding shrinks activations."** No: they belong to *rows*. A rank has a quarter of the batch, so it has a quarter of one process's activations, at every stage and under DDP alike.
# - **"ZeRO is model parallelism."** No: every rank runs the whole model on its own rows. Where a parameter *lies* is divided, not the computing with it.
#
# ## torch's own
#
# `ZeroRedundancyOptimizer` is stage 1 beside DDP. It cuts no parameter in two: it goes through whole parameters, the largest first, and gives each to the rank that has the least so far.
# **Predict** how many numbers each of the four ranks updates.

# %% claims="M5"
SIZES = {name: one.numel() for name, one in Model(0).named_parameters()}
print(SIZES)
mine = {}
mine["rank 0"] = 66049  # solution
mine["rank 1"] = 32382  # solution
mine["rank 2"] = 2570  # solution
mine["rank 3"] = 524  # solution


# %% id="torchs" claims="M5"
def torchs(parameters):
    from torch.distributed.optim import ZeroRedundancyOptimizer  # half of torch.distributed

    return ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.Adam, lr=1e-4)


def updated():
    """Return how many numbers this rank's Adam has a state of."""
    model = Replicated(Model(seed=0), torchs)
    model(batch(0)).square().mean().backward()
    model.step()
    return sum(state["exp_avg"].numel() for state in model.optimizer.optim.state.values())


updates = {f"rank {rank}": numel for rank, numel in enumerate(four.run(updated))}
traces["torch"] = four.run(train, Replicated, torchs, memory=True).trace
own_gap = max(four.run(gap, Replicated, torchs))
FORMS["torch"] = "zero1_torch"

# %% claims="M5" tags=["nbval-check-output"]
print(checks.lab14.updates(mine, SIZES, updates))
for rank in range(4):
    form = states(parameters, stage="zero1_torch", world_size=4, rank=rank)
    measured, predicted = kept(traces["torch"], rank)[KEPT[2]], form[KEPT[2]]
    print(f"rank {rank} has {measured:9,} bytes of state, predicted {predicted:9,}")
print("equal to Adam of one process after each step, to 1e-6:", own_gap < 1e-6)
print(told(traces["torch"]))

# %% claims="M5"
views.memory_bars(map(row, ["stage 1", "torch"]), badge=badge, title="Stage 1, twice")

# %% [markdown]
# The same numbers, and simple to use. But the largest parameter alone makes rank 0 keep most of the state; and after DDP's all_reduce each new parameter is sent with a broadcast: 3, like
# your first try. So **"ZeRO-1 costs extra communication"** is true of *this* one. It is not true of ZeRO.
#
# Stages 2 and 3 are `fully_shard` in torch (FSDP). Which of these names does torch know? **Predict** True or False.

# %% claims="F18"
known = {}
known["ZeroRedundancyOptimizer"] = True  # solution
known["fully_shard"] = True  # solution
known["fsdp_checkpointing"] = False  # solution

# %% claims="F18"
sources = [path.read_text("utf-8") for path in Path(dist.__file__).parent.rglob("*.py")]
in_torch = {name: any(name in source for source in sources) for name in known}

# %% claims="F18" tags=["nbval-check-output"]
print(checks.lab14.names(known, in_torch))
for name, there in in_torch.items():
    print(f"{name} is in torch.distributed: {there}")

# %% [markdown]
# The last one is in some courses only. The nearest real name is `apply_activation_checkpointing`, and that has nothing to do with sharding.
#
# ## How many GPUs?
#
# A language model has 28.8 GiB of parameters: 7.7 thousand million of 32 bits each. It is trained with Adam. Padding and counters are small change here.
#
# ### Exercise: budget
#
# 1. The smallest stage that fits on 64 ranks of 40 GiB (0 is DDP).
# 2. The fewest ranks of 40 GiB on which stage 2 fits.
# 3. The fewest ranks of 24 GiB on which stage 3 fits.
# 4. The same, where a rank's rows have 8 GiB of activations as well.
# 5. GiB on each rank in stage 1, with a million ranks.

# %%
need = {}
need["smallest stage, 64 ranks of 40 GiB"] = 2  # solution
need["ranks of 40 GiB, stage 2"] = 8  # solution
need["ranks of 24 GiB, stage 3"] = 5  # solution
need["the same, and 8 GiB of activations on each rank"] = 8  # solution
need["GiB in stage 1 on a million ranks"] = 57.6  # solution

# %% tags=["nbval-check-output"]
print(checks.lab14.budget(need))

# %% [markdown]
# On 64 ranks, from the closed form that was right to the byte above. The dashed line is a rank of 40 GiB.

# %%
LARGE = [Parameter("all", (int(28.8 * 2**30) // 4,))]


def forecast(name):
    form = states(LARGE, stage=FORMS[name], world_size=64)
    sends = payload(LARGE, stage=FORMS[name], world_size=64)
    return views.MemoryBars(name, [{category: form[category] for category in KEPT}], payload=sends)


badge = views.Badge("simulated", 64, "cuda", "nccl", "closed form")
limit, title = 40 * 2**30, "On each of 64 ranks"
views.memory_bars(map(forecast, ("DDP", *stages)), badge=badge, limit_bytes=limit, title=title)

# %% [markdown]
# ## Recap
#
# | | parameters | gradients | optimizer state | sends, in P (n − 1) / n |
# |---|---|---|---|---|
# | DDP | all | all | all | 2 |
# | stage 1 | all | all | a slice | 2 |
# | stage 2 | all | a slice | a slice | 2 |
# | stage 3 | a slice | a slice | a slice | 3 |
#
# - An all_reduce is a reduce_scatter and an all_gather. ZeRO puts the optimizer's step between them.
# - **"ZeRO-1 and -2 cost extra communication."** They send what DDP sends; unless all gradients are averaged on all ranks first.
# - **"ZeRO is model parallelism."** It is data parallelism: each rank runs the whole model.
# - **"Sharding shrinks activations."** Smaller batches do, or checkpointing: [lab 13](13_memory_anatomy.ipynb).
# - Slices have padding; whole parameters make unequal ranks.
#
# Now read `lablib/parallel/zero.py`: four short classes. What they do to one vector, FSDP does to one group of layers after the other.
