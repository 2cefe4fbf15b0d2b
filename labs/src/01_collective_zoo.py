# ---
# jupyter:
#   lab:
#     title: Collective zoo
#     minutes: 60
#     question: Which rank holds what after each call?
#     measures: the tensors of four ranks around every call, and who waits for whom
# ---

# %% id="imports"
from lablib import warm_up

warm_up(training=False)

from lablib import Cluster, RunTimeout, checks, expect, run, sim, views

import tempfile, threading, time
from pathlib import Path

import torch
import torch.distributed as dist

from lablib.training.collectives import measure
from lablib.views.tiles import tiles
from lablib.widgets import collectives_explorer

folder = tempfile.TemporaryDirectory()  # for files that ranks share; it goes when the notebook does


def new_folder():
    return Path(tempfile.mkdtemp(dir=folder.name))


# the same ranks for the whole lab
cluster, pair = Cluster(4, backend="gloo"), Cluster(2, backend="gloo")

# %% [markdown]
# ## One number a rank
#
# A **collective** is a call that every rank makes, so that numbers travel between them. (`gloo` carries them here, between
# CPUs: so everybody sees the same. On GPUs, NCCL has the same calls.)
#
# - `broadcast`: one rank gives its tensor to all, as with a model's first weights;
# - `all_reduce`: the tensors of all ranks are combined, and every rank gets the result, as with gradients.
#
# Both write into the tensor that you pass. Rank r brings r + 1, so the four bring 1, 2, 3, 4.
#
# **Predict** what the ranks 0 to 3 hold after a broadcast from rank 2, and after each `all_reduce`: four numbers each.

# %% claims="C1 C2"
held = {}
held["broadcast"] = [3, 3, 3, 3]  # solution
held["all_reduce SUM"] = [10, 10, 10, 10]  # solution
held["all_reduce MAX"] = [4, 4, 4, 4]  # solution
held["all_reduce AVG"] = [2.5, 2.5, 2.5, 2.5]  # solution


def one_number():
    found = {}
    for name in ("broadcast", "SUM", "MAX", "AVG"):
        t = torch.tensor([dist.get_rank() + 1.0])
        if name == "broadcast":
            dist.broadcast(t, src=2)
        else:
            dist.all_reduce(t, op=getattr(dist.ReduceOp, name))
        found[name] = t.item()
    return found


ones = cluster.run(one_number)

# %% claims="C1 C2" tags=["nbval-check-output"]
print(checks.lab01.one_number(held))
for name in ones[0]:
    print(f"{name:9}", [found[name] for found in ones])

# %% [markdown]
# See how the numbers travel. `sim` predicts who holds what, step by step, by a textbook algorithm; four ranks make the same
# call; the figure writes *their* numbers into the last column and marks any difference.


# %% claims="C2"
def picture(call, inputs, step=None):
    predicted = sim.place(call, inputs)
    ran = cluster.run(measure, call, inputs)
    found = sim.compare(predicted, ran.values)
    return tiles(predicted, step=step, measured=found, badge=views.Badge.real(ran))


picture(sim.Collective("all_reduce", 4), [[rank + 1.0] * 4 for rank in range(4)])

# %% [markdown]
# ## Four parts a rank
#
# Now each rank brings a tensor of four parts: rank r brings 10r, 10r + 1, 10r + 2, 10r + 3. The first digit tells the rank, the
# second the part.
#
# | call | does |
# |---|---|
# | `scatter(out, parts, src=1)` | rank 1 deals out its parts |
# | `gather(t, outs, dst=3)` | rank 3 gets a list with a tensor of every rank: here each rank's *part 0* |
# | `all_gather(outs, t)` | every rank gets that list |
# | `reduce_scatter(out, parts)` | parts are added up across ranks, and each rank keeps one |
# | `all_to_all(outs, parts)` | everyone deals out to everyone |
#
# **Predict.** For `scatter` and `reduce_scatter`: what the ranks 0 to 3 get, four numbers. For the others, one list: for `gather` that of
# rank 3, for `all_gather` that of rank 0, for `all_to_all` that of rank 1.

# %% claims="C4 C5 C6 C7 C14"
parts = {}
parts["scatter"] = [10, 11, 12, 13]  # solution
parts["gather"] = [0, 10, 20, 30]  # solution
parts["all_gather"] = [0, 10, 20, 30]  # solution
parts["reduce_scatter"] = [60, 64, 68, 72]  # solution
parts["all_to_all"] = [1, 11, 21, 31]  # solution


