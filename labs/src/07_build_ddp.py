# ---
# jupyter:
#   lab:
#     title: Build DDP
#     minutes: 75
#     question: What must a wrapper do?
#     measures: every step of your own wrapper beside one process with all the data, and when its calls leave
# ---

# %% id="imports"
from lablib import warm_up

warm_up()

from lablib import Cluster, Link, checks, span, views

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler

from lablib.parallel import data_parallel as ours
from lablib.parallel.data_parallel import fill
from lablib.sim.plan import chain
from lablib.trace import Kind
from lablib.training import emulate

pair = Cluster(2, backend="gloo")  # the same two ranks for the whole lab

# %% [markdown]
# ## The promise
#
# Every rank has the whole model, and its own part of each batch. A wrapper around the model sees to it that all ranks always hold the same weights: those
# that *one process with all the data* would have. You build such a wrapper in four steps. Each keeps the promise; each is faster than the one before.
#
# 1. the same start;
# 2. averaging after backward;
# 3. averaging *during* backward, each gradient alone;
# 4. averaging during backward, in buckets.
#
# The model on which you try it has what makes it hard: a **tied** weight (two layers share it), a **frozen** layer, a **buffer**. And each rank makes it with a seed
# of its own.


# %%
class Model(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight  # tied
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.register_buffer("scale", torch.rand(6) + 0.5)

    def forward(self, x):
        return self.last(torch.tanh(self.frozen(torch.tanh(self.first(x * self.scale)))))


def batch(step):
    return torch.randn(6, 6, generator=torch.Generator().manual_seed(step))


# %% [markdown]
# ## Step 1: the same start
#
# Before the first step, all ranks need **rank 0's** numbers. Then, in every forward, they need rank 0's *buffers* again: BatchNorm, say, changes its buffers in each
# forward, on each rank in another way, and no gradient brings them together.
#
# But what about the parameters? Twenty steps of training. **Predict** how often the parameters travel, how often the buffers, and how often the gradients.

# %% id="travels-guess"
travel = {}
travel["parameters"] = 1  # solution
travel["buffers"] = 21  # solution
travel["gradients"] = 20  # solution

# %% [markdown]
# ### Exercise: the same start
#
# - When it is built, the wrapper gives rank 0's parameters and buffers to all ranks. Which ones? Think of the frozen layer.
# - In forward it gives rank 0's buffers to all ranks, then calls the model.
#
# `dist.broadcast(t.detach(), src=0)` writes into a parameter, and autograd does not mind.


# %% id="step-1"
class SameStart(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        # solution
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)
        # end solution

    def forward(self, x):
        # solution
        for buffer in self.module.buffers():
            dist.broadcast(buffer, src=0)
        # end solution
        return self.module(x)


start = checks.lab07.same_start(SameStart, pair.run)

# %% tags=["nbval-check-output"]
print(start)

# %% [markdown]
# ## Step 2: average after backward
#
# Now the gradients. The loop is that of one process, with one line more:
#
# ```
# model(x).square().mean().backward()
# model.finish()            # the gradients are the mean over all ranks now
# optimizer.step()
# ```
#
# (DDP needs no such line: it hangs its own `finish` at the end of backward.)
#
# ### Exercise: synchronous
#
# Write `finish`: for each parameter, one `all_reduce` of its gradient, and a division. Mind two things. The frozen layer has no gradient: its `grad` is None. The tied weight
# has two names; `model.parameters()` gives it once.


# %% id="step-2"
class Synchronous(SameStart):
    def finish(self):
        # solution
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        # end solution


synchronous = checks.lab07.synchronous(Synchronous, pair.run)

# %% tags=["nbval-check-output"]
print(synchronous)

# %% [markdown]
# Does it keep the promise? Twenty steps with four optimizers, beside one process with all the data. (While one of your wrappers does not pass yet, the lab
# goes on with ours: `lablib/parallel/data_parallel.py`. Read it last.)


# %%
OPTIMIZERS = {
    "SGD": partial(torch.optim.SGD, lr=0.1),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "Adam": partial(torch.optim.Adam, lr=0.01),
    "AdamW": partial(torch.optim.AdamW, lr=0.01),
}


def train(model, make_optimizer, part=slice(None), steps=20):
    """Return all weights after each step."""
    optimizer, history = make_optimizer(model.parameters()), []
    for step in range(steps):
        optimizer.zero_grad()
        x = batch(step)[part]
        (model(x) - x).square().mean().backward()
        getattr(model, "finish", lambda: None)()  # of a wrapper; one process has none
        optimizer.step()
        weights = torch.cat([one.detach().flatten() for one in model.parameters()])
        history.append(weights)
    return history


def on_ranks(wrap, optimizer):
    rank = dist.get_rank()
    model = wrap(Model(seed=rank))
    return train(model, OPTIMIZERS[optimizer], slice(3 * rank, 3 * rank + 3))


def largest_gap(wrap, optimizer):
    """Return the largest difference of any weight, on any rank, after any of the steps."""
    alone = train(Model(seed=0), OPTIMIZERS[optimizer])
    ranks = pair.run(on_ranks, wrap, optimizer)
    return max((a - b).abs().max().item() for mine in ranks for a, b in zip(mine, alone))


second = Synchronous if synchronous else ours.Synchronous
gaps = {name: largest_gap(second, name) for name in OPTIMIZERS}
for name, gap in gaps.items():
    print(f"{name:9} largest difference {gap:.1e}")

# %% tags=["nbval-check-output"]
for name, gap in gaps.items():
    print(f"{name:9} equal to one process after each of 20 steps, to 1e-6: {gap < 1e-6}")

# %% [markdown]
# Adam and its like divide by the root of squares: they keep the promise only because *gradients* are averaged, before the optimizer sees them.
#
# What has travelled? And what travels under torch's own DDP?


# %% id="travelled"
def some_steps(wrap):
    rank = dist.get_rank()
    train(wrap(Model(seed=rank)), OPTIMIZERS["SGD"], slice(3 * rank, 3 * rank + 3))


def nbytes_of(tensors):
    return sum(tensor.nbytes for tensor in tensors)


size = {
    "parameters": nbytes_of(Model(0).parameters()),
    "buffers": nbytes_of(Model(0).buffers()),
    "gradients": nbytes_of(one for one in Model(0).parameters() if one.requires_grad),
}


def sent(trace, op):
    """Return what rank 0 brings to the calls of one kind: bytes at the start, and of each step."""
    calls = trace.only(Kind.COLLECTIVE, rank=0, name=op)
    steps = [nbytes_of(calls.only(iteration=step)) for step in trace.iterations]
    return nbytes_of(calls) - sum(steps), steps


def how_often(trace):
    start, steps = sent(trace, "broadcast")
    whole = size["parameters"] + size["buffers"]
    return {
        "parameters": sum(nbytes >= whole for nbytes in (start, *steps)),
        "buffers": sum(nbytes >= size["buffers"] for nbytes in (start, *steps)),
        "gradients": sum(nbytes >= size["gradients"] for nbytes in sent(trace, "all_reduce")[1]),
    }


recorded = {"Synchronous": pair.run(some_steps, second, record=True).trace}
recorded["DDP"] = pair.run(some_steps, DDP, record=True).trace

# %% tags=["nbval-check-output"]
print(checks.lab07.travels(travel, how_often(recorded["Synchronous"])))
print("bytes:", size)
for name, trace in recorded.items():
    last = {op: sent(trace, op)[1][-1] for op in ("broadcast", "all_reduce")}
    print(f"{name:11} in twenty steps {how_often(trace)}; in the last one {last}")

# %% [markdown]
# Parameters travel **once**. Equal weights, equal gradients and equal optimizers give equal weights again. DDP does not synchronise parameters every step.
#
# ## When is a gradient ready?
#
# `finish` begins when backward is over, and until then the network idles. To begin earlier, the wrapper must learn when a gradient is ready:
# `parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` then.
#
# This model uses its layers in the order tied, middle, tied, last: the weight of `tied` twice. **Predict** in which order the three hooks fire. And what does
# rank 0 see, where rank r's gradient of `last` is r + 1: in the hook, after backward, after `finish`?

# %%
fires = ["last", "middle", "tied"]  # solution
seen = {}
seen["in the hook"] = 1  # solution
seen["after backward"] = 1  # solution
seen["after finish"] = 1.5  # solution

# %% id="hooks"
USED = ["tied", "middle", "tied", "last"]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(1, 1, bias=False) for name in set(USED)})
        for one in self.parameters():
            nn.init.ones_(one)

    def forward(self, x):
        for name in USED:
            x = self.layers[name](x)
        return x


