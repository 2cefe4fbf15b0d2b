# ---
# jupyter:
#   lab:
#     title: Gradient averaging
#     minutes: 60
#     question: When is DDP equal to the big batch?
#     measures: the gradients of two and four ranks beside those of one process that has all the data
# ---

# %% id="imports"
from lablib import warm_up

warm_up()

from lablib import Cluster, checks, run, span, views

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_

from lablib.trace import Kind
from lablib.training.gradients import OPTIMIZERS, PADDING, WordCounter, line, net, regression
from lablib.training.gradients import apart, average, gradient_of, weights_of
from lablib.training.gradients import sentences, seven_samples

# the same ranks for the whole lab
pair, four = Cluster(2, backend="gloo"), Cluster(4, backend="gloo")

# %% [markdown]
# ## Seven samples on two ranks
#
# Data parallel: every rank has the whole model, and a part of the batch. Each makes the gradient of *its* part; DDP averages the
# gradients, so all ranks make the same step. The promise: it is the step of one process with the **global batch**, everybody's parts
# together.
#
# Check it. The model is y = weight · x + bias, both 0 at first, so a gradient is an arrow with two numbers. Of seven samples, rank 0
# has four and rank 1 has three. The mean squared error of the four has the gradient (7, 0), that of the three (−7, 7).
#
# **Predict** the gradient that both ranks hold after DDP's backward, and that of one process with all seven samples.

# %% claims="G4"
guess = {}
guess["DDP"] = [0, 3.5]  # solution
guess["one process"] = [1, 3]  # solution


def ddp_gradient(loss_of):
    """Return this rank's own gradient, and the one that it has under DDP."""
    x, y = (t.split([4, 3])[dist.get_rank()] for t in seven_samples())
    found = {}
    for name, model in (("own", line()), ("DDP", DDP(line()))):
        loss_of(model(x), y).backward()
        found[name] = gradient_of(model).tolist()
    return found


# %% claims="G4"
whole = line()
x, y = seven_samples()
mse_loss(whole(x), y).backward()
true = gradient_of(whole).tolist()

plain = pair.run(ddp_gradient, mse_loss)

# %% claims="G4" tags=["nbval-check-output"]
print(checks.lab04.two_gradients(guess, plain[0]["DDP"], true))
print("own gradients:", [[round(part, 4) for part in found["own"]] for found in plain])
for rank, found in enumerate(plain):
    print(f"rank {rank} under DDP:", [round(part, 4) for part in found["DDP"]])
print("one process:", [round(part, 4) for part in true])

# %% [markdown]
# DDP takes the **plain mean** of the ranks' gradients. It averages no losses, and knows nothing of samples: each of rank 0's four counts 1/8 in it, each
# of rank 1's three counts 1/6. It should be 1/7 for all. With equal parts the two are the same.
#
# ### Exercise: the weight
#
# By which number must a rank multiply its loss, so that DDP's mean is the gradient of the global batch? `n` samples are on this rank, `total`
# on all, and there are `ranks` ranks.


# %% claims="G4"
def weight(n, total, ranks):
    return ranks * n / total  # solution


right = checks.lab04.weight(weight)
if right:
    mended = pair.run(ddp_gradient, lambda out, y: mse_loss(out, y) * weight(len(y), 7, 2))

# %% claims="G4" tags=["nbval-check-output"]
print(right)
if right:
    off = max(abs(one - other) for one, other in zip(mended[0]["DDP"], true))
    print("weighted, DDP has the gradient of the big batch:", off < 1e-6)

# %% [markdown]
# The two own gradients are arrows, and every weighted mean of them ends on the line between their tips. The plain mean ends in the middle; the gradient of the
# global batch, nearer to the rank with more samples.

# %% claims="G4"
means = {"DDP's plain mean": plain[0]["DDP"]}
if right:
    means["DDP, weighted"] = mended[0]["DDP"]
views.gradients(
    [found["own"] for found in plain],
    true=true,
    means=means,
    labels=["4 samples", "3 samples"],
    axes=["gradient of the weight", "gradient of the bias"],
    badge=views.Badge.real(plain),
)