# %% claims="C4 C5 C6 C7 C14"
def four_parts():
    rank = dist.get_rank()
    mine = list((torch.arange(4.0) + 10 * rank).split(1))
    one = [torch.zeros(1) for _ in range(2)]
    lists = [[torch.zeros(1) for _ in range(4)] for _ in range(3)]
    dist.scatter(one[0], mine if rank == 1 else None, src=1)
    dist.gather(mine[0], lists[0] if rank == 3 else None, dst=3)
    dist.all_gather(lists[1], mine[0])
    dist.reduce_scatter(one[1], mine)
    dist.all_to_all(lists[2], mine)
    names = ("scatter", "reduce_scatter", "gather", "all_gather", "all_to_all")
    return dict(zip(names, [t.item() for t in one] + [[t.item() for t in ts] for ts in lists]))


fours = cluster.run(four_parts)

# %% claims="C4 C5 C6 C7 C14" tags=["nbval-check-output"]
print(checks.lab01.four_parts(parts))
for name in ("scatter", "reduce_scatter"):
    print(f"{name:15}", [found[name] for found in fours])
for name, rank in (("gather", 3), ("all_gather", 0), ("all_to_all", 1)):
    print(f"{name:15} rank {rank}:", fours[rank][name])
same = all(found["all_gather"] == fours[0]["all_gather"] for found in fours)
print("all_gather is the same on all ranks:", same)

# %% [markdown]
# `all_to_all` exchanges rows and columns: part *i* of rank *j* becomes part *j* of rank *i*.

# %% claims="C14"
digits = [[10.0 * rank + part for part in range(4)] for rank in range(4)]
picture(sim.Collective("all_to_all", 4), digits)

# %% [markdown]
# ## Every call
#
# Here is the same figure with knobs: the prediction answers at once, and the button makes the call on real ranks and lays *their*
# tensors over it. Some things to try:
#
# - `broadcast` from rank 3 among 8 ranks, step by step: who passes on to whom, and who sends most bytes?
# - `all_reduce` with 2, 4 and 8 ranks and 16 elements: how do the bytes that each rank sends grow?
# - the SUM of `uint8`, and then the same of `float16`, with other values.

# %% claims="C14"
collectives_explorer(run=run, job=measure)

# %% [markdown]
# ## reduce: who may read what?
#
# `reduce(t, dst=3)` combines as `all_reduce` does, for rank 3 only. Rank r brings eight times r + 1.
# **Predict.** The tensors of the ranks 0 to 2 afterwards: `"a"` are untouched, `"b"` hold the sum too, `"c"` are zero, `"d"` may hold
# something that is neither.

# %% claims="C3"
others = "d"  # solution


def reduce_to_3():
    t = torch.full((8,), dist.get_rank() + 1.0)
    dist.reduce(t, dst=3)
    return t.tolist()


reduced = cluster.run(reduce_to_3)
for rank, t in enumerate(reduced):
    print(f"rank {rank} brought {rank + 1} eight times, holds {t}")

# %% claims="C3" tags=["nbval-check-output"]
print(checks.lab01.leftovers(others))
print("rank 3 holds the sum everywhere:", reduced[3] == [10.0] * 8)
for rank in range(3):
    changed, same = set(reduced[rank]) != {rank + 1}, len(set(reduced[rank])) == 1
    print(f"rank {rank}: some numbers changed: {changed}, the same in all places: {same}")

# %% [markdown]
# The other ranks carried parts of the sum in their own tensors, different ones in different places. Which, is up to the
# backend: do not read them. The figure says so with hatched tiles.

# %% claims="C3"
picture(sim.Collective("reduce", 4, root=3), [[rank + 1.0] * 8 for rank in range(4)])

# %% [markdown]
# ### Exercise: all_reduce in two steps
#
# `all_reduce` = `reduce_scatter` + `all_gather`. Write it, for a tensor that divides by four. `list(t.chunk(4))` gives
# the parts, `torch.cat` joins a list of tensors.