def watched(wrap):
    model, fired, found = wrap(Twice()), [], {}
    for name, layer in model.module.layers.items():

        def note(weight, name=name):
            fired.append(name)
            if name == "last":
                found["in the hook"] = weight.grad.item()

        layer.weight.register_post_accumulate_grad_hook(note)
    model(torch.full((1, 1), dist.get_rank() + 1.0)).sum().backward()
    found["after backward"] = model.module.layers["last"].weight.grad.item()
    model.finish()
    found["after finish"] = model.module.layers["last"].weight.grad.item()
    return fired, found


eyes = pair.run(watched, second)

# %% tags=["nbval-check-output"]
print(checks.lab07.order(fires, USED, eyes[0][0]))
print(checks.lab07.seen(seen, eyes[0][1]))
for rank, (fired, found) in enumerate(eyes):
    print(f"rank {rank}:", fired, found)

# %% [markdown]
# Not in forward's order: backward begins at the loss. The tied weight's hook fires **once**, when both uses are added up, and that is late.
#
# ## Step 3: average during backward
#
# ### Exercise: overlapped
#
# Give each parameter that needs a gradient a hook that begins its `all_reduce` with `async_op=True`, and keep the handle. `finish` waits for all handles and divides. Do not touch a
# gradient that is on its way. And the next step begins with an empty list.


