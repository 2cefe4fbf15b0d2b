# ---
# jupyter:
#   lab:
#     title: DistributedSampler
#     minutes: 60
#     question: Which samples does rank r see, twice, never?
#     measures: the indices that every rank really loads, and the accuracy that the ranks count
# ---

# %% id="imports"
from lablib import warm_up

warm_up()

from lablib import Cluster, checks, expect, run, views

import time, warnings

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from lablib.sim.shards import Sharding, Shards
from lablib.training.sampling import load, shards
from lablib.widgets import sampler_explorer

cluster = Cluster(4, backend="gloo")  # the same four ranks for the whole lab

# %% [markdown]
# ## Who splits the data?
#
# Four ranks train one model on the eight letters A to H. Each rank is a process of its own, with its own `DataLoader`, in batches
# of two. `DistributedDataParallel` averages the gradients. Who sees to it that the ranks do not all read the same letters?
#
# **Predict** how many letters the four ranks load in one epoch, all ranks together: without a sampler, and with a
# `DistributedSampler`. And which letters does rank 0 load with one, if nothing is shuffled?

# %% claims="S1 S2"
guess = {}
guess["letters loaded without a sampler"] = 32  # solution
guess["letters loaded with a sampler"] = 8  # solution
guess["letters of rank 0"] = ["A", "E"]  # solution

LETTERS = list("ABCDEFGH")


def one_epoch(with_sampler):
    sampler = DistributedSampler(LETTERS, shuffle=False) if with_sampler else None
    return [
        letter for batch in DataLoader(LETTERS, batch_size=2, sampler=sampler) for letter in batch
    ]


without, dealt = cluster.run(one_epoch, False), cluster.run(one_epoch, True)

# %% claims="S1 S2" tags=["nbval-check-output"]
print(checks.lab05.first_look(guess))
for rank in range(4):
    print(
        f"rank {rank}: without a sampler {' '.join(without[rank])},"
        f" with one {' '.join(dealt[rank])}"
    )
for words, loaded in (("without", without), ("with", dealt)):
    print(f"{words}: {sum(map(len, loaded))} letters, {len(set(sum(loaded, [])))} different")

# %% [markdown]
# Without a sampler all four ranks do the same work, and averaging four equal gradients changes nothing: four processes, the result
# of one. `DistributedSampler` splits the data, **by dealing in turn**, like cards. Pictures often show blocks, A B | C D
# | E F | G H. That is not what it does.
#
# ## Twice, never
#
# Ten samples, four ranks, not shuffled. **Predict** the indices that each rank loads, in order. Then: with `drop_last=True` in the
# sampler, which samples does no rank see?

# %% claims="S3"
ten = [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]  # solution
lost = [8, 9]  # solution

# %% [markdown]
# `load` is what each rank does. Its samples are their own indices, so that we see which ones arrive. It is this, and a list:
#
# ```python
# sampler = DistributedSampler(data, shuffle=shuffle, seed=seed, drop_last=drop_last)
# loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
# for epoch in range(epochs):
#     sampler.set_epoch(epoch)
#     for batch in loader: ...
# ```
#
# `shards` asks the same sampler in *this* process, where no rank runs: a prediction. `Sharding` holds the settings.


# %% claims="S3"
def on_ranks(sharding):
    """Return who sees what on the four ranks, and the run."""
    ran = cluster.run(load, sharding)
    return Shards.of(ran.values, samples=sharding.samples), ran


def picture(sharding, **more):
    seen, ran = on_ranks(sharding)
    return views.shards(seen, predicted=shards(sharding), badge=views.Badge.real(ran), **more)


padded, _ = on_ranks(Sharding(10, 4, batch_size=2, shuffle=False))
dropped, _ = on_ranks(Sharding(10, 4, batch_size=2, shuffle=False, drop_last=True))

# %% claims="S3" tags=["nbval-check-output"]
print(checks.lab05.ten(ten))
print(checks.lab05.lost(lost))
for rank in range(4):
    own, fewer = (table.indices(epoch=0, rank=rank) for table in (padded, dropped))
    print(f"rank {rank}: {own}, with drop_last {fewer}")
for words, table in (("by default", padded), ("with drop_last", dropped)):
    print(f"{words}: seen twice, and by which ranks: {table.repeats(epoch=0)}", end=", ")
    print(f"never seen: {table.never(epoch=0)}")