# %% [markdown]
# ## A sum for a loss
#
# Another script, made for one process, takes the **sum** of its samples' losses: `mse_loss(outputs, y, reduction="sum")`. On two ranks, with the loss as it is,
# **predict** which multiple of the one-process gradient DDP gives.
#
# ### Exercise: the whole sum
#
# Then repair it: `of_the_sum` takes this rank's sum and returns what to call `backward()` on. The check runs it on four ranks.

# %% claims="G4"
multiple = 1 / 2  # solution


def of_the_sum(loss):
    return loss * dist.get_world_size()  # solution


summing = partial(mse_loss, reduction="sum")
summed = pair.run(ddp_gradient, summing)
verdict = checks.lab04.of_the_sum(of_the_sum, four.run)

# %% claims="G4" tags=["nbval-check-output"]
print(checks.lab04.multiple(multiple, 2))
whole.zero_grad()
summing(whole(x), y).backward()
one_process = gradient_of(whole).tolist()
parts = zip(summed[0]["DDP"], one_process)
print("DDP / one process:", [round(one / other, 4) for one, other in parts])
print(verdict)

# %% [markdown]
# Sums need no weights for samples: only DDP's division by the number of ranks must be undone. (So "sum of this rank · ranks / samples of all" is another way to write the
# weighted mean.)
#
# ## Words, not sentences
#
# Language models see sentences of different lengths, padded to one length. Four ranks have one each, of 8, 5, 2 and 1 words. The loss is the mean over
# *words*, padding left out. One sentence on each rank, but not the same number of words: each rank's mean is over its own.
#
# ### Exercise: every word counts the same
#
# Return this rank's loss, so that DDP has the gradient of the mean over all words of all ranks. `losses` has one number for each place, 0 for padding; `is_word` is True for a
# word and False for padding. Only the ranks together know how many words there are.


# %% claims="G4"
def word_loss(losses, is_word):
    # solution
    words = is_word.sum()
    dist.all_reduce(words)
    return losses.sum() * dist.get_world_size() / words
    # end solution


verdict = checks.lab04.word_loss(word_loss, four.run)


def own_mean(losses, is_word):
    return losses.sum() / is_word.sum()


def read_sentence(loss_of):
    words, found = sentences()[dist.get_rank()], {}
    for name, model in (("own", WordCounter()), ("DDP", DDP(WordCounter()))):
        losses = cross_entropy(model(words), words, reduction="none")  # PADDING gives 0
        loss_of(losses, words != PADDING).backward()
        found[name] = gradient_of(model).tolist()
    return found


# %% claims="G4"
reader = WordCounter()
everything = torch.cat(sentences())
cross_entropy(reader(everything), everything).backward()
true_of_words = gradient_of(reader).tolist()

read = four.run(read_sentence, own_mean)
means = {"DDP's plain mean": read[0]["DDP"]}
if verdict:
    means["DDP, by words"] = four.run(read_sentence, word_loss)[0]["DDP"]

# %% claims="G4" tags=["nbval-check-output"]
print(verdict)
for name, mean in {**means, "one process": true_of_words}.items():
    print(f"{name}:", [round(part, 3) for part in mean])

# %% [markdown]
# This model knows only how frequent words are, so it has two parameters. The plain mean leads nearly the opposite way: rank 3's *one* word weighs as much as rank 0's eight.

# %% claims="G4"
views.gradients(
    [found["own"] for found in read],
    true=true_of_words,
    means=means,
    labels=["8 words", "5 words", "2 words", "1 word"],
    axes=["gradient of the first logit", "gradient of the second logit"],
    badge=views.Badge.real(read),
)

# %% [markdown]
# ## When do ranks talk?
#
# **Predict** in which of these there is at least one message between ranks: `"constructor"`, and forward and backward of iterations 0, 1 and 2, called
# `"forward 0"`, `"backward 0"` and so on. For a linear layer, and for the same with BatchNorm behind it.

# %% claims="G9 G15"
talk = {}
talk["Linear"] = ["constructor", "backward 0", "forward 1", "backward 1", "backward 2"]  # solution
talk["with BatchNorm"] = [*talk["Linear"], "forward 0", "forward 2"]  # solution


def linear():
    return nn.Linear(4, 4)


