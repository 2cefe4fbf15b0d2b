# ---
# jupyter:
#   lab:
#     title: Inside the reducer
#     minutes: 75
#     question: Which bucket leaves first, and when?
#     measures: when each bucket of gradients fills, waits and travels, on two ranks
# ---

# %% id="imports"
import os

os.environ |= {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}  # no logs of torch here

from lablib import warm_up

warm_up()

from lablib import Cluster, Link, analysis, checks, run, views

import tempfile, time
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DistributedSampler

from lablib.sim.buckets import MIB, Parameter, predict_buckets
from lablib.sim.ddp import simulate
from lablib.sim.plan import chain
from lablib.trace import Kind, Trace
from lablib.training import arithmetic, emulate
from lablib.training.storages import Storages
from lablib.widgets import bucket_explorer

pair = Cluster(2, backend="gloo")  # the same two ranks for the whole lab

# %% [markdown]
# ## One step of DDP
#
# After backward, every rank holds the same averaged gradients. DDP's **reducer** sees to that. It puts gradients into **buckets**,
# and gives each bucket to one `all_reduce`, while backward goes on.
#
# The model: twelve layers of 4 MiB, numbered 0 to 11 from the input to the loss. You set nothing; torch's
# documentation says `bucket_cap_mb` is 25 then.
#
# **Predict**, in whole numbers: which layer's gradients leave first, how many buckets there are in the first iteration (0) and in the
# third (2), and how many MiB the largest bucket of the third has.

# %% claims="B4"
guess = {}
guess["layer that leaves first"] = 11  # solution
guess["buckets in iteration 0"] = 1  # solution
guess["buckets in iteration 2"] = 3  # solution
guess["MiB in its largest bucket"] = 28  # solution


# %% claims="B4"
def twelve_layers(width=1024):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(12)])


