# ---
# jupyter:
#   lab:
#     title: Memory anatomy
#     minutes: 50
#     question: Why does it not fit?
#     measures: every byte of a training step, by what it is for, on each rank
# ---

# %% id="imports"
from lablib import warm_up

warm_up()

from lablib import Cluster, checks, run, views

from functools import partial

import psutil
import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP

from lablib.analysis.memory import at_end, highest, peak
from lablib.sim.activations import mlp
from lablib.sim.memory import states
from lablib.sim.memory_step import simulate
from lablib.training.memory_models import MLP, parameters_of
from lablib.training.memory_run import measured
from lablib.widgets import memory_explorer

alone, pair = Cluster(1, backend="gloo"), Cluster(2, backend="gloo")
MIB = 1 << 20

# %% [markdown]
# ## Bytes for each parameter
#
# Eight linear layers, 128 numbers wide, in `float32`. You train two steps of it with `memory=True`: lablib then looks at every operator, and counts
# what is in memory by what it is **for**.


# %%
def train(optimizer=torch.optim.Adam, *, wrap=lambda model: model, batch=32, parts=1, **how):
    """Train two steps; each adds up the gradients of so many parts of the batch."""
    dtype, width = how.get("dtype", torch.float32), how.get("width", 128)
    torch.manual_seed(0)
    model = wrap(MLP([width] * 9, checkpoint=how.get("checkpoint", 0)).to(dtype))
    stepper = optimizer(model.parameters())
    for _ in range(2):
        for _ in range(parts):
            x, y = (torch.randn(batch // parts, width, dtype=dtype) for _ in range(2))
            with torch.autocast("cpu", torch.bfloat16, enabled=how.get("autocast", False)):
                loss = mse_loss(model(x), y)
            loss.backward()
        stepper.step()
        stepper.zero_grad()


def memory_of(cluster, *args, **how):
    return cluster.run(partial(train, *args, **how), memory=True).trace


P = sum(parameter.numel() for parameter in MLP([128] * 9).parameters())
momentum = partial(torch.optim.SGD, momentum=0.9)
view = partial(DDP, gradient_as_bucket_view=True)
print(f"{P:,} parameters, {P * 4 / MIB:.2f} MiB")

# %% [markdown]
# **Predict** how many bytes stay in memory for each parameter after `step()`, before `zero_grad()`. Activations are left out here: what of them is still there comes later.

# %% claims="M1"
each = {}
each["SGD"] = 8  # solution
each["SGD with momentum"] = 12  # solution
each["Adam"] = 16  # solution
each["Adam, all in bfloat16"] = 8  # solution
each["Adam under DDP"] = 20  # solution
each["Adam under DDP, gradient_as_bucket_view=True"] = 16  # solution

# %% id="each-run" claims="M1"
traces = {
    "SGD": memory_of(alone, torch.optim.SGD),
    "SGD with momentum": memory_of(alone, momentum),
    "Adam": memory_of(alone),
    "Adam, all in bfloat16": memory_of(alone, dtype=torch.bfloat16),
    "Adam under DDP": memory_of(pair, wrap=DDP),
    "Adam under DDP, gradient_as_bucket_view=True": memory_of(pair, wrap=view),
}


def what_stays(trace, rank=0):
    held = at_end(trace, rank=rank, phase="optimizer")
    return {what: nbytes for what, nbytes in held.items() if nbytes and what != "activations"}


stays = {name: what_stays(trace) for name, trace in traces.items()}

# %% claims="M1" tags=["nbval-check-output"]
print(checks.lab13.each(each, {name: sum(held.values()) / P for name, held in stays.items()}))
for name, held in stays.items():
    print(f"{name}:", ", ".join(f"{n / P:.0f} {what}" for what, n in held.items()))

# %% [markdown]
# Adam keeps two numbers for each parameter: the means of the gradient and of its square. (And 4 bytes for each *tensor*, in which it counts its steps.) DDP keeps **buckets**, in
# which it sends gradients: another copy of them, unless the gradients are *views* of the buckets.
#
# Is the closed form right to the byte? `states` adds up what each way to train keeps.

# %% claims="M1" tags=["nbval-check-output"]
model = parameters_of(MLP([128] * 9))
as_stages = {
    "Adam under DDP": "ddp",
    "Adam under DDP, gradient_as_bucket_view=True": "ddp_bucket_view",
}
for name, stage in as_stages.items():
    for rank in range(2):
        formula = states(model, stage=stage, world_size=2, rank=rank)
        right = what_stays(traces[name], rank) == {what: n for what, n in formula.items() if n}
        print(f"{name}, rank {rank}: {sum(formula.values()):,} bytes stay, to the byte: {right}")

# %% [markdown]
# Two ranks, and each of them has everything: DDP shares out the *work*, not the memory. A model that does not fit on one GPU does not fit on eight.
#
# ### Exercise: 16 bytes again
#
# Large models often train like this: parameters and gradients in bfloat16, and for the optimizer a float32 **master copy** of the parameters, since a small step would be
# rounded away. How many bytes a parameter is each? And how large a model (in billions of parameters) can a GPU with 80 GB = 80 · 10⁹ bytes hold that way, activations not counted?

# %% claims="M1" tags=["nbval-check-output"]
recipe = {}
recipe["parameters"] = 2  # solution
recipe["gradients"] = 2  # solution
recipe["master copy"] = 4  # solution
recipe["Adam's two"] = 8  # solution
billions = 5  # solution
print(checks.lab13.recipe(recipe))
print(checks.lab13.billions(billions))

# %% [markdown]
# ## Over time
#
# That is what *stays*. Now a batch of 512, and everything that comes and goes. **Predict** in which part of the step the peak is, `"forward"`, `"backward"` or `"optimizer"`,
# with a batch of 32 and with one of 512.

# %% claims="M1"
where = {}
where["batch of 32"] = "optimizer"  # solution
where["batch of 512"] = "backward"  # solution

small, large = traces["Adam"], memory_of(alone, batch=512)
peaks = {"batch of 32": peak(small, rank=0), "batch of 512": peak(large, rank=0)}


# %%
def predicted(batch, **how):
    acts = mlp([128] * 9, batch=batch, **how)
    return simulate(model, acts, stage="alone", world_size=1, optimizer="adam")


views.memory(large, iteration=1, predicted=predicted(512), title="A step with a batch of 512")

# %% claims="M1" tags=["nbval-check-output"]
print(checks.lab13.where(where, {name: sample.phase for name, sample in peaks.items()}))
for name, sample in peaks.items():
    formula = peak(predicted(int(name.split()[-1])), rank=0).total
    print(f"{name}: {sample.total / MIB:.2f} MiB in {sample.phase}", end="; ")
    print(f"predicted within 5 %: {abs(formula / sample.total - 1) < 0.05}")

# %% [markdown]
# Forward climbs: each layer **keeps its input**, because backward needs it. Backward descends, and leaves gradients behind. With a small batch the highest point is the optimizer's
# step, where everything that stays is there and Adam needs room to compute. With a large one it is the start of backward.
#
# Look at the right end: the step is over, and activations are still there, three times batch × 128 numbers. Two are `x` and `y`, which the loop holds until it makes new ones. The third is `loss`, one
# number. **Predict** how many bytes it holds on to.

# %% claims="M1"
heavy = 512 * 128 * 4  # solution

loss = mse_loss(torch.randn(512, 128), torch.randn(512, 128))
copy = loss.clone()

# %% claims="M1" tags=["nbval-check-output"]
print(checks.lab13.heavy(heavy, loss.untyped_storage().nbytes()))
print("one number:", loss.numel() == 1, " bytes behind its copy:", copy.untyped_storage().nbytes())

# %% [markdown]
# `mse_loss` computes all squares, then writes their mean into the *same* memory. So a loop with `losses.append(loss.detach())` keeps a batch of memory for every step, and dies
# after some hundred. `loss.item()` keeps nothing.
#
# ## Activations
#
# So a layer keeps batch × 128 numbers of 4 bytes. Eight layers keep their inputs; a ReLU keeps its output, which is the *same* tensor as the next layer's input.
#
# ### Exercise: from which batch on?
#
# Write how many bytes of activations the model keeps for a batch. Then: from which batch on are they **more than all that stays** (16 bytes a parameter)?


# %% claims="M2"
def kept(batch):
    # solution
    return 8 * batch * 128 * 4
    # end solution


crossing = 16 * P // (8 * 128 * 4) + 1  # solution

# %% claims="M2" tags=["nbval-check-output"]
print(checks.lab13.kept(kept, lambda batch: sum(n for _, n in mlp([128] * 9, batch=batch))))
print(checks.lab13.crossing(crossing, P))

# %% claims="M2"
curve = {}
for batch in (32, 256, 1024):
    trace = memory_of(alone, batch=batch)
    activations = at_end(trace, rank=0, phase="forward")["activations"]
    curve[batch] = activations, sum(stays["Adam"].values())

# %% claims="M2" tags=["nbval-check-output"]
for batch, (activations, rest) in curve.items():
    larger = "activations" if activations > rest else "parameters, gradients and optimizer state"
    print(f"batch of {batch:4}: most of it are {larger}")

# %% [markdown]
# "Activations dominate in large models" and "model size decides" are both half true: the *batch* decides (and the sequence, for a transformer).
#
# ## Checkpointing
#
# Keep less, compute again: `torch.utils.checkpoint` keeps only the input of a **segment**; backward runs the segment's forward again. The eight layers in `n` segments: **predict**
# which `n` of 0 (no checkpoint), 1, 3 and 8 has the lowest peak.

# %% claims="M3"
best = 3  # solution

again = {n: memory_of(alone, batch=512, checkpoint=n) for n in (0, 1, 3, 8)}
kept_by = {n: at_end(one, rank=0, phase="forward")["activations"] for n, one in again.items()}
tops = {n: peak(one, rank=0).total for n, one in again.items()}


# %% claims="M3"
def forwards(segments):
    """Count how often layers compute their forward in one step."""
    count = 0

    def seen(*_):
        nonlocal count
        count += 1

    model = MLP([128] * 9, checkpoint=segments)
    for layer in list(model)[::2]:
        layer.register_forward_hook(seen)
    model(torch.randn(4, 128)).sum().backward()
    return count


computed = {n: alone.run(forwards, n)[0] for n in again}


# %% claims="M3" tags=["nbval-check-output"]
print(checks.lab13.best(best, tops))
for n, nbytes in kept_by.items():
    name = f"{n} segments" if n else "no checkpoint"
    print(f"{name:13}: {nbytes / MIB:.2f} MiB kept,", end=" ")
    print(f"peak {tops[n] / MIB:.2f} MiB, {computed[n]} forwards of layers")

# %% [markdown]
# With one segment, backward makes all activations at once, after all. With eight, every layer keeps its input: as before. In between, about √8 segments: few inputs are kept, and few
# activations come back at a time. The price is nearly a second forward.
#
# ## Mixed precision
#
# `autocast` computes in bfloat16, so activations take half. **Predict**: of the batches 16, 64, 128, 256, which is the smallest where autocast really *saves* activation memory?
# (This model is 64 wide.)

# %% claims="M4"
smallest = 128  # solution

halves = {}
for batch in (16, 64, 128, 256):
    both = [memory_of(alone, width=64, batch=batch, autocast=on) for on in (False, True)]
    halves[batch] = [highest(one, "activations", rank=0, iteration=1) for one in both]
kinds = what_stays(memory_of(alone, width=64, autocast=True))

# %% claims="M4" tags=["nbval-check-output"]
print(checks.lab13.smallest(smallest, halves))
for batch, (without, under) in halves.items():
    print(f"batch of {batch:3}: {without >> 10:5} KiB without, {under >> 10:5} KiB under autocast")
N = sum(one.numel() for one in MLP([64] * 9).parameters())
print("what stays:", ", ".join(f"{n / N:.0f} {what}" for what, n in kinds.items()))

# %% [markdown]
# Autocast makes **bfloat16 copies of the weights** and keeps them until forward has ended. They cost 2 bytes a weight whatever the batch; only a large batch saves more than that.
# Parameters, gradients and optimizer state stay in float32: 16 bytes, as ever.
#
# ## More batch than memory
#
# Accumulation: a batch of 512 as four parts of 128, with one step at the end. **Predict** what becomes a quarter, what stays: True for what shrinks.

# %% claims="B21"
shrinks = {}
shrinks["parameters"] = False  # solution
shrinks["gradients"] = False  # solution
shrinks["optimizer state"] = False  # solution
shrinks["activations"] = True  # solution

parts = memory_of(alone, batch=512, parts=4)
by_part = {what: [highest(one, what, rank=0) for one in (large, parts)] for what in shrinks}

# %% claims="B21" tags=["nbval-check-output"]
print(checks.lab13.shrinks(shrinks, {what: few < most for what, (most, few) in by_part.items()}))
print({what: round(most / few, 1) for what, (most, few) in by_part.items()})

# %% [markdown]
# Only one part's activations are there at a time. (Gradients even grow a little: while a new one is added to the old one, both are there.)
#
# ### Exercise: what does zero_grad free?
#
# `zero_grad()` sets every gradient to `None`. How many bytes a parameter does that free, with DDP as it is, and where gradients are views of DDP's buckets?

# %%
freed = {}
freed["DDP"] = 4  # solution
freed["gradient_as_bucket_view=True"] = 0  # solution


def before_and_after(wrap):
    """Return what is there after the first step, and when the second forward begins."""
    trace = memory_of(pair, wrap=wrap)
    stepped = at_end(trace, rank=0, phase="optimizer", iteration=0)
    samples = [one for one in trace.memory if one.rank == 0 and one.iteration == 1]
    return stepped["gradients"], samples[0]["gradients"]


zeroed = {"DDP": before_and_after(DDP), "gradient_as_bucket_view=True": before_and_after(view)}

# %% tags=["nbval-check-output"]
print(checks.lab13.freed(freed, {name: (a - b) / P for name, (a, b) in zeroed.items()}))
for name, (a, b) in zeroed.items():
    print(f"{name}: {a / P:.0f} bytes a parameter before zero_grad, {b / P:.0f} after")

# %% [markdown]
# Peak for peak the views still win: 16 bytes, not 20.
#
# ## What `nvidia-smi` shows
#
# Not your tensors. The process holds more: libraries and, on a GPU, the CUDA context; and what torch's allocator has **reserved** and not given out. The same is true of a rank here.


# %%
def process_and_tensors():
    keeps = torch.ones(4 * MIB)  # 16 MiB
    return psutil.Process().memory_info().rss, keeps.numel() * 4


seen = run(process_and_tensors, world_size=1)
rss, tensors = seen[0]

# %% tags=["nbval-check-output"]
print(f"tensors: {tensors // MIB} MiB; the process has over three times that: {rss > 3 * tensors}")

# %% [markdown]
# On a GPU, every sample of a trace has `allocated` and `reserved` as well, and `views.memory` tells both.
#
# ## Exercise: the batch that just fits
#
# You have 6 MiB, Adam, no checkpointing. What is the largest batch whose step fits? Where backward begins, there are the layers' inputs, the output, and some tensors of its size
# for the loss and its gradient. How many are they in all? `peaks["batch of 512"]` knows. (And which of the 16 bytes are *not* there at that moment?) 10 % too few are fine; one too
# many is out of memory.


# %% claims="M2"
def largest_batch(budget):
    # solution
    stays = 12 * P  # no gradients: zero_grad freed them, and backward has not made new ones
    row = 128 * 4
    tensors, layer = divmod(peaks["batch of 512"].total - stays, 512 * row)
    return (budget - stays - layer) // (tensors * row)  # layer: the first layer's gradients
    # end solution


def top(batch):
    return peak(memory_of(alone, batch=batch), rank=0, iteration=1).total


verdict = checks.lab13.fits(largest_batch, top, 6 * MIB)

# %% claims="M2" tags=["nbval-check-output"]
print(verdict)

# %% [markdown]
# ## Explore
#
# Change the model, the batch, the precision, the optimizer, the way to share. The bars are closed forms, for every stage; the curve is one step; *Run on real ranks* lays the
# measurement over it.


# %% id="explorer"
def on_real_ranks(plan):
    return run(partial(measured, plan), world_size=plan.world_size, memory=True)


memory_explorer(run=on_real_ranks)

# %% [markdown]
# ## Recap
#
# - **"A model of 4 bytes a parameter needs 4 bytes a parameter."** With Adam 16 stay, under DDP 20, or 16 with `gradient_as_bucket_view`.
# - **"Model size decides whether it fits."** Activations grow with the batch, and from some batch on they are most of it.
# - **"The peak is at the end of forward."** It is where backward begins, or in the optimizer's step.
# - Checkpointing pays with nearly a second forward, and has a best number of segments.
# - **"Mixed precision halves memory."** It halves activations, and pays with copies of the weights. What stays, stays.
# - Accumulation shrinks activations only. DDP shrinks nothing.
# - **"nvidia-smi shows my tensors."** It shows the process.