# %% claims="C7"
def all_reduce_in_two(t):
    # solution
    part = torch.empty(len(t) // 4)
    dist.reduce_scatter(part, list(t.chunk(4)))
    everyones = [torch.empty_like(part) for _ in range(4)]
    dist.all_gather(everyones, part)
    return torch.cat(everyones)
    # end solution


in_two = checks.lab01.two_steps(all_reduce_in_two, cluster.run)


def both_ways(t):
    once = t.clone()
    dist.all_reduce(once)
    return once, all_reduce_in_two(t)


def whole_numbers():
    return both_ways(torch.arange(1000.0) * (dist.get_rank() + 1))


def any_numbers():
    return both_ways(torch.randn(1000, generator=torch.Generator().manual_seed(dist.get_rank())))


# %% claims="C7" tags=["nbval-check-output"]
print(in_two)
if in_two:
    whole, anyhow = cluster.run(whole_numbers), cluster.run(any_numbers)
    print("whole numbers, both ways exactly equal:", all(torch.equal(*both) for both in whole))
    close = all(torch.allclose(*both, atol=1e-5) for both in anyhow)
    print("any numbers, equal but for rounding:", close)
    same = all(torch.equal(one, other) for found in anyhow for one, other in zip(found, anyhow[0]))
    print("each way, the same on every rank to the last digit:", same)

# %% [markdown]
# Sums of small whole numbers are not rounded, so both ways agree exactly. With any floats the last digit can differ: another order
# of additions. (On every rank the *same* digit, and that matters more: copies of a model must not drift apart.)
#
# ## Which reduction, which dtype?
#
# `ReduceOp` has SUM, AVG, PRODUCT, MIN, MAX, and the bitwise BAND, BOR, BXOR. **Predict** which of the dtypes `int32`, `uint8`, `float32`,
# `bfloat16` can be averaged, and which can be combined bit by bit. Then ask this host.

# %% claims="C12"
takes = {}
takes["AVG"] = ["float32", "bfloat16"]  # solution
takes["BAND"] = ["int32", "uint8"]  # solution

# %% claims="C12"
OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
DTYPES = ["int32", "int64", "uint8", "bool", "float16", "bfloat16", "float32", "complex64"]


def try_all():
    works = set()
    for op in OPS:
        for dtype in DTYPES:
            try:
                t = torch.ones(1, dtype=getattr(torch, dtype))
                dist.all_reduce(t, op=getattr(dist.ReduceOp, op))
                works.add((op, dtype))
            except (RuntimeError, ValueError):
                pass
    return works


def sum_of_200s():
    t = torch.tensor([200], dtype=torch.uint8)
    dist.all_reduce(t)
    return t.item()


# %% claims="C12"
tried = cluster.run(try_all)
works = tried[0]
print(views.Badge.real(tried).text)
print(" " * 8, *(f"{dtype:>9}" for dtype in DTYPES))
for op in OPS:
    print(f"{op:8}", *(f"{'yes' if (op, dtype) in works else '-':>9}" for dtype in DTYPES))

# %% claims="C12" tags=["nbval-check-output"]
print(checks.lab01.dtypes(takes))
asked = ("int32", "uint8", "float32", "bfloat16")
for op in ("SUM", "AVG", "BAND"):
    print(f"{op:5}", [dtype for dtype in asked if (op, dtype) in works])
print("four times 200 in uint8:", cluster.run(sum_of_200s)[0])

# %% [markdown]
# That is **gloo's** table: ask each backend anew. NCCL, for one, has no bitwise operations. And a sum keeps its dtype: 800 does not fit
# into a `uint8`, and what is left is 800 − 3 · 256.
#
# ## The call overwrites its tensor
#
# You want to log the mean loss of all ranks. Rank r has the loss 2, 4, 6 or 8.


# %% claims="C17"
def log_carelessly():
    weight = torch.tensor(2.0, requires_grad=True)
    loss = weight * (dist.get_rank() + 1)
    before = loss.item()
    dist.all_reduce(loss.detach())  # detach() gives another tensor on the *same* memory
    return before, loss.item()


careless = cluster.run(log_carelessly)

# %% [markdown]
# ### Exercise: log the mean
#
# Return the mean over all ranks, and leave the loss alone: it is still needed for `backward()`.


# %% claims="C17"
def logged_mean(loss):
    # solution
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
    # end solution


verdict = checks.lab01.logged_mean(logged_mean, cluster.run)

# %% claims="C17" tags=["nbval-check-output"]
print("loss before and after:", careless.values)
print(verdict)

# %% [markdown]
# ## What "blocking" means
#
# A collective blocks until it is done. Until *what* is done? Rank 3 comes late: it stays away until somebody has returned
# from the call without it, and gives up waiting after a while.
#
# **Predict.** Which of these calls can *no* rank leave before rank 3 has come: `broadcast` from rank 0, `scatter` from 0, `gather`
# to 0, `all_reduce`, `all_gather`, `barrier`?

# %% claims="C9 C13"
keep_everyone = ["all_reduce", "all_gather", "barrier"]  # solution

# %% claims="C9 C13"
ZOO = {
    "broadcast": lambda t, ts, root: dist.broadcast(t, src=0),
    "scatter": lambda t, ts, root: dist.scatter(t, ts if root else None, src=0),
    "gather": lambda t, ts, root: dist.gather(t, ts if root else None, dst=0),
    "all_reduce": lambda t, ts, root: dist.all_reduce(t),
    "all_gather": lambda t, ts, root: dist.all_gather(ts, t),
    "barrier": lambda t, ts, root: dist.barrier(),
}


def one_is_late(name, notes):
    rank, back = dist.get_rank(), []
    dist.barrier()  # the others make their call from here on
    if rank == 3:
        end = time.monotonic() + 0.3
        while time.monotonic() < end and not back:
            time.sleep(0.02)
            back = sorted(int(note.name) for note in notes.iterdir())
    ZOO[name](torch.ones(1), [torch.ones(1) for _ in range(4)], rank == 0)
    (notes / str(rank)).touch()
    return back


# %% claims="C9 C13"
back = {name: cluster.run(one_is_late, name, new_folder())[3] for name in ZOO}
for name, ranks in back.items():
    print(f"{name:11} back before rank 3 came:", ranks or "nobody")

# %% claims="C9 C13" tags=["nbval-check-output"]
print(checks.lab01.need_everyone(keep_everyone))
for name, ranks in back.items():
    print(f"{name:11} somebody left before the late rank came: {bool(ranks)}")

# %% [markdown]
# A blocking call ends when **this rank's part** is done. Only where everyone needs everyone does a return tell you that all have come.
# Who leaves early in the others depends on the algorithm. `reduce` promises nothing either, and on GPUs a call returns even
# sooner: as soon as it stands in the queue of the GPU.
#
# ### Does a barrier order what you print?
#
# Rank 0 prints a line, then comes a `barrier`, then rank 1 prints. Both write to one log file. **Predict** the first line of the
# file: `"a"` rank 0's, since it printed before the barrier, `"b"` rank 1's, `"c"` either, by chance.

# %% claims="C13"
first_line = "b"  # solution


def two_lines(path):
    with open(path, "a") as log:  # buffered, as print is wherever it does not go to a screen
        if dist.get_rank() == 0:
            print("rank 0 prints before the barrier", file=log)
        dist.barrier()
        if dist.get_rank() == 1:
            print("rank 1 prints after the barrier", file=log, flush=True)
        dist.barrier()


log = new_folder() / "log.txt"
wrote = cluster.run(two_lines, log)

# %% claims="C13" tags=["nbval-check-output"]
print(checks.lab01.log_order(first_line))
print(log.read_text(), end="")

# %% [markdown]
# The barrier kept its promise: rank 1 went on after rank 0 had come. But rank 0's line was still in rank 0's buffer.
#
# ## Two ranks alone
#
# `send` and `recv` are for two ranks. Here both send first, then both receive. It is often said that small messages pass, because
# they are buffered. **Predict** the smallest size in bytes at which the two stand still: 4, 4096 or 4194304?

# %% claims="C8"
stalls = 4  # solution


def both_send():
    mine, theirs, other = torch.ones(1), torch.zeros(1), 1 - dist.get_rank()
    dist.send(mine, dst=other)
    dist.recv(theirs, src=other)
    return theirs.item()


with expect(RunTimeout) as stuck:
    pair.run(both_send, timeout=0.5)

# %% claims="C8" tags=["nbval-check-output"]
print(checks.lab01.stalls_from(stalls))
came_back = [bool(value) for value in stuck.error.run.values]
print("came back from both_send:", came_back, "bytes:", torch.ones(1).nbytes)

# %% [markdown]
# gloo's `send` returns when the other rank receives, at every size. Other backends buffer some messages, and a program that
# relies on it hangs elsewhere.
#
# ### Exercise: exchange
#
# Each rank has a partner: 0 and 1, 2 and 3. Return the partner's tensor. `isend` starts to send and returns a handle at once;
# `handle.wait()` waits until it is done.


# %% claims="C8 C10"
def exchange(mine, partner):
    theirs = torch.zeros_like(mine)
    # solution
    handle = dist.isend(mine, dst=partner)
    dist.recv(theirs, src=partner)
    handle.wait()
    # end solution
    return theirs


verdict = checks.lab01.exchange(exchange, cluster.run)

# %% claims="C8 C10" tags=["nbval-check-output"]
print(verdict)

# %% [markdown]
# ## async is not finished
#
# Collectives have it too: `all_reduce(t, async_op=True)` returns a handle. Rank 0 brings 1, rank 1 brings 2, and rank 1 comes later:
# only after rank 0 has read its tensor. **Predict** what rank 0 reads before `wait()`, and after it.

# %% claims="C10"
reads = [1, 3]  # solution


def read_early(start, note):
    rank = dist.get_rank()
    t = torch.tensor([rank + 1.0])
    while rank == 1 and not note.exists():
        time.sleep(0.005)
    handle = start(t)
    early, done = t.item(), handle.is_completed()
    if rank == 0:
        note.touch()
    handle.wait()
    return {"before wait()": early, "completed": done, "after wait()": t.item()}


# %% claims="C10"
def receive(t):
    return dist.irecv(t, src=1) if dist.get_rank() == 0 else dist.isend(t, dst=0)


summed = pair.run(read_early, lambda t: dist.all_reduce(t, async_op=True), new_folder() / "note")
received = pair.run(read_early, receive, new_folder() / "note")

# %% claims="C10" tags=["nbval-check-output"]
print(checks.lab01.read_early(reads))
print("all_reduce:", summed[0])
print("irecv:     ", received[0])

# %% [markdown]
# ### Exercise: the early read
#
# This function starts an `all_reduce`, does other work `meanwhile`, and returns the mean. It is wrong, sometimes: when
# the others are quick, nobody notices. Repair it, and keep the other work in the time of the call.
#
# ```python
# def mean_and_work(t, meanwhile):
#     handle = dist.all_reduce(t, async_op=True)
#     mean = t / dist.get_world_size()
#     result = meanwhile()
#     handle.wait()
#     return mean, result
# ```


# %% claims="C10"
def mean_and_work(t, meanwhile):
    # solution
    handle = dist.all_reduce(t, async_op=True)
    result = meanwhile()
    handle.wait()
    return t / dist.get_world_size(), result
    # end solution


verdict = checks.lab01.waited_mean(mean_and_work, cluster.run)

# %% claims="C10 C15" tags=["nbval-check-output"]
print(verdict)
for name in ("send", "recv", "all_reduce", "broadcast", "barrier"):
    print(f"{name:10} as i{name}: {hasattr(dist, 'i' + name)}")

# %% [markdown]
# Only `isend` and `irecv` have the `i` in their names; collectives take `async_op=True`.
#
# ## What overlap can hide
#
# Work meanwhile hides the time of the call. Real numbers of this machine would mostly show its noise, so this is **emulated**: the
# work sleeps, and the link is a thread that sleeps, then makes the call.

# %% claims="C11"
SECONDS = 0.2  # of work, and of the link


def emulated_all_reduce(t):
    def travel():
        time.sleep(SECONDS)
        dist.all_reduce(t)

    handle = threading.Thread(target=travel)
    handle.start()
    return handle


# %% claims="C11"
def step(overlapped):
    dist.barrier()
    t, begun = torch.ones(1), time.perf_counter()
    handle = emulated_all_reduce(t)
    if not overlapped:
        handle.join()
    time.sleep(SECONDS)  # the work
    handle.join()
    return time.perf_counter() - begun, t.item()


in_a_row, overlapped = pair.run(step, False), pair.run(step, True)
print(views.Badge("emulated", 2, backend="gloo").text)
print(f"in a row {in_a_row[0][0]:.2f} s, overlapped {overlapped[0][0]:.2f} s")

# %% claims="C11" tags=["nbval-check-output"]
print("sums:", [total for _, total in in_a_row], [total for _, total in overlapped])
print("overlapped is faster:", overlapped[0][0] < in_a_row[0][0])

# %% [markdown]
# ### Exercise: where does overlap pay most?
#
# "On fast links", it is said. Let the work take 1, and the link 0.1, 1 or 10 times that. How many times faster is
# "overlapped" than "in a row", at best? (Two digits after the point are enough: 1.23.)

# %% claims="C16"
speedup = {}
speedup[0.1] = 1.1  # solution
speedup[1] = 2.0  # solution
speedup[10] = 1.1  # solution

# %% claims="C16" tags=["nbval-check-output"]
print(checks.lab01.speedups(speedup))
print(views.Badge("simulated", 2, note="a formula").text)
print("link / work   in a row   overlapped   hidden   times faster")
for link in (0.01, 0.1, 0.5, 1, 2, 10, 100):
    in_row, both = 1 + link, max(1, link)
    hidden, faster = in_row - both, in_row / both
    print(f"{link:11}   {in_row:8.2f}   {both:10.2f}   {hidden:6.2f}   {faster:12.2f}")

# %% [markdown]
# At most the *shorter* of the two can be hidden. A fast link leaves little to hide, a slow one cannot be covered: overlap pays most
# where both take the same time, and never more than twofold.
#
# ## Groups
#
# Every call takes `group=`. The ranks 0 and 1 make a group, and add up. The ranks 2 and 3 make another, and broadcast from
# rank 3. `src` and `dst` are ranks of the whole job, in a group too. **Predict** what the ranks 0 to 3 hold; rank r brings r + 1.

# %% claims="C14"
in_halves = [3, 3, 4, 4]  # solution


def halves():
    t = torch.tensor([dist.get_rank() + 1.0])
    low, high = dist.new_group([0, 1]), dist.new_group([2, 3])  # every rank makes every group
    if dist.get_rank() < 2:
        dist.all_reduce(t, group=low)
    else:
        dist.broadcast(t, src=3, group=high)
    return t.item()


grouped = run(halves, world_size=4, backend="gloo")

# %% claims="C14" tags=["nbval-check-output"]
print(checks.lab01.in_groups(in_halves))
print("measured:", grouped.values)

# %% [markdown]
# ### Exercise: round the ring
#
# Each rank sends to the next and receives from the one before, all at once: `batch_isend_irecv` takes a list of operations and
# starts them together. Here is one round:
#
# ```python
# sends = dist.P2POp(dist.isend, out, after)
# receives = dist.P2POp(dist.irecv, incoming, before)
# for handle in dist.batch_isend_irecv([sends, receives]):
#     handle.wait()
# ```
#
# Pass tensors round until every rank has seen all, and add them up. How few rounds do four ranks need?


# %% claims="C14"
def ring_sum(t):
    rank, n = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % n, (rank - 1) % n
    # solution
    total, out = t.clone(), t.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(t)
        sends = dist.P2POp(dist.isend, out, after)
        receives = dist.P2POp(dist.irecv, incoming, before)
        for handle in dist.batch_isend_irecv([sends, receives]):
            handle.wait()
        total += incoming
        out = incoming
    return total
    # end solution


verdict = checks.lab01.ring_sum(ring_sum, cluster.run)

# %% claims="C14" tags=["nbval-check-output"]
print(verdict)

# %% [markdown]
# With n ranks, each sent n − 1 whole tensors. A better ring cuts the tensor in n parts and sends 2(n − 1) of *those*: look at the
# bytes that go out in the first figure.
#
# ### Exercise: one after the other
#
# Four ranks are to speak in rank order: call `say()` once on each. Use `send` and `recv` only: no barrier, no sleep.


# %% claims="C8 C13"
def in_turn(say):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    token = torch.zeros(1)
    # solution
    if rank > 0:
        dist.recv(token, src=rank - 1)
    say()
    if rank < last:
        dist.send(token, dst=rank + 1)
    # end solution


verdict = checks.lab01.in_turn(in_turn, cluster.run)

# %% claims="C8 C13" tags=["nbval-check-output"]
print(verdict)

# %% [markdown]
# ## Recap
#
# - **"reduce leaves the inputs untouched on other ranks."** No: partial results may be left there. Read `dst` only.
# - **"A blocking call returns when all ranks are there."** On the CPU only `all_reduce`, `all_gather`, `barrier` and their like;
#   the others return when this rank's part is done. (On a GPU a call returns when it stands in the queue.)
# - **"A barrier flushes prints."** No: it orders calls, not buffers.
# - **"async means finished."** No: before `wait()` you read your old number.
# - **"Small messages do not deadlock."** On gloo four bytes do. Let somebody receive first, or send with `isend`.
# - **"Overlap pays most on fast links."** It hides the shorter of work and link: at most a factor of 2, where they are equal.
# - Lists are in rank order, and the rank that gives or gets is in them too.
# - Collectives write into your tensor: clone before you log.
# - `all_reduce` is `reduce_scatter`, then `all_gather`. On gloo AVG wants floats, bitwise operations integers.