def train(make_model, iterations=3, **options):
    ddp = DDP(make_model(), **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    x = torch.randn(8, next(ddp.parameters()).shape[1])
    for _ in range(iterations):
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()


first = pair.run(train, twelve_layers, record=True)
first.trace

# %% [markdown]
# `record=True` asks each rank to note what happens: forward, backward, each gradient that becomes ready, each bucket, each
# collective. DDP itself is torch's own. What it did:


# %% claims="B4"
def show(trace, iteration):
    """One line for each bucket of rank 0, in the order in which they left."""
    rows = [row for row in analysis.buckets(trace, iteration=iteration).rows if row.rank == 0]
    for row in sorted(rows, key=lambda row: row.sent_ns):
        names = f"{row.parameters[0]} … {row.parameters[-1]}"
        print(f"iteration {iteration}, bucket {row.bucket}: {row.nbytes / MIB:5.2f} MiB, {names}")


# %% claims="B4" tags=["nbval-check-output"]
print(checks.lab08.first_look(guess, first.trace))
for iteration in first.trace.iterations:
    show(first.trace, iteration)

# %% [markdown]
# Four facts to read from the table:
#
# - **Iteration 0 has one bucket** with everything. DDP does not know yet in which order gradients will come.
# - In the forward of iteration 1 it **rebuilds** the buckets in the order in which rank 0's gradients became ready.
# - A bucket closes once it has *reached* its cap: 1 MiB for the first one, 25 MiB for the others. It may exceed it:
#   **a parameter is never split**.
# - The last bucket is what is left over.
#
# Here is the run itself, three iterations on two ranks. Hover over a span for its numbers.

# %% claims="B3"
views.timeline(first.trace)

# %% [markdown]
# And the life of each bucket in the last iteration: pale while it **fills**, thin while it is full and **waits**, full colour
# while it **travels**. Each upright mark is a gradient that became ready.

# %% claims="B3"
views.buckets(first.trace, iteration=2)

# %% [markdown]
# The same for iteration 0: the only bucket is full when backward is over, so its journey has nothing to hide behind.

# %% claims="B7"
views.buckets(first.trace, iteration=0)

# %% [markdown]
# ## Whose order?
#
# "Last layer first" is nearly right. This model *has* its layers in another order than it *uses* them. One MiB
# closes a bucket here, the first one too (we come to that).
#
# | layer | embed | head | mix | narrow | wide |
# |---|---|---|---|---|---|
# | MiB | 1 | 0.5 | 0.5 | 0.25 | 2 |
#
# **Predict** the buckets of iteration 1: lists of layers, the bucket that leaves first comes first.

# %% claims="B1"
shared = [["head", "narrow", "wide"], ["mix", "embed"]]  # solution


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        ends = {"embed": (1024, 256), "head": (64, 2048), "mix": (256, 512)}
        ends |= {"narrow": (1024, 64), "wide": (512, 1024)}
        for name, (inputs, outputs) in ends.items():
            self.add_module(name, nn.Linear(inputs, outputs, bias=False))

    def forward(self, x):
        return self.head(self.narrow(self.wide(self.mix(self.embed(x)))))


mixed = pair.run(partial(train, Mixed, 2, bucket_cap_mb=1), record=True)
layers = [(name, layer.weight.nbytes / MIB) for name, layer in Mixed().named_children()]

# %% claims="B1" tags=["nbval-check-output"]
print(checks.lab08.assignment(shared, mixed.trace, layers))
ready = [span.name.split(".")[0] for span in mixed.trace.only(Kind.GRADIENT, rank=0, iteration=0)]
print("the model has   ", [name for name, _ in layers])
print("ready, in order ", ready)
for row in analysis.buckets(mixed.trace, iteration=1).rows[:2]:
    inside = [name.split(".")[0] for name in row.parameters]
    print(f"bucket {row.bucket}: {row.nbytes / MIB} MiB", inside)

# %% [markdown]
# The layer that is **used last** is ready first; the order of registration plays no part. And `wide` joins a bucket that holds
# 0.75 MiB: caps are looked at *after* a parameter has been added.
#
# ## What a hook sees
#
# How does DDP know that a gradient is ready? It hooks into the gradient's accumulation. You can hook in, too, at two places.
#
# Rank r has a model of one weight, whose gradient is r + 1. It goes backward twice: under `no_sync` first, so that the
# gradient stays local, then with averaging.
#
# **Predict** what rank 0 sees in the *second* backward: in `register_hook`, in `register_post_accumulate_grad_hook`, and in
# `weight.grad` after backward.

# %% claims="B2"
seen = {}
seen["register_hook"] = 1  # solution
seen["post_accumulate"] = 2  # solution
seen["after backward"] = 3  # solution


def watched():
    found = {}
    ddp = DDP(nn.Linear(1, 1, bias=False))
    weight, x = ddp.module.weight, torch.tensor([[dist.get_rank() + 1.0]])
    weight.register_hook(lambda grad: found.update(register_hook=grad.item()))
    weight.register_post_accumulate_grad_hook(lambda w: found.update(post_accumulate=w.grad.item()))
    with ddp.no_sync():
        ddp(x).sum().backward()
    ddp(x).sum().backward()
    return found | {"after backward": weight.grad.item()}


eyes = pair.run(watched)

# %% claims="B2" tags=["nbval-check-output"]
print(checks.lab08.hooks(seen, eyes[0]))
for rank, found in enumerate(eyes):
    print(f"rank {rank}:", found)

# %% [markdown]
# Some texts say that DDP uses `register_hook`. It cannot: that hook fires *before* accumulation and would miss what `no_sync` left. DDP comes
# after accumulation, and after *your* post-accumulate hooks: they see the local gradient, not the average.
#
# ## Settings
#
# Twelve layers again, of 1 MiB each, with five settings:
#
# - `bucket_cap_mb=5` and `bucket_cap_mb=25`: one cap for all buckets, the first too;
# - `find_unused_parameters=True`: buckets are never rebuilt. They are filled in the order of `model.parameters()`, with the usual caps, and the bucket
#   that was filled *last* leaves first;
# - `bucket_cap_mb_list=[2, 4]`: the first bucket closes at 2, all others at 4;
# - `static_graph=True`: the order is learnt one iteration later.
#
# **Predict** the sizes of the buckets in whole MiB, in the order in which they leave; and the first iteration in which
# `static_graph` has more than one bucket.

# %% claims="B4"
mib = {}
mib["bucket_cap_mb=5"] = [5, 5, 2]  # solution
mib["bucket_cap_mb=25"] = [12]  # solution
mib["find_unused_parameters=True"] = [11, 1]  # solution
mib["bucket_cap_mb_list=[2, 4]"] = [2, 4, 4, 2]  # solution
static_from = 2  # solution

settings = {
    "bucket_cap_mb=5": {"bucket_cap_mb": 5},
    "bucket_cap_mb=25": {"bucket_cap_mb": 25},
    "find_unused_parameters=True": {"find_unused_parameters": True},
    "bucket_cap_mb_list=[2, 4]": {"bucket_cap_mb_list": [2, 4]},
    "static_graph=True": {"static_graph": True},
}
traces = {
    name: pair.run(partial(train, partial(twelve_layers, 512), **options), record=True).trace
    for name, options in settings.items()
}


# %% claims="B4" tags=["nbval-check-output"]
def mib_of(trace, iteration):
    rows = analysis.buckets(trace, iteration=iteration).rows
    return [round(row.nbytes / MIB, 2) for row in rows if row.rank == 0]


print(checks.lab08.settings(mib, traces))
print(checks.lab08.static_graph(static_from, traces["static_graph=True"]))
for name, trace in traces.items():
    print(f"{name:27}", *(mib_of(trace, iteration) for iteration in trace.iterations))
show(traces["find_unused_parameters=True"], 2)

# %% [markdown]
# These rules fit into one function without any process, `predict_buckets`. Does it predict all that happened so far?


# %% claims="B4" tags=["nbval-check-output"]
def parameters(width):
    with torch.device("meta"):  # names and sizes are enough
        model = twelve_layers(width)
    return [Parameter(name, weight.nbytes) for name, weight in model.named_parameters()]


def predicted(trace, width, **options):
    for iteration in trace.iterations:
        wanted = predict_buckets(parameters(width), iteration=iteration, **options)
        rows = analysis.buckets(trace, iteration=iteration).rows
        yield [row.parameters for row in rows] == 2 * [bucket.parameters for bucket in wanted]


print("no settings, both ranks, each iteration:", list(predicted(first.trace, 1024)))
for name, options in settings.items():
    print(f"{name}:", list(predicted(traces[name], 512, **options)))

# %% [markdown]
# ## Layers that sleep
#
# Real times on two cores mostly show that two ranks share two cores. So now layers **sleep**, and a thread delays the network: this is
# called *emulated*. Processes, gradients, DDP and its buckets stay real.
#
# Eight layers of 0.25 MiB: forward takes 5 ms each, backward 10 ms. The link takes 10 ms for a layer's gradients, too, and carries one bucket after the
# other. With `bucket_cap_mb=0.25`, each layer is a bucket of its own.
#
# **Predict** how many ms backward takes, waiting for the last bucket included: in iteration 0, and in iteration 2.

# %% claims="B7"
backward_ms = {}
backward_ms["iteration 0"] = 160  # solution
backward_ms["iteration 2"] = 90  # solution

# %% claims="B7"
plan = chain([0.25] * 8, forward_ms=5, backward_ms=10)
link = Link(bandwidth_mib_s=25)


def emulated(plan, link, iterations=3, **settings):
    job = partial(emulate.train, plan, steps=iterations, **settings)
    return pair.run(job, record=True, link=link).trace


def length_ms(trace, iteration, rank=0):
    return trace.only(Kind.BACKWARD, rank=rank, iteration=iteration).spans[0].length_ns / 1e6


slept = emulated(plan, link, bucket_cap_mb=0.25)
expected = simulate(plan, link=link, bucket_cap_mb=0.25)
for iteration in slept.iterations:
    real, simulated = length_ms(slept, iteration), length_ms(expected, iteration)
    print(f"iteration {iteration}: emulated {real:.0f} ms, simulated {simulated:.0f} ms")


# %% claims="B7" tags=["nbval-check-output"]
def sent_early(trace, iteration, rank=0):
    rows = [row for row in analysis.buckets(trace, iteration=iteration).rows if row.rank == rank]
    last_gradient = max(row.full_ns for row in rows)
    return sum(row.sent_ns < last_gradient for row in rows), len(rows)


print(checks.lab08.backward_ms(backward_ms, expected))
for iteration in (0, 2):
    early, count = sent_early(slept, iteration)
    hidden = analysis.overlap(slept, iteration=iteration)[0].hidden_ns > 0
    print(
        f"iteration {iteration}: {early} of {count} leave before backward has computed all;",
        end=" ",
    )
    print("something is hidden:", hidden)

# %% [markdown]
# The outlines are the simulation's. From iteration 1 on a bucket travels while the next layer computes; only the last one has nothing to
# hide behind.

# %% claims="B3 B7"
views.buckets(slept, iteration=2, predicted=expected)

# %% [markdown]
# How much of the journey is hidden, and how much could be: the shorter of computing and communication.

# %% claims="B7"
views.overlap(slept, predicted=expected)

# %% [markdown]
# ## What overlap can gain
#
# Overlap makes communication "nearly free", it is said, above all on fast links. The simulation changes the link and the number
# of layers; computing stays at 80 ms.


# %% claims="B7" tags=["nbval-check-output"]
def best_ms(ratio, count):
    """Two MiB in so many layers, on a link that takes `ratio` times as long as computing."""
    layers = chain([2 / count] * count, forward_ms=0, backward_ms=80 / count)
    slow = Link(bandwidth_mib_s=25 / ratio)
    return length_ms(simulate(layers, link=slow, iterations=[2], bucket_cap_mb=2 / count), 2)


print("link / computing   in a row   8 buckets   64 buckets   bound   times faster")
for ratio in (0.1, 0.5, 1, 2, 10):
    in_a_row, bound = 80 + 80 * ratio, max(80, 80 * ratio)
    eight, many = best_ms(ratio, 8), best_ms(ratio, 64)
    print(
        f"{ratio:16} {in_a_row:10.0f} {eight:11.1f} {many:12.1f}"
        f" {bound:7.0f} {in_a_row / many:14.2f}"
    )

# %% [markdown]
# At most the *shorter* of computing and communication can be hidden. Best is twofold, where both take the same time; on a link that is ten times faster
# *or* slower, 10 % is all there is.
#
# ## Strictly in order
#
# Rank 1 has the same model, and uses its layers in the opposite order. Buckets 0 to 7 are the same on both ranks: they follow *rank 0's*
# order. On rank 1, bucket 7 is full first.
#
# **Predict** what rank 1 does in iteration 1: `"a"` it sends buckets as they fill, 7 first; `"b"` it sends bucket 0 first, and none before
# the end of its backward; `"c"` it has had its buckets rebuilt in its own order.

# %% claims="B3"
sends = "b"  # solution

flipped = emulated([plan, plan.flipped()], link, iterations=2, bucket_cap_mb=0.25)

# %% claims="B3" tags=["nbval-check-output"]
print(checks.lab08.flipped(sends))
for rank in range(2):
    rows = [row for row in analysis.buckets(flipped, iteration=1).rows if row.rank == rank]
    full = [row.bucket for row in sorted(rows, key=lambda row: row.full_ns)]
    sent = [row.bucket for row in sorted(rows, key=lambda row: row.sent_ns)]
    early, _ = sent_early(flipped, 1, rank)
    print(f"rank {rank}: full in the order {full}, sent {sent}; before the last gradient: {early}")

# %% claims="B3"
views.buckets(flipped, iteration=1)

# %% [markdown]
# Ranks never talk about what is ready: they must make the same calls in the same order, so the order is fixed. Rank 0's buckets leave at once
# and wait *there*, for rank 1. Nothing is hidden.
#
# ## A slower rank
#
# Rank 1 needs twice the time for everything. **Predict** what DDP changes from iteration 1 on: `"a"` rank 1 gets fewer samples, `"b"` buckets are rebuilt
# in another order, `"c"` buckets get smaller, `"d"` nothing.

# %% claims="B20"
adapts = "d"  # solution

uneven = emulated([plan, plan.slowed(2)], link, bucket_cap_mb=0.25)
print(f"backward: {length_ms(slept, 2):.0f} ms with equal ranks, {length_ms(uneven, 2):.0f} ms now")

# %% claims="B20" tags=["nbval-check-output"]
print(checks.lab08.slower_rank(adapts))
rows = [row for row in analysis.buckets(uneven).rows if row.iteration > 0]
kinds = {(row.bucket, row.parameters, row.nbytes) for row in rows}
print(f"{len(rows)} buckets on 2 ranks in 2 iterations, {len(kinds)} different ones")
shares = [len(DistributedSampler(range(96), num_replicas=2, rank=rank)) for rank in range(2)]
print("samples of 96 that torch's sampler gives to each rank:", shares)

# %% [markdown]
# One rebuild, in rank 0's order, whatever the speed; equal shares. The fast rank waits.
#
# ## Large or small?
#
# A message has a price of its own, its **latency**, however small it is. Here: sixteen layers of 0.25 MiB, 5 ms of backward each; a link that takes 4 ms for a layer's
# gradients, and 6 ms more for each `all_reduce`.

# %% claims="B5 B6"
sixteen = chain([0.25] * 16, forward_ms=2, backward_ms=5)
costly = Link(latency_ms=3, bandwidth_mib_s=62.5)


def predicted_ms(cap):
    """Return how long backward takes in iteration 2 with bucket_cap_mb=cap."""
    return length_ms(simulate(sixteen, link=costly, iterations=[2], bucket_cap_mb=cap), 2)


# %% claims="B5 B6" tags=["nbval-check-output"]
for cap in (0.25, 4):
    trace = simulate(sixteen, link=costly, iterations=[2], bucket_cap_mb=cap)
    found = analysis.overlap(trace, iteration=2)[0]
    calls = len(trace.only(Kind.COLLECTIVE, rank=0))
    linked, hidden = found.communication_ns / 1e6, found.hidden_ns / 1e6
    print(
        f"cap {cap:4} MiB: {calls:2} calls, backward {length_ms(trace, 2):.0f} ms,"
        f" on the link {linked:.0f} ms, hidden {hidden:.0f} ms"
    )

# %% [markdown]
# One call for each layer pays the latency sixteen times. One call for everything pays it once, and hides nothing.
#
# ### Exercise: the best cap
#
# Find the `bucket_cap_mb` with the shortest backward; `predicted_ms(cap)` tells.

# %% claims="B6"
best_cap = min((layers / 4 for layers in range(1, 17)), key=predicted_ms)  # solution

# %% claims="B6" tags=["nbval-check-output"]
print(checks.lab08.best_cap(best_cap, sixteen, predicted_ms))

# %% [markdown]
# What do real buckets say?


# %% claims="B5 B6"
tried = [0.25, 4] if best_cap is ... else [0.25, best_cap, 4]
for cap in tried:
    trace = emulated(sixteen, costly, iterations=2, bucket_cap_mb=cap)
    real, simulated = length_ms(trace, 1), predicted_ms(cap)
    print(f"cap {cap:4} MiB: emulated {real:.0f} ms, simulated {simulated:.0f} ms")

# %% [markdown]
# ## Every setting
#
# The same figure with knobs. The prediction follows at once. The button trains the same model on real ranks, with layers that sleep and
# with real arithmetic, and lays the prediction over it. Some things to try:
#
# - `find_unused_parameters`: which layers are in the bucket that leaves first?
# - a latency of 20 ms: which cap is best now? And with the last layer four times as big?
# - iterations 0, 1 and 2 with `static_graph`;
# - four ranks in place of two: why does each bucket travel longer?

# %% id="explorer" claims="B6"
bucket_explorer(run=run, emulate=emulate.train, compute=arithmetic.train)

# %% [markdown]
# ## Bug hunt: who is in no bucket?
#
# This is how a published text fills buckets (in our words). Nothing raises. What is wrong?


# %% claims="B17"
def published(parameters, cap):
    """Return lists of names; parameters are pairs of name and size, in the unit of the cap."""
    buckets, bucket, size = [], [], 0
    for name, more in parameters:
        if size + more > cap:
            buckets.append(bucket)
            bucket, size = [], 0
        bucket.append(name)
        size += more
    return buckets


# %% claims="B17" tags=["nbval-check-output"]
sized = [(one.name, one.nbytes / MIB) for one in parameters(1024)]
kept = [name for bucket in published(sized, 25) for name in bucket]
print(f"kept: {kept[0]} … {kept[-1]}")
lost, total = sum(size for name, size in sized if name not in kept), sum(dict(sized).values())
print(f"in no bucket: {lost:.2f} of {total:.2f} MiB")

# %% [markdown]
# Half of the model would never be averaged: each rank would train its own half. And there is a second difference to
# DDP, which you know by now.
#
# ### Exercise: fill buckets as DDP does
#
# Same arguments; the order is the one that you are given, and every bucket has the same cap.


# %% claims="B17"
def fill(parameters, cap):
    # solution
    buckets, bucket, size = [], [], 0
    for name, more in parameters:
        bucket.append(name)
        size += more
        if size >= cap:
            buckets.append(bucket)
            bucket, size = [], 0
    return [*buckets, bucket] if bucket else buckets
    # end solution


# %% claims="B17" tags=["nbval-check-output"]
filled = checks.lab08.fill(fill)
print(filled)
if filled:
    rows = analysis.buckets(traces["bucket_cap_mb=5"], iteration=1).rows
    real = [list(row.parameters) for row in rows if row.rank == 0]
    ready = [(one.name, one.nbytes / MIB) for one in reversed(parameters(512))]
    print("the same as DDP's:", fill(ready, 5) == real)

# %% [markdown]
# ## Bug hunt: a coefficient that cannot reach 1
#
# The same text measures overlap by 1 − T ÷ (T_comp + T_comm), and says that it tends to 1 when overlap is perfect. Try it: compute takes
# 100 ms, and communication is hidden as well as can be.

# %% claims="B8" tags=["nbval-check-output"]
print("communication   total   1 - T/(comp + comm)")
for communication in (1, 10, 50, 100, 200, 1000):
    total = max(100, communication)  # the longer one hides the shorter one
    print(f"{communication:13} {total:7} {1 - total / (100 + communication):12.2f}")

# %% [markdown]
# ### Exercise: a coefficient that can
#
# Return 0 where nothing is hidden, 1 where everything is hidden that can be, and the share in between. (It is the number in the
# picture of hidden communication above.)


# %% claims="B8"
def coefficient(compute, communication, total):
    return (compute + communication - total) / min(compute, communication)  # solution


# %% claims="B8" tags=["nbval-check-output"]
mended = checks.lab08.coefficient(coefficient)
print(mended)
if mended:
    print("the eight layers from above, simulated:")
    for iteration in (0, 2):
        one = analysis.overlap(expected, iteration=iteration)[0]
        times = one.compute_ns, one.communication_ns, one.busy_ns
        theirs = 1 - times[2] / (times[0] + times[1])
        print(f"iteration {iteration}: {coefficient(*times):.2f}, published {theirs:.2f}")

# %% [markdown]
# ## What buckets cost
#
# DDP copies each gradient into its bucket, and the average back. With `gradient_as_bucket_view=True` the gradients *are* views
# of the buckets.
#
# Count the memory of gradients and buckets together, in multiples of the gradients. **Predict** it after backward, and after
# `zero_grad()`, which sets every gradient to None.

# %% claims="B10"
memory = {}
memory["default"] = [2, 1]  # solution
memory["gradient_as_bucket_view"] = [1, 1]  # solution


# %% claims="B10"
def measure_memory(view):
    ddp, storages = DDP(twelve_layers(512), gradient_as_bucket_view=view), Storages()

    def noting(group, bucket):
        storages.note(bucket.buffer())
        return allreduce_hook(group, bucket)  # what DDP does itself

    ddp.register_comm_hook(None, noting)
    for _ in range(2):
        ddp.zero_grad()
        ddp(torch.randn(8, 512)).sum().backward()
    nbytes = sum(weight.grad.nbytes for weight in ddp.parameters())
    for weight in ddp.parameters():
        storages.note(weight.grad)
    count, before = len(storages), storages.nbytes
    ddp.zero_grad()
    return {"storages": count, "multiples": (before / nbytes, storages.nbytes / nbytes)}


weighed = {
    "default": pair.run(measure_memory, False)[0],
    "gradient_as_bucket_view": pair.run(measure_memory, True)[0],
}

# %% claims="B10" tags=["nbval-check-output"]
print(checks.lab08.memory(memory, {name: found["multiples"] for name, found in weighed.items()}))
for name, found in weighed.items():
    print(f"{name:24} {found}")

# %% [markdown]
# By default, 24 gradients and 2 buckets have a storage each: one more copy of everything. With views, the gradients of a bucket share its storage.
# But then `zero_grad` frees nothing: the reducer keeps its buckets.
#
# ## A second witness
#
# torch's own profiler sees DDP's calls, too. Let it watch two steps on both ranks while `lablib` records them, and load what it wrote.


# %% claims="B9"
def watched_steps(folder):
    ddp, took = DDP(twelve_layers(512), bucket_cap_mb_list=[1, 2, 4]), {}

    def two_steps(name):
        begun = time.perf_counter()
        for _ in range(2):
            ddp(torch.randn(64, 512)).square().mean().backward()
        took[name] = 1e3 * (time.perf_counter() - begun) / 2

    two_steps("warm-up")
    two_steps("without")
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        two_steps("with")
    profiler.export_chrome_trace(f"{folder}/rank{dist.get_rank()}.json")
    return took


with tempfile.TemporaryDirectory() as folder:
    watched_run = pair.run(watched_steps, folder, record=True)
    theirs = Trace.load(folder)
took = watched_run[0]
print(f"a step takes {took['without']:.0f} ms, with the profiler {took['with']:.0f} ms")

# %% claims="B9" tags=["nbval-check-output"]
calls = {}
for rank in range(2):
    noted = watched_run.trace.only(Kind.COLLECTIVE, rank=rank)
    ours = [call for call in noted if call.iteration is not None and call.iteration >= 4]
    calls[rank] = list(zip(ours, theirs.only(Kind.COLLECTIVE, rank=rank), strict=True))
    same = all((one.name, one.nbytes) == (other.name, other.nbytes) for one, other in calls[rank])
    print(f"rank {rank}: {len(calls[rank])} calls, in the same order, of the same bytes: {same}")


# %% claims="B9"
def since_first_ms(trace, span):
    zero = watched_run.trace.wall_offset_ns + calls[0][0][0].start_ns  # both tell the time of day
    return [(ns + trace.wall_offset_ns - zero) / 1e6 for ns in (span.start_ns, span.end_ns)]


print("rank 0              recorded, ms     profiled, ms")
for ours, other in calls[0]:
    times = since_first_ms(watched_run.trace, ours) + since_first_ms(theirs, other)
    print(f"bucket {ours.bucket}, {ours.nbytes / MIB:.0f} MiB", *(f"{ms:8.1f}" for ms in times))

# %% claims="B9"
views.timeline(theirs)

# %% [markdown]
# Both tell the same story. The profiler also shows each operator of torch, and each kernel on GPUs; it does not know about buckets, or about
# gradients that become ready. Where its bars begin later, a call waited in gloo's queue: gloo has two threads.
#
# ## Recap
#
# - **"Buckets are at most 25 MiB."** A bucket closes once it has *reached* its cap, and a parameter is never split.
# - **"The first bucket is the first layer's."** It is that of the layer *used last*, whatever the order of registration; rank 0's order
#   holds for all.
# - **"Overlap works from step one."** Iteration 0 has one bucket for everything, and hides nothing.
# - **"Smaller buckets are always better."** Each call pays the latency; larger ones leave later. There is a best cap between.
# - **"Overlap makes communication free."** It hides the shorter of the two: at most a factor of two, where both are equal.
# - **"A bucket leaves when it is full."** When it is full *and* all earlier ones have left.
# - **"25 is the default, so I may write it."** Given explicitly, it takes the small first bucket away.
# - **"DDP adapts to slow ranks."** It rebuilds once, in rank 0's order. Everybody waits.
# - Buckets are one more copy of the gradients; `gradient_as_bucket_view=True` saves it.
# - Hooks of yours see the local gradient; read `weight.grad` after backward.