# %% id="step-3"
class Overlapped(SameStart):
    def __init__(self, module):
        super().__init__(module)
        self.works = []
        # solution
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.ready)
        # end solution

    def ready(self, parameter):
        # solution
        self.works.append((dist.all_reduce(parameter.grad, async_op=True), parameter))
        # end solution

    def finish(self):
        # solution
        for work, parameter in self.works:
            work.wait()
            parameter.grad /= dist.get_world_size()
        self.works.clear()
        # end solution


overlapped = checks.lab07.overlapped(Overlapped, pair.run)

# %% tags=["nbval-check-output"]
print(overlapped)

# %% [markdown]
# ### It works, until it does not
#
# Both ranks have the weights a = 1 and b = 10 here, and compute x · a · b with x = 1. So the gradient of a is 10 and that of b is 1, on both. But rank 1 *uses* b first.


# %% id="turned"
class Product(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(10.0))
        self.order = order

    def forward(self, x):
        for name in self.order:
            x = x * getattr(self, name)
        return x


def turned(wrap):
    model = wrap(Product("ab" if dist.get_rank() == 0 else "ba"))
    model(torch.tensor(1.0)).backward()
    model.finish()
    return {name: one.grad.item() for name, one in model.module.named_parameters()}


third = Overlapped if overlapped else ours.Overlapped
turned_by = {version.__name__: pair.run(turned, version).values for version in (second, third)}

# %% tags=["nbval-check-output"]
for name, found in turned_by.items():
    print(f"{name:11}", found)

# %% [markdown]
# Nothing raised. Rank 0's b was added to rank 1's a: ranks do not say *what* they send, the first call of one meets the first call of the other. So the order must be
# **fixed**, whatever is ready first.
#
# ## Step 4: buckets, in strict order
#
# And each call has a price of its own, its latency. So parameters are joined: a **bucket** is a list of parameters whose gradients travel as one flat tensor.
#
# ### Exercise: bucketed
#
# `fill` makes the buckets, last parameter first: it is (nearly) the order in which gradients come. `missing` counts how many gradients each bucket still waits for.
#
# - `ready`: send what may leave now. Bucket k may, when it is full *and* buckets 0 to k − 1 have left. (One gradient can set several buckets free.)
# - `finish`: wait, divide, put each part back where it belongs (`flat.split(sizes)`, `part.view_as(parameter)`), and begin anew.