# %% [markdown]
# Each rank must make equally many steps, or the others wait for ever in an `all_reduce`. So 10 samples are filled up to 12, from the front;
# or cut down to 8. "Each sample once" holds only where the number of samples is a multiple of the number of ranks.

# %% claims="S3"
picture(Sharding(10, 4, batch_size=2, shuffle=False))

# %% [markdown]
# ## Fewer samples than ranks
#
# A small validation set, a big cluster: 3 samples, 8 ranks, not shuffled. **Predict** how many ranks see sample 0. Then, with
# `drop_last=True`: how many steps does each rank make in an epoch, and what does torch say to that: `"a"` it raises an
# error, `"b"` it warns, `"c"` nothing?

# %% claims="S10"
few = {}
few["ranks that see sample 0"] = 3  # solution
few["steps of a rank with drop_last"] = 0  # solution
few["torch says"] = "c"  # solution


def train_on_three(drop_last):
    data, steps = torch.randn(3, 1), 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        sampler = DistributedSampler(data, shuffle=False, drop_last=drop_last)
        for batch in DataLoader(data, sampler=sampler):
            steps += 1
    return list(sampler), steps, len(told)


kept = run(train_on_three, False, world_size=8, backend="gloo")
cut = run(train_on_three, True, world_size=8, backend="gloo")

# %% claims="S10" tags=["nbval-check-output"]
print(checks.lab05.few(few))
print("indices:", [indices for indices, *_ in kept])
print(
    "steps with drop_last:",
    [steps for _, steps, _ in cut],
    "warnings:",
    sum(told for *_, told in cut),
)

# %% [markdown]
# The epoch ends at once, on every rank, and the log looks fine. Check `len(loader)` before you train.
#
# ## Turn the knobs
#
# The same table with knobs, up to 5,000 samples. *Run on real ranks* loads with real `DataLoader`s and marks whatever is not as
# predicted. Some things to try:
#
# - 12 samples on 4 ranks: what is repeated now? And 13?
# - 1 sample on 8 ranks, and then `drop_last of the sampler`.
# - `drop_last of the loader` drops something else. What?
# - shuffled, and `set_epoch` not called: compare the epochs.

# %% claims="S3"
sampler_explorer(predict=shards, run=run, job=load)

# %% [markdown]
# ## Which, and how
#
# Two objects share the work. **The sampler says which** samples, in which order. **The DataLoader says how**: in batches of what
# size, by how many workers, into what memory. `batch_size` is the batch of *one rank*.
#
# 50,000 samples, 8 ranks, `DataLoader(data, batch_size=32, sampler=DistributedSampler(data))` on each. **Predict**:

# %% claims="S6"
lengths = {}
lengths["samples of a rank"] = 6250  # solution
lengths["len(loader)"] = 196  # solution
lengths["samples in a step"] = 256  # solution
lengths["len(loader) with drop_last in the loader"] = 195  # solution

# %% [markdown]
# And one more: what does `DataLoader(data, sampler=sampler, shuffle=True)` do? `"a"` it shuffles what the sampler gave the rank,
# `"b"` it refuses, `"c"` it ignores `shuffle`.

# %% claims="S6"
twice = "b"  # solution

data = range(50_000)
samplers = [DistributedSampler(data, num_replicas=8, rank=rank) for rank in range(8)]
loaders = [DataLoader(data, batch_size=32, sampler=sampler) for sampler in samplers]

with expect(ValueError) as refused:
    DataLoader(data, sampler=samplers[0], shuffle=True)

# %% claims="S6" tags=["nbval-check-output"]
print(checks.lab05.lengths(lengths))
print("samples of each rank:", [len(sampler) for sampler in samplers])
print("len(loader):", [len(loader) for loader in loaders])
firsts = [next(iter(loader)) for loader in loaders]
different = len(set(torch.cat(firsts).tolist()))
print("samples in a step:", sum(map(len, firsts)), "- different ones:", different)
full = DataLoader(data, batch_size=32, sampler=samplers[0], drop_last=True)
print("drop_last in the loader:", len(full))
print(checks.lab05.shuffled_twice(twice))
print(refused.summary)