def normed():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def three_steps(make_model):
    with span("constructor"):
        ddp = DDP(make_model())
    for step in range(3):
        with span(f"forward {step}"):
            out = ddp(torch.randn(8, 4))
        with span(f"backward {step}"):
            out.sum().backward()


# %% claims="G9 G15"
def calls_in(trace, rank):
    """Return the names of the collectives that each region of a rank has."""
    calls = trace.only(Kind.COLLECTIVE, rank=rank)
    return {
        one.name: [call.name for call in calls if one.start_ns <= call.start_ns < one.end_ns]
        for one in trace.only(Kind.REGION, rank=rank)
    }


talked = {}
for name, make_model in (("Linear", linear), ("with BatchNorm", normed)):
    trace = pair.run(three_steps, make_model, record=True).trace
    talked[name] = [calls_in(trace, rank) for rank in range(2)]

# %% claims="G9 G15" tags=["nbval-check-output"]
print(checks.lab04.talk(talk, {name: ranks[0] for name, ranks in talked.items()}))
for name, ranks in talked.items():
    print(f"{name}: the same calls on both ranks: {ranks[0] == ranks[1]}")
    for region, calls in ranks[0].items():
        print(f"  {region:11}", ", ".join(calls) or "-")

# %% [markdown]
# - The **constructor** compares the models of all ranks, and makes them equal.
# - **Backward** has the gradients, in an `all_reduce` that all ranks make alike: no rank is a server for the others.
# - **Forward** is silent, but for two things: in iteration 1 DDP rebuilds its *buckets* (groups of gradients that travel together, see [lab 08](08_inside_the_reducer.ipynb)),
#   and with BatchNorm rank 0's *buffers* (its running mean and variance) go to everyone, each time.
#
# ## What is the same on all ranks?
#
# Each rank makes a layer with other random weights; its bias is frozen. The optimizer comes from an old job, so momentum is there already, and it differs
# from rank to rank. Then: DDP, thaw the bias, one backward on different data.
#
# **Predict** with True or False what is the same on both ranks.

# %% claims="G2 G3 G14 G20"
same = {}
same["weights before DDP"] = False  # solution
same["weights after DDP"] = True  # solution
same["momentum after DDP"] = False  # solution
same["gradient of the weight"] = True  # solution
same["gradient of the bias"] = False  # solution


def copies():
    rank, held = dist.get_rank(), {}
    torch.manual_seed(rank)
    layer = nn.Linear(2, 3)
    layer.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[layer.weight]["momentum_buffer"] = torch.full((3, 2), float(rank))
    held["weights before DDP"] = weights_of(layer)
    ddp = DDP(layer)
    held["weights after DDP"] = weights_of(layer)
    held["momentum after DDP"] = optimizer.state[layer.weight]["momentum_buffer"].clone()
    layer.bias.requires_grad_(True)
    ddp(torch.randn(4, 2)).square().sum().backward()
    held["gradient of the weight"] = layer.weight.grad.clone()
    held["gradient of the bias"] = layer.bias.grad.clone()
    return held


# %% claims="G2 G3 G14 G20 R12"
def with_device_ids():
    try:
        DDP(nn.Linear(2, 3), device_ids=[dist.get_rank()])
    except ValueError as error:
        return f"refused, {type(error).__name__}"
    return "taken"


def say_of_rank_0():
    share = torch.tensor([float(dist.get_rank() == 0)])
    dist.all_reduce(share)
    return share.item() / dist.get_world_size()


held = pair.run(copies)
is_same = {name: torch.equal(held[0][name], held[1][name]) for name in held[0]}
winners = held[0]["weights after DDP"]
source = [torch.equal(found["weights before DDP"], winners) for found in held].index(True)

# %% claims="G2 G3 G14 G20 R12" tags=["nbval-check-output"]
print(checks.lab04.copies(same, is_same))
for name, equal in is_same.items():
    print(f"the same on both ranks, {name}: {equal}")
print("whose weights they are after DDP: rank", source)
print("share of rank 0 in an average:", pair.run(say_of_rank_0)[0])
numbers = sum(parameter.numel() for parameter in nn.Linear(2, 3).parameters())
print(f"of {numbers} weights, ranks hold", [len(found["weights after DDP"]) for found in held])
print("device_ids=[rank] on a CPU:", pair.run(with_device_ids).values)