# %% id="step-4"
class Bucketed(SameStart):
    def __init__(self, module, cap_mb=25):
        super().__init__(module)
        trained = [one for one in module.parameters() if one.requires_grad]
        self.buckets = fill(trained[::-1], cap_mb=cap_mb)
        self.bucket_of = {one: k for k, bucket in enumerate(self.buckets) for one in bucket}
        self.missing = [len(bucket) for bucket in self.buckets]
        self.sent = []
        for parameter in trained:
            parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter):
        self.missing[self.bucket_of[parameter]] -= 1
        # solution
        while len(self.sent) < len(self.buckets) and not self.missing[len(self.sent)]:
            bucket = self.buckets[len(self.sent)]
            flat = torch.cat([one.grad.flatten() for one in bucket])
            self.sent.append((dist.all_reduce(flat, async_op=True), flat))
        # end solution

    def finish(self):
        # solution
        for (work, flat), bucket in zip(self.sent, self.buckets):
            work.wait()
            parts = (flat / dist.get_world_size()).split([one.numel() for one in bucket])
            for one, part in zip(bucket, parts):
                one.grad.copy_(part.view_as(one))
        self.sent.clear()
        self.missing = [len(bucket) for bucket in self.buckets]
        # end solution


bucketed = checks.lab07.bucketed(Bucketed, pair.run)
fourth = Bucketed if bucketed else ours.Bucketed
gaps = {version.__name__: largest_gap(version, "AdamW") for version in (second, third, fourth)}
in_order = pair.run(turned, fourth).values

# %% tags=["nbval-check-output"]
print(bucketed)
print("a and b, used in two orders:", in_order)
for name, gap in gaps.items():
    print(f"{name:11} equal to one process after each of 20 steps: {gap < 1e-6}")

# %% [markdown]
# ## What each step gains
#
# Real times on two cores mostly show that two ranks share two cores. So layers **sleep** now and the link is slow: *emulated*. Your wrapper and its calls stay real.
#
# Six layers with weight and bias; backward takes 15 ms each. An `all_reduce` pays 5 ms of latency; a weight takes 10 ms more, a bias next to nothing. The link carries one call
# after the other. A layer's gradients are ready when its backward ends.
#
# **Predict** how many ms backward and `finish` take together: with one call a parameter after backward, with one call a parameter during backward, and
# with one bucket a layer.

# %%
took = {}
took["Synchronous"] = 210  # solution
took["Overlapped"] = 135  # solution
took["Bucketed"] = 105  # solution

# %% id="emulated"
plan = chain([0.25] * 6, forward_ms=2, backward_ms=15, bias_nbytes=4)
link = Link(latency_ms=2.5, bandwidth_mib_s=25)
VERSIONS = {
    "Synchronous": second,
    "Overlapped": third,
    "Bucketed": partial(fourth, cap_mb=0.25),
    "torch's DDP": partial(DDP, bucket_cap_mb=0.25),
}


def sleep_through(wrap, steps=4):
    model = wrap(emulate.SleepingModel(plan))
    for _ in range(steps):
        model.zero_grad()
        model(torch.zeros(1, requires_grad=True)).sum().backward()
        with span("finish"):
            getattr(model, "finish", lambda: None)()


slept = {
    name: pair.run(sleep_through, wrap, record=True, link=link).trace
    for name, wrap in VERSIONS.items()
}


def length_ms(trace, iteration, rank=0):
    step = trace.only(rank=rank, iteration=iteration)
    return (step.only(Kind.REGION).end_ns - step.only(Kind.BACKWARD).start_ns) / 1e6


def best(trace):
    """Return the step with the fewest interruptions: other programs need the cores, too."""
    return min(trace.iterations[1:], key=lambda iteration: length_ms(trace, iteration))


shortest = {name: length_ms(trace, best(trace)) for name, trace in slept.items()}
for name, ms in shortest.items():
    print(f"{name:12} {ms:4.0f} ms, {shortest['Synchronous'] / ms:.2f} times as fast as step 2")