# %% [markdown]
# With 8 ranks a step sees 8 times `batch_size` samples, and an epoch has an eighth of the steps: learning rate and schedules notice. Shuffling is
# the sampler's business: `DistributedSampler(shuffle=True)` (which is its default), `shuffle=False` in the loader.
#
# Both have a `drop_last`. The sampler's makes the ranks equally long, the loader's drops a last batch that is not full.
#
# ## Whose order?
#
# Twelve samples, four ranks, shuffled, three epochs. The order is drawn from `seed + epoch`, and the sampler knows the epoch only if you
# call `sampler.set_epoch(epoch)` before each. **Predict** how many *different* orders the three epochs have, without the call and with it; and
# how many samples two ranks see in the same epoch.

# %% claims="S4"
orders = {}
orders["different orders without set_epoch"] = 1  # solution
orders["different orders with set_epoch"] = 3  # solution
orders["samples that two ranks see"] = 0  # solution

forgotten, _ = on_ranks(Sharding(12, 4, batch_size=3, epochs=3, set_epoch=False))
called, _ = on_ranks(Sharding(12, 4, batch_size=3, epochs=3))

# %% claims="S4" tags=["nbval-check-output"]
print(checks.lab05.epochs(orders))
for words, table in (("without set_epoch", forgotten), ("with set_epoch", called)):
    print(f"{words}: {len(set(table.batches))} different epochs; rank 0 loads", end=" ")
    print(*[table.indices(epoch=epoch, rank=0) for epoch in range(3)])
    print("   seen by two ranks:", [len(table.again(epoch=epoch)) for epoch in range(3)])

# %% [markdown]
# Without `set_epoch` even the *batches* are the same each time. No error, no warning: only a worse model. With it, all ranks still deal
# the same order, because all have the same seed and are told the same epoch: nothing is sent.

# %% claims="S4"
picture(Sharding(12, 4, batch_size=3, epochs=3, set_epoch=False))

# %% [markdown]
# ## Seeds that differ
#
# "Each rank needs its own seed" is good advice for dropout and augmentation. Someone gives it to the sampler:
# `DistributedSampler(data, seed=rank)`. 1,000 samples, four ranks. **Predict** the share of samples, 0 to 1, that no rank sees in the
# epoch.

# %% claims="S10"
never = 0.32  # solution

own_seeds, _ = on_ranks(Sharding(1000, 4, batch_size=10, seed=(0, 1, 2, 3)))
one_seed, _ = on_ranks(Sharding(1000, 4, batch_size=10, seed=0))

# %% claims="S10" tags=["nbval-check-output"]
print(checks.lab05.never_seen(never, len(own_seeds.never(epoch=0)) / 1000))
for words, table in (("one seed", one_seed), ("seed = rank", own_seeds)):
    repeats = table.repeats(epoch=0)
    print(f"{words}: {len(table.never(epoch=0))} of 1000 never seen", end=", ")
    by_all = sum(len(ranks) == 4 for ranks in repeats.values())
    print(f"{len(repeats)} more than once, {by_all} by all four ranks")

# %% [markdown]
# Each rank takes its quarter of *another* order. One rank misses a sample with probability ¾, all four with (¾)⁴ = 0.316. With many ranks it
# tends to 1/e: more than a third of the data is lost in each epoch.

# %% claims="S10"
picture(Sharding(1000, 4, batch_size=10, seed=(0, 1, 2, 3)))

# %% [markdown]
# ## Data without a seed
#
# A script that is often copied draws its data in each process: `data = torch.randn(8, 1)`, and gives it to a
# `DistributedSampler`. **Predict** what is split: `"a"` one data set of 8 samples, `"b"` four data sets, each rank loads a quarter of its own,
# `"c"` nothing: the sampler notices.

# %%
split = "b"  # solution


def from_nowhere():
    data = torch.randn(8, 1)
    sampler = DistributedSampler(data, shuffle=False)
    return list(sampler), data.flatten().tolist()


drawn = cluster.run(from_nowhere)
for rank, (mine, data) in enumerate(drawn):
    print(f"rank {rank} loads {mine}, and its sample 3 is {data[3]:+.3f}")

# %% tags=["nbval-check-output"]
print(checks.lab05.own_data(split))
print("indices that are loaded:", sorted(sum((mine for mine, _ in drawn), [])))
print("data sets that are the same:", len({tuple(data) for _, data in drawn}) == 1)
numbers = {number for _, data in drawn for number in data}
print("different numbers in all data sets together:", len(numbers))

# %% [markdown]
# The indices are split perfectly. But an index means something only if every rank has the same sample there. With files on a shared disk,
# listed in the same order, it does; with numbers drawn at random, or a `glob` in no order, it may not.
#
# ### Exercise: the same data everywhere
#
# Make a data set of so many random samples, the same on every rank.