# %% [markdown]
# Every rank holds all weights: DDP cuts nothing. It synchronises weights when it is *built*, and gradients in each backward; the optimizer is yours. It also
# hooks into gradients when it is built: who thaws a layer later must build a new DDP, or each rank trains its own.
#
# Rank 0 is often called the main process. It is the **source**: of the first weights, and of BatchNorm's buffers. In an average it has no more say than any
# other rank.
#
# `device_ids=[local_rank]` is for models on a GPU.
#
# ## Bug hunt
#
# A published training script, in our words. The loss falls, nothing raises. In which line is the bug?
#
# ```
#  1  model = Net()
#  2  ddp_model = DistributedDataParallel(model)
#  3  optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.1)
#  4  for epoch in range(epochs):
#  5      sampler.set_epoch(epoch)
#  6      for features, labels in loader:
#  7          optimizer.zero_grad()
#  8          outputs = model(features)
#  9          loss = loss_fn(outputs, labels)
# 10          loss.backward()
# 11          optimizer.step()
# ```

# %% claims="G6 G11"
bug_line = 8  # solution


def published():
    model = net()
    ddp_model = DDP(model)
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.1)
    features, labels = (t.chunk(2)[dist.get_rank()] for t in regression(16))
    losses, weights = [], [weights_of(model)]
    for _ in range(20):
        optimizer.zero_grad()
        outputs = model(features)
        loss = mse_loss(outputs, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        weights.append(weights_of(model))
    return losses, weights


hunted = pair.run(published, record=True)
drift = [apart(*both) for both in zip(*(weights for _, weights in hunted))]
print("largest difference of the ranks' weights")
for step in (0, 1, 5, 10, 20):
    print(f"after {step:2} steps: {drift[step]:.3f}")

# %% claims="G6 G11" tags=["nbval-check-output"]
print(checks.lab04.bug_line(bug_line))
print("the loss falls on both ranks:", all(losses[-1] < losses[0] for losses, _ in hunted))
calls = [call.name for call in hunted.trace.only(Kind.COLLECTIVE, rank=0)]
print("all_reduce calls in 20 steps:", calls.count("all_reduce"))
print("same weights at first, and at last:", drift[0] == 0, drift[-1] == 0)

# %% [markdown]
# Two models drift apart, and one of them will be saved. Why does nobody notice? DDP's work begins in *its own* `forward`; the hooks on the gradients are
# there, and wait for that.
#
# ### Exercise: one step, synchronised
#
# Write one training step. And **predict** how many rows `ddp_model(features)` gives to the ranks 0 and 1, which bring 4 and 3 rows.


# %% claims="G11 G18 G19"
def train_step(model, ddp_model, optimizer, features, labels):
    # solution
    optimizer.zero_grad()
    loss = mse_loss(ddp_model(features), labels)
    loss.backward()
    optimizer.step()
    # end solution


rows = [4, 3]  # solution


class Watching(nn.Linear):
    def forward(self, x):
        self.came_from = x.device.type
        return super().forward(x.new_ones(x.shape, device=self.weight.device))


# %% claims="G11 G18 G19"
def in_and_out():
    ddp = DDP(Watching(1, 1))
    # "meta" is a device without numbers
    out = ddp(torch.empty(4 - dist.get_rank(), 1, device="meta"))
    return {"rows": len(out), "input on": ddp.module.came_from}


seen = pair.run(in_and_out)
verdict = checks.lab04.train_step(train_step, pair.run)

# %% claims="G11 G18 G19" tags=["nbval-check-output"]
print(verdict)
print(checks.lab04.rows(rows, [found["rows"] for found in seen]))
for rank, found in enumerate(seen):
    print(f"rank {rank}: {found}")

# %% [markdown]
# DDP gathers nothing: outputs stay where they are made, and only gradients travel. And it moves no inputs either, unless you gave it a GPU in `device_ids`:
# the layer saw them on the device where you left them.
#
# ## Average what?
#
# One could let each rank make its *own* step, and average the **parameters** afterwards. It is often said that this is not the same as averaging gradients, least of all with
# momentum or weight decay.
#
# `train` does either, by hand. **Predict** for which of the optimizers both ways end at the same weights, but for rounding, after five steps: `"SGD"`,
# `"momentum"`, `"Nesterov"`, `"weight decay"`, `"Adam"`, `"AdamW"`, `"Adagrad"`, `"RMSprop"`.

# %% claims="G7"
the_same = ["SGD", "momentum", "Nesterov", "weight decay"]  # solution


def train(model, make_optimizer, x, y, steps, averaged=None, max_norm=float("inf")):
    optimizer = make_optimizer(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        if averaged == "gradients":
            average(weight.grad for weight in model.parameters())
        clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        if averaged == "parameters":
            average(model.parameters())
    return weights_of(model)


# %% claims="G7"
def both_ways(max_norm):
    x, y = (t.chunk(2)[dist.get_rank()] for t in regression(16, dtype=torch.float64))
    found = {}
    for name, make in OPTIMIZERS.items():
        ends = [
            train(net(dtype=x.dtype), make, x, y, 5, averaged, max_norm)
            for averaged in ("gradients", "parameters")
        ]
        found[name] = apart(*ends)
    return found


both = pair.run(both_ways, float("inf"))
unclipped, clipped = both[0], pair.run(both_ways, 0.5)[0]

# %% claims="G7" tags=["nbval-check-output"]
print(checks.lab04.commute(the_same, unclipped))
for name, gap in unclipped.items():
    print(f"{name:12} the same: {gap < 1e-12!s:5}  clipped to 0.5: {clipped[name] < 1e-12}")

# %% claims="G7"
views.distances(
    {"as they are": unclipped, "gradients clipped to norm 0.5": clipped},
    title="Averaging parameters beside averaging gradients, after 5 steps",
    unit="largest difference of a weight",
    badge=views.Badge.real(both, "float64"),
)

# %% [markdown]
# What counts: is the step **linear** in the gradient? Momentum is a sum of gradients, weight decay adds a multiple of the weights: the mean of such steps is the step of
# the mean. Adam and its like divide by the root of squares, and clipping divides by a norm: nothing of the kind.
#
# So averaging parameters *each step* would do for SGD. It would send as many bytes, and could not overlap with backward.
#
# ### Clip before or after?
#
# One weight, two ranks; the gradients are 8 and −2, and they are clipped to 1. **Predict** the gradient when each rank clips its own and DDP
# averages then, and when DDP averages and the mean is clipped.

# %% claims="G7"
clip = {}
clip["clip, then average"] = 0  # solution
clip["average, then clip"] = 1  # solution


def clip_own(weight):
    clip_grad_norm_(weight, 1)


def clip_both_ways():
    found = {}
    for name in ("clip, then average", "average, then clip"):
        layer = nn.Linear(1, 1, bias=False)
        if name == "clip, then average":  # DDP comes after this hook
            layer.weight.register_post_accumulate_grad_hook(clip_own)
        ddp = DDP(layer)
        ddp(torch.tensor([[8.0, -2.0][dist.get_rank()]])).sum().backward()
        if name == "average, then clip":
            clip_own(layer.weight)
        found[name] = layer.weight.grad.item()
    return found


cut = pair.run(clip_both_ways)[0]

# %% claims="G7" tags=["nbval-check-output"]
print(checks.lab04.clip(clip, cut))
for name, value in cut.items():
    print(f"{name}: {abs(value):.2f}")

# %% [markdown]
# The big batch has the gradient 3, clipped 1. Clip after `backward()`, as in one process: then DDP has averaged, and every rank clips the same
# gradient by the same norm.
#
# ## Twenty steps
#
# Equal weights at first, equal gradients, equal optimizers: so equal weights for ever. Is it so in single precision, over twenty steps, and is it what *one process* does? Two
# ranks take 6 of 12 samples each.
#
# Besides, somebody forgets to divide the data: each rank takes all 12. **Predict** what comes of that: `"a"` the same weights as one process, `"b"` steps
# twice as large, `"c"` ranks that drift apart.

# %% claims="G8 G10"
forgot = "a"  # solution

SMALL_STEPS = {
    name: partial(OPTIMIZERS[name], lr=0.01) for name in ("SGD", "momentum", "Adam", "AdamW")
}


def twenty_steps(names, divide):
    x, y = (t.chunk(2)[dist.get_rank()] if divide else t for t in regression(12))
    return {name: train(DDP(net()), SMALL_STEPS[name], x, y, 20) for name in names}


def twenty_alone():
    return {name: train(net(), make, *regression(12), 20) for name, make in SMALL_STEPS.items()}


divided, undivided = (
    pair.run(twenty_steps, [*SMALL_STEPS], True),
    pair.run(twenty_steps, ["Adam"], False),
)
alone = run(twenty_alone, world_size=1, backend="gloo")[0]
for name in SMALL_STEPS:
    gap = apart(divided[0][name], alone[name])
    print(f"{name:9} largest difference from one process: {gap:.1e}")

# %% claims="G8 G10" tags=["nbval-check-output"]
print(checks.lab04.forgot(forgot))
for name in SMALL_STEPS:
    equal = torch.equal(divided[0][name], divided[1][name])
    near = all(apart(end[name], alone[name]) < 1e-6 for end in divided)
    print(f"{name:9} both ranks alike to the last digit: {equal}; as one process to 1e-6: {near}")
near = all(apart(end["Adam"], alone["Adam"]) < 1e-6 for end in undivided)
print(f"Adam, with all data on each rank: as one process to 1e-6: {near}")

# %% [markdown]
# The loop is that of one process: only the model is wrapped. But what stands *around* it is not: without a sampler that divides the data, two ranks do the same
# work twice. And some more changes, as the rest of this lab shows.
#
# ## Buffers are not gradients
#
# BatchNorm has weights, and **buffers**: running mean and variance, which no gradient changes. Each of two ranks has 8 samples of its own; **predict** with True or False what is
# the same.

# %% claims="G8"
normal = {}
normal["weights on both ranks, after a step"] = True  # solution
normal["running mean on both ranks, after a step"] = False  # solution
normal["running mean on both ranks, inside the next forward"] = True  # solution
normal["gradient of DDP and of the big batch"] = False  # solution


def with_batch_norm():
    x, y = (t.chunk(2)[dist.get_rank()] for t in regression(16))
    norm = nn.BatchNorm1d(4)
    ddp, held = DDP(nn.Sequential(norm, net())), {}
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    mse_loss(ddp(x), y).backward()
    held["gradient"] = gradient_of(ddp)
    optimizer.step()
    held["weights on both ranks, after a step"] = weights_of(ddp)
    held["running mean on both ranks, after a step"] = norm.running_mean.clone()
    norm.register_forward_pre_hook(lambda *_: held.update(inside=norm.running_mean.clone()))
    ddp(x)
    held["running mean on both ranks, inside the next forward"] = held.pop("inside")
    return held


# %% claims="G8"
big = nn.Sequential(nn.BatchNorm1d(4), net())
x, y = regression(16)
mse_loss(big(x), y).backward()

held = pair.run(with_batch_norm)
is_same = {name: torch.equal(held[0][name], held[1][name]) for name in list(normal)[:3]}
is_same["gradient of DDP and of the big batch"] = (
    apart(held[0]["gradient"], gradient_of(big)) < 1e-6
)

# %% claims="G8" tags=["nbval-check-output"]
print(checks.lab04.batch_norm(normal, is_same))
for name, equal in is_same.items():
    print(f"the same, {name}: {equal}")
inside = held[1]["running mean on both ranks, inside the next forward"]
print("rank 0's won:", torch.equal(inside, held[0]["running mean on both ranks, after a step"]))

# %% [markdown]
# Each rank normalises with the mean of *its* batch, so even the gradient is not that of the big batch. (On GPUs, `SyncBatchNorm` takes the mean over all ranks.) And what rank 0
# has seen is what stays in the buffers.
#
# ## More ranks
#
# 64 samples, a batch of 4 on each rank, SGD, one epoch. How far the weights get from their start, as a part of what one rank did, is their *way*. You go from one rank to four and leave everything else alone. **Predict**, for four ranks: the global batch, the number
# of steps in the epoch, and the factor by which one sample's gradient enters the weights, as a multiple of the learning rate.

# %% claims="G5"
more = {}
more["global batch"] = 16  # solution
more["steps"] = 4  # solution
more["one sample"] = 1 / 16  # solution


def epoch(lr):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ddp = DDP(net())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=lr)
    x, y = (t[rank::ranks] for t in regression(64))
    for features, labels in zip(x.split(4), y.split(4)):
        optimizer.zero_grad()
        mse_loss(ddp(features), labels).backward()
        optimizer.step()
    return len(x.split(4)), weights_of(ddp)


# %% claims="G5"
lr, start = 0.01, weights_of(net())
epochs = {
    1: run(epoch, lr, world_size=1, backend="gloo"),
    2: pair.run(epoch, lr),
    4: four.run(epoch, lr),
}
end_of_one = epochs[1][0][1]


def way(weights, begin=start):
    return (weights - begin).norm().item() / (end_of_one - start).norm().item()


# %% claims="G5" tags=["nbval-check-output"]
print(checks.lab04.more_ranks(more))
for ranks, found in epochs.items():
    steps, end = found[0]
    batch = 64 // steps
    print(f"ranks {ranks}: global batch {batch:2}, {steps:2} steps, {way(end):.2f} of the way")

# %% [markdown]
# The gradient is a *mean*: it does not grow with the batch, and there are fewer steps. So the **effective** learning rate falls: a sample counts half as much
# each time the number of ranks doubles.
#
# ### Exercise: get there with four ranks
#
# Choose a learning rate for four ranks, so that the epoch ends where one rank's ended: at most 5 % of its way off. `off(lr)` runs it.


# %% claims="G5"
def off(lr):
    return way(four.run(epoch, lr)[0][1], begin=end_of_one)


lr_of_four = 4 * lr  # solution

# %% claims="G5" tags=["nbval-check-output"]
print(checks.lab04.learning_rate(lr_of_four, lr, off))

# %% [markdown]
# One big step in place of four small ones: nearly the same, as long as the gradient hardly changes meanwhile. With larger rates it does, so people begin with a small one and
# raise it (*warm-up*). And it is a rule for SGD: Adam divides by the size of its gradients, which a larger batch makes
# less noisy and so smaller; its steps grow by themselves, and four times the rate goes too far.
#
# ## Counting what came out
#
# The last trap is not in the gradient. Rank 0 has 4 samples and gets 1 right, rank 1 has 3 and gets all 3 right. **Predict** the mean of the ranks' accuracies, by `all_reduce` and division by the
# number of ranks, and the accuracy over all samples.
#
# ### Exercise: accuracy over all
#
# Each rank calls `accuracy` with its own counts; all return the same number.

# %% claims="G12"
share = {}
share["mean of the ranks"] = 5 / 8  # solution
share["all samples"] = 4 / 7  # solution


def accuracy(correct, count):
    # solution
    both = torch.tensor([correct, count])
    dist.all_reduce(both)
    return both[0].item() / both[1].item()
    # end solution


verdict = checks.lab04.accuracy(accuracy, pair.run)


# %% claims="G12"
def mean_of_ranks():
    mean = torch.tensor([1 / 4, 3 / 3][dist.get_rank()])
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


# %% claims="G12" tags=["nbval-check-output"]
print(checks.lab04.two_accuracies(share))
print("mean of the ranks:", pair.run(mean_of_ranks).values)
print(verdict)

# %% [markdown]
# ## Recap
#
# - **"DDP averages losses."** It averages gradients, and knows nothing of samples or words: unequal parts need weights, ranks · n / total.
# - **"Sum or mean, it makes no difference."** With a sum, DDP's gradient is divided by the number of ranks.
# - **"Averaging parameters is something else."** For SGD, momentum and weight decay it is the same, each step; not for Adam and its like, and not with clipping.
# - **"DDP keeps the ranks together."** Only gradients of what `ddp(x)` computed, of parameters that needed them when DDP was built. Optimizer state and buffers are yours.
# - **"Twice the ranks, same learning rate."** Then each sample counts half.
# - **"The mean of means is the mean."** Add up sums and counts, divide once.
# - Clip after `backward()`. Call the wrapper, not the model.
# - And where parts are equal and losses are means: DDP *is* the big batch, step after step, but for rounding.