# %% tags=["nbval-check-output"]
def begun_in_backward(trace):
    step = trace.only(rank=0, iteration=2)
    end = step.only(Kind.BACKWARD).end_ns
    calls = step.only(Kind.COLLECTIVE, name="all_reduce")
    return f"{sum(call.start_ns < end for call in calls)} of {len(calls)}"


print(checks.lab07.versions(took, plan, link))
for name, trace in slept.items():
    print(f"{name:12} calls that begin before backward ends: {begun_in_backward(trace)}")

# %% [markdown]
# Rank 0 in one step of each version. Step 2: first computing, then calls. (`communication`: a call from its start to its end; one below another waits for the link.)


# %%
def lanes(name, title):
    trace, until = slept[name], 20 + shortest["Synchronous"]  # one scale for all versions
    view = partial(views.timeline, ranks=[0], window_ms=(0, until), title=title)
    return view(trace, iteration=best(trace))


lanes("Synchronous", "Step 2: average after backward")

# %% [markdown]
# Step 3: the calls begin in backward, but there are twelve, and each pays the latency: the link is never done in time.

# %%
lanes("Overlapped", "Step 3: each gradient alone, during backward")

# %% [markdown]
# Step 4: half as many calls, and only the last has nothing to hide behind.

# %%
lanes("Bucketed", "Step 4: buckets, during backward")

# %% [markdown]
# How much of the link is hidden, and how much could be? torch's DDP with one bucket a layer does the same.

# %%
views.overlap(slept["Bucketed"], iteration=best(slept["Bucketed"]))

# %% [markdown]
# ## What no wrapper does for you
#
# A published script, complete but for one thing: each rank makes its data set from random numbers and sets no seed, then `DistributedSampler` gives it its part. The wrapper is right.
# **Predict** with True or False what is the same on both ranks.

# %% claims="G16"
same = {}
same["weights"] = True  # solution
same["indices"] = False  # solution
same["data set, unseeded"] = False  # solution
same["data set, seeded"] = True  # solution


def prepared(wrap):
    model = wrap(nn.Linear(4, 1))
    unseeded = torch.randn(8, 4)
    seeded = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    indices = torch.tensor(list(DistributedSampler(unseeded, shuffle=False)))
    return {
        "weights": model.module.weight.detach(),
        "indices": indices,
        "data set, unseeded": unseeded,
        "data set, seeded": seeded,
    }


made = pair.run(prepared, fourth)
is_same = {name: torch.equal(made[0][name], made[1][name]) for name in made[0]}

# %% claims="G16" tags=["nbval-check-output"]
print(checks.lab07.same_data(same, is_same))
print({name: found["indices"].tolist() for name, found in zip(("rank 0", "rank 1"), made)})
for name, equal in is_same.items():
    print(f"the same on both ranks, {name}: {equal}")

# %% [markdown]
# The sampler splits *numbers*, not data: rank 0 takes rows 0, 2, 4, 6 of **its** data set, rank 1 takes rows 1, 3, 5, 7 of another. No row is seen twice, and yet there is no data set of
# which this is one epoch. Weights that are made from another seed are mended by the wrapper; data is not.
#
# ## Recap
#
# - A wrapper gives rank 0's parameters once, its buffers in every forward, and the mean of the gradients in every backward. That is all.
# - **"DDP synchronises parameters every step."** Once, when it is built.
# - **"Hooks fire in forward's order."** In backward's; a tied weight's once, when all its uses are in.
# - What is on its way may be neither read nor changed before `wait()`.
# - Ranks do not say what they send: the order of calls must be the same on all ranks, so buckets leave in a fixed order.
# - Overlap hides the link behind backward; buckets pay the latency less often.
# - Data, seeds and shares are yours.
#
# Now read `lablib/parallel/data_parallel.py`: three wrappers, a hundred and thirty lines. What does DDP do besides? It rebuilds its buckets in the order in which gradients
# really come: that is [lab 08](08_inside_the_reducer.ipynb).