# %%
def make_data(samples):
    # solution
    return torch.randn(samples, 1, generator=torch.Generator().manual_seed(0))
    # end solution


verdict = checks.lab05.same_data(make_data, cluster.run)

# %% tags=["nbval-check-output"]
print(verdict)

# %% [markdown]
# ## Workers and pinned memory
#
# `num_workers=2, pin_memory=True` "for speed". First: does `num_workers` change what a rank loads? **Predict**: `"a"` the same samples in the
# same order, `"b"` the same samples, in the order in which workers finish, `"c"` each worker loads half of them.
#
# Then the seconds. Two ranks load 16 samples each; a sample takes no time, or (emulated) 50 ms.

# %% claims="S5 S9"
changes = "a"  # solution


class Slow(Dataset):
    """Samples that are (index, when we began to fetch it, when we had it)."""

    def __init__(self, ms):
        self.ms = ms

    def __len__(self):
        return 32

    def __getitem__(self, index):
        begun = time.perf_counter()
        time.sleep(self.ms / 1000)
        return index, begun, time.perf_counter()


def fetch(ms, workers):
    data = Slow(ms)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=workers)
    begun = time.perf_counter()
    batches = [torch.stack(batch) for batch in loader]
    return torch.cat(batches, dim=1).tolist(), time.perf_counter() - begun


# %% claims="S5 S9"
fetched = {}
with Cluster(2, backend="gloo") as pair:
    for ms in (0, 50):
        for workers in (0, 2):
            fetched[ms, workers] = pair.run(fetch, ms, workers)
            seconds = max(seconds for _, seconds in fetched[ms, workers])
            print(f"{ms:2} ms a sample, {workers} workers on each of 2 ranks: {seconds:.2f} s")


def pinned():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        batch = next(iter(DataLoader(torch.arange(8), batch_size=4, pin_memory=True)))
    return batch.is_pinned(), [str(one.message) for one in told]


pinning = cluster.run(pinned)
print("pinned:", pinning[0][0], *pinning[0][1])


# %% claims="S5 S9" tags=["nbval-check-output"]
def most_at_once(begun, had):
    return max(sum(b <= moment < h for b, h in zip(begun, had)) for moment in begun)


print(checks.lab05.workers(changes))
orders = [[indices for (indices, *_), _ in ranks] for ranks in fetched.values()]
print("each rank loads the same in the same order:", all(order == orders[0] for order in orders))
for workers in (0, 2):
    most = [most_at_once(*times) for (_, *times), _ in fetched[50, workers]]
    print(f"{workers} workers: a rank fetches at most so many samples at once: {most}")
found, wanted = {is_pinned for is_pinned, _ in pinning}, {torch.cuda.is_available()}
print("pinned just where there is a GPU:", found == wanted)

# %% [markdown]
# The sampler stays in the rank's own process and says which; workers only fetch. They pay where a sample takes long, and cost where it does not:
# they must be started, *for each rank*: 8 ranks with 4 workers are 32 more processes. Pinned memory makes copies to a GPU faster, and
# lets them overlap if you write `.to(device, non_blocking=True)`. Without a GPU torch warns and pins nothing.
#
# ## Accuracy, counted twice
#
# Validation on all ranks: four ranks evaluate the ten samples, not shuffled, and add up right answers and counts by `all_reduce`.
# The model is wrong on samples 0 and 1. **Predict** the accuracy that they count, and the exact one.

# %% claims="S7"
accuracy = {}
accuracy["as counted"] = 8 / 12  # solution
accuracy["exact"] = 8 / 10  # solution

RIGHT = torch.tensor([False, False] + [True] * 8)


def evaluate():
    mine = list(DistributedSampler(RIGHT, shuffle=False))
    total = torch.tensor([RIGHT[mine].sum(), len(mine)])
    dist.all_reduce(total)
    return total.tolist()


evaluated = cluster.run(evaluate)

# %% claims="S7" tags=["nbval-check-output"]
print(checks.lab05.counted(accuracy))
right, counted = evaluated[0]
print(
    f"as counted: {right} of {counted} = {right / counted:.3f}, exact: {RIGHT.float().mean():.3f}"
)

# %% claims="S7"
picture(Sharding(10, 4, batch_size=2, shuffle=False), right=RIGHT.tolist())

# %% [markdown]
# The sums are right, the samples are not: 0 and 1 are asked twice. The error is at most (ranks − 1) / samples, so it is small in large sets and
# large where you least expect it: on few samples, many ranks. And the same model gets another accuracy on another number of
# ranks.
#
# ### Exercise: exact evaluation
#
# Return the accuracy on all `samples`, the same on every rank, each sample counted once. `is_right(indices)` evaluates those samples and
# gives a tensor of booleans. Your ranks need not have equally many, and one may have none: nothing here averages gradients.


# %% claims="S7"
def exact_accuracy(is_right, samples):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    # solution
    mine = range(rank, samples, world_size)  # dealt in turn, without filling up
    total = torch.tensor([is_right(mine).sum(), len(mine)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()
    # end solution


verdict = checks.lab05.exact_accuracy(exact_accuracy, cluster.run)

# %% claims="S7" tags=["nbval-check-output"]
print(verdict)
if verdict:
    found = cluster.run(exact_accuracy, lambda indices: RIGHT[list(indices)], 10)
    print("on ten samples, each rank says", [f"{accuracy:.3f}" for accuracy in found])

# %% [markdown]
# ## The crash in the middle
#
# A job dies in epoch 1, after 2 steps. You load the checkpoint and go on. A new sampler begins the epoch anew: what was seen is seen again.
# To resume exactly, each rank leaves out what it has seen: no sample twice, none lost.
#
# ### Exercise: resume
#
# Return the list of indices that this rank still has to load in this epoch, in order. `sampler` is new and knows its rank; before the
# crash the rank made `steps` steps with `batch_size` samples each.


# %% claims="S4"
def resume(sampler, epoch, steps, batch_size):
    # solution
    sampler.set_epoch(epoch)
    return list(sampler)[steps * batch_size :]
    # end solution


verdict = checks.lab05.resume(resume)


def crash_and_resume(go_on):
    data, batch_size, steps = range(40), 2, 2
    before = DistributedSampler(data)
    before.set_epoch(1)
    loader = DataLoader(data, batch_size=batch_size, sampler=before)
    seen = [batch.tolist() for batch, _ in zip(loader, range(steps))]  # then it dies
    rest = go_on(DistributedSampler(data), 1, steps, batch_size)
    return [
        seen + [batch.tolist() for batch in DataLoader(data, batch_size=batch_size, sampler=rest)]
    ]


# %% claims="S4" tags=["nbval-check-output"]
print(verdict)
if verdict:
    begun_anew = cluster.run(crash_and_resume, lambda sampler, *_: list(sampler))
    resumed = cluster.run(crash_and_resume, resume)
    for words, ran in (("a new epoch", begun_anew), ("resumed", resumed)):
        table = Shards.of(ran.values, samples=40)
        again, lost = len(table.again(epoch=0)), len(table.never(epoch=0))
        print(f"{words}: {again} of 40 seen again, {lost} never")

# %% [markdown]
# On another number of ranks it works too, if you go back to the one order that all ranks deal: four ranks have used up its first
# `steps × batch_size × 4` samples, and any number of ranks can deal out the rest. Here three do.

# %% claims="S4" tags=["nbval-check-output"]
whole = DistributedSampler(range(40), num_replicas=1, rank=0)
whole.set_epoch(1)
order = list(whole)
seen, rest = order[: 2 * 2 * 4], order[2 * 2 * 4 :]
dealt_anew = [rest[rank::3] for rank in range(3)]
print("samples of each of three ranks:", [len(mine) for mine in dealt_anew])
print("all once:", sorted(seen + sum(dealt_anew, [])) == list(range(40)))

# %% [markdown]
# ## Recap
#
# - **"DDP splits the data."** No: without a sampler every rank does the same work.
# - **"Rank 0 gets the first block."** No: samples are dealt in turn.
# - **"Each sample once."** Only if ranks divide samples; else some are seen twice, or with `drop_last` never. With fewer samples than
#   ranks and `drop_last`, nobody sees anything, and nobody says so.
# - **"shuffle=True is enough."** Without `set_epoch` every epoch is the same. In the loader it is refused beside a sampler.
# - **"Each rank needs its own seed."** Not the sampler: a third of the data is lost. Nor may each rank draw its own data.
# - **"Evaluating on all ranks needs no care."** Repeats are counted twice. Deal without filling up, add sums and counts.
# - `batch_size` is per rank, and so are `len(loader)` and `num_workers`.
# - The sampler says which, the loader says how: workers change seconds, and never samples.
