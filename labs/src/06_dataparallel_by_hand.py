# ---
# jupyter:
#   lab:
#     title: DataParallel against DDP
#     minutes: 50
#     question: Why processes?
#     measures: what threads and processes compute at once, and every byte that a step moves
# ---

# %% id="imports"
from lablib import warm_up

warm_up()

from lablib import Cluster, checks, views

import threading, time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP

from lablib.parallel.threads import ThreadedDataParallel
from lablib.trace import Kind, Span, Trace

pair = Cluster(2, backend="gloo")  # the same two ranks for the whole lab
torch.set_num_threads(1)  # as in each rank: one thread for one replica

# %% [markdown]
# ## One process, many devices
#
# Before DDP there was `nn.DataParallel`: **one** process, with a thread for each device. You wrap the model, and change nothing else. In every step it does this:
#
# ```
#  1  def forward(self, batch):
#  2      parts = [copy_to(device, part) for device, part in zip(devices, batch.chunk(n))]
#  3      replicas = [copy_to(device, self.module) for device in devices]
#  4      with ThreadPoolExecutor(n) as threads:
#  5          outputs = list(threads.map(apply, replicas, parts))
#  6      return torch.cat([copy_to(devices[0], output) for output in outputs])
#  7
#  8  for x, y in loader:
#  9      optimizer.zero_grad()
# 10      out = data_parallel(x)
# 11      loss = loss_fn(out, y)
# 12      hits += (out.argmax(1) == y).sum()
# 13      log(loss.item())
# 14      loss.backward()
# 15      optimizer.step()
# ```
#
# ### Exercise: read it
#
# In which line does it happen?

# %% claims="G1"
where = {}
where["parameters are sent anew"] = 3  # solution
where["outputs come to one device"] = 6  # solution
where["one device computes the loss of the whole batch"] = 11  # solution
where["gradients come back and are added up"] = 14  # solution
where["one device updates the parameters"] = 15  # solution

# %% claims="G1" tags=["nbval-check-output"]
print(checks.lab06.lines(where))

# %% [markdown]
# Replica 0 is special: it holds the model, gets all outputs, computes the loss alone, and steps alone. The others forget everything after a step, and get the parameters
# anew in the next.
#
# ## On this CPU
#
# `lablib.parallel.ThreadedDataParallel` is the listing above with two replicas, made for CPUs: a copy to "another device" is a copy in memory, and it is counted.
#
# You give each wrapper a batch of 8 rows. **Predict** how many rows the model's forward sees: a list, with an entry for each call.

# %% claims="G1"
rows = {}
rows["nn.DataParallel"] = [8]  # solution
rows["ThreadedDataParallel"] = [4, 4]  # solution
rows["DDP, rank 0"] = [8]  # solution

# %% id="rows" claims="G1"
CALLS = []  # rows and thread of each forward


class Noting(nn.Linear):
    def forward(self, x):
        CALLS.append((len(x), threading.get_ident()))
        time.sleep(0.05)  # so that both threads are there at once
        return super().forward(x)


def note(wrap):
    CALLS.clear()
    wrap(Noting(4, 4))(torch.randn(8, 4))
    return list(CALLS)


by_hand = note(ThreadedDataParallel)
torchs = note(nn.DataParallel)
by_wrapper = {
    "nn.DataParallel": [count for count, _ in torchs],
    "ThreadedDataParallel": [count for count, _ in by_hand],
    "DDP, rank 0": [count for count, _ in pair.run(note, DDP)[0]],
}

# %% claims="G1" tags=["nbval-check-output"]
print(checks.lab06.rows_seen(rows, by_wrapper))
print(by_wrapper)
print("devices of nn.DataParallel:", nn.DataParallel(nn.Linear(4, 4)).device_ids)
print("threads by hand:", len({thread for _, thread in by_hand}), "in one process")

# %% [markdown]
# Without a GPU, `nn.DataParallel` has no devices: it calls the model, and that is all. (So a test on a CPU tests nothing of it.) And DDP cuts nothing: its ranks bring their own rows.
#
# ## Two threads, one GIL
#
# A Python process has one **global interpreter lock**: a thread must hold it to run Python. torch lets go of it while it computes. Half of a batch takes some time alone. Now two
# halves at once, on two free cores. **Predict** how many times as long both take together.

# %% claims="G1"
at_once = {}
at_once["Python loop, two threads"] = 2  # solution
at_once["matrix products, two threads"] = 1  # solution
at_once["Python loop, two processes"] = 1  # solution

# %% id="gil" claims="G1"
SLICES = []  # thread, start and end of each row


class Rows(nn.Module):
    """Work on each row in turn, and note when."""

    def __init__(self, python):
        super().__init__()
        self.python, self.weight = python, nn.Parameter(torch.randn(160, 160))

    def forward(self, x):
        for _ in x:
            begin = time.perf_counter_ns()
            if self.python:
                sum(i * i for i in range(10_000))
            else:
                self.weight @ self.weight @ self.weight
            SLICES.append((threading.get_ident(), begin, time.perf_counter_ns()))
        return x * self.weight[0, 0]


HALF = 60


def timed(model, batch, before=lambda: None):
    """Return seconds, seconds of CPU, and the slices of the best of three calls."""
    found = []
    for _ in range(3):
        SLICES.clear()
        before()
        begin = time.perf_counter(), time.process_time()
        with torch.no_grad():
            model(batch)
        passed = time.perf_counter() - begin[0], time.process_time() - begin[1]
        found.append((*passed, list(SLICES)))
    return min(found, key=lambda one: one[0])


def in_a_process(python):
    torch.set_num_threads(1)
    return timed(Rows(python), torch.randn(HALF, 1), before=dist.barrier)


results = {}
for name, python in (("Python loop", True), ("matrix products", False)):
    alone = timed(Rows(python), torch.randn(HALF, 1))
    threads = timed(ThreadedDataParallel(Rows(python)), torch.randn(2 * HALF, 1))
    processes = pair.run(in_a_process, python).values
    results[name] = {"alone": alone, "threads": threads, "processes": processes}
    both = max(one[0] for one in processes)
    told = f"two threads {threads[0] / alone[0]:.1f}, two processes {both / alone[0]:.1f}"
    print(f"{name:15} half alone {1e3 * alone[0]:3.0f} ms; times as long: {told}")

# %% claims="G1" tags=["nbval-check-output"]
print(checks.lab06.loops(at_once))
seconds, on_cpu, _ = results["Python loop"]["threads"]
print("two threads in a Python loop use more than one core:", on_cpu > 1.3 * seconds)

# %% [markdown]
# The times are real, so they depend on what else runs here. But whatever runs: two threads in a Python loop never use more than one core. Each row in turn, the Python loop in two threads:


# %% claims="G1"
def lanes(slices_of_ranks, note):
    """Draw slices; threads of a rank have a lane each."""
    spans = []
    for rank, slices in enumerate(slices_of_ranks):
        names = {
            thread: f"thread {k}" for k, thread in enumerate(dict.fromkeys(s[0] for s in slices))
        }
        for thread, begin, end in slices:
            lane = names[thread] if len(names) > 1 else ""
            spans.append(Span(rank, "row", Kind.COMPUTE, begin, end, lane=lane))
    ranks = len(slices_of_ranks)
    trace = Trace.of_spans(spans, world_size=ranks)
    badge = views.Badge("real", ranks, note=note)
    return views.timeline(trace, badge=badge, title="A Python loop over rows")


lanes([results["Python loop"]["threads"][2]], "one process, two threads")

# %% [markdown]
# A thread runs for 5 ms, then hands the lock over: a row is long where its thread waits in the middle of it. And in two processes:

# %% claims="G1"
lanes([slices for _, _, slices in results["Python loop"]["processes"]], "two processes")

# %% [markdown]
# Whatever a model does in Python (loops, indexing, hooks, the calls of its many small layers) is done in turn by all replicas. Processes have an interpreter each.
#
# ## What a step moves
#
# Now bytes. Four replicas, or four ranks; a model of some size. **Predict** for the *second* step, in multiples of the model: how much is sent to or comes from *other* replicas
# under DataParallel, and what *one rank* brings to DDP's calls.

# %% claims="G1"
times = {}
times["DataParallel, parameters"] = 3  # solution
times["DataParallel, gradients"] = 3  # solution
times["DDP, parameters"] = 0  # solution
times["DDP, gradients"] = 1  # solution

# %% id="bytes" claims="G1"
four = Cluster(4, backend="gloo")
WIDTH, BATCH = 512, 512


def layers():
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)])


SIZE = sum(one.nbytes for one in layers().parameters())


def by_threads(replicas):
    """Return what crosses between replicas in one step, by kind."""
    model = ThreadedDataParallel(layers(), replicas=replicas)
    for _ in range(2):
        model.moved_nbytes.clear()
        model(torch.randn(BATCH, WIDTH)).square().mean().backward()
    return dict(model.moved_nbytes)


def ddp_steps():
    ddp = DDP(layers())
    for _ in range(3):
        ddp(torch.randn(BATCH // dist.get_world_size(), WIDTH)).square().mean().backward()


def by_ddp(cluster):
    """Return what rank 0 brings to the calls of a step, by kind."""
    calls = cluster.run(ddp_steps, record=True).trace.only(Kind.COLLECTIVE, rank=0, iteration=2)
    nbytes = {
        op: sum(call.nbytes for call in calls.only(name=op)) for op in ("broadcast", "all_reduce")
    }
    return {"parameters": nbytes["broadcast"], "gradients": nbytes["all_reduce"]}


threads_move = {n: by_threads(n) for n in (2, 4)}
ddp_brings = {2: by_ddp(pair), 4: by_ddp(four)}

# %% claims="G1" tags=["nbval-check-output"]
in_models = {
    f"{name}, {kind}": found[4][kind] / SIZE
    for name, found in (("DataParallel", threads_move), ("DDP", ddp_brings))
    for kind in ("parameters", "gradients")
}
print(checks.lab06.multiples(times, in_models))
print("the model:", SIZE, "bytes")
print("in multiples of it:", in_models)
print("DataParallel, all kinds:", threads_move[4])

# %% [markdown]
# ### Exercise: in and out of the busiest device
#
# All of DataParallel's bytes go in or out of replica 0. DDP's `all_reduce` goes round in a ring: of a tensor, each rank sends 2 (n − 1) / n to its neighbour, and gets as much from the other one.
#
# Return two numbers: the bytes of parameters and gradients, in and out together, of replica 0, and of one rank of DDP.


# %% claims="G1"
def busiest(n, size):
    return 2 * (n - 1) * size, 4 * (n - 1) / n * size  # solution


right = checks.lab06.busiest(busiest)

# %% claims="G1" tags=["nbval-check-output"]
print(right)
if right:
    for n in (2, 4, 8, 64):
        one, other = busiest(n, 1)
        print(f"{n:2} devices: replica 0 {one:5.1f} models, a rank of DDP {other:.2f}")
    print(
        "as measured:",
        busiest(4, SIZE)[0] == sum(threads_move[4][k] for k in ("parameters", "gradients")),
    )

# %% [markdown]
# With **two** devices it is the same: one model out, one in. With more, replica 0's share grows with their number, and a rank's stays below four models. (On GPUs, NCCL passes
# parameters on from device to device; but outputs and gradients still meet on one.)
#
# And *when*? DataParallel's parameters travel before forward, when there is nothing to hide them behind. DDP's gradients travel during backward.

# %% claims="G1"
bars = {}
for n in (2, 4):
    first = {kind: threads_move[n][kind] for kind in ("parameters", "gradients")}
    bars[f"{n} replicas: replica 0"] = first | threads_move[n]
    payload = ddp_brings[n]["gradients"]
    bars[f"{n} ranks of DDP: each"] = {"gradients": payload * 4 * (n - 1) / n}
views.moved(
    bars,
    title="In and out of the busiest device",
    badge=views.Badge("real", 4, "cpu", "gloo", "as measured; DDP's by a ring"),
)

# %% [markdown]
# ## Who holds what
#
# A batch of 32 on four devices, with Adam. **Predict** the rows of outputs on a device when the loss is computed, and the optimizer's state in multiples of the model.

# %% claims="G1"
holds = {}
holds["rows of outputs, replica 0"] = 32  # solution
holds["rows of outputs, a rank of DDP"] = 8  # solution
holds["optimizer state, replica 0"] = 2  # solution
holds["optimizer state, another replica"] = 0  # solution
holds["optimizer state, a rank of DDP"] = 2  # solution


# %% id="holds" claims="G1"
def step_of(model, rows):
    """Return rows of outputs, and bytes of optimizer state of the module and of anything else."""
    own, optimizer = set(model.module.parameters()), torch.optim.Adam(model.parameters())
    out = model(torch.randn(rows, WIDTH))
    out.square().mean().backward()
    optimizer.step()
    nbytes = {True: 0, False: 0}
    for parameter, state in optimizer.state.items():
        nbytes[parameter in own] += state["exp_avg"].nbytes + state["exp_avg_sq"].nbytes
    return len(out), nbytes[True], nbytes[False]


def ddp_step():
    return step_of(DDP(layers()), 32 // dist.get_world_size())


on_0, state_on_0, state_elsewhere = step_of(ThreadedDataParallel(layers(), replicas=4), 32)
of_ddp, state_of_ddp, _ = four.run(ddp_step)[0]
found = {
    "rows of outputs, replica 0": on_0,
    "rows of outputs, a rank of DDP": of_ddp,
    "optimizer state, replica 0": state_on_0 / SIZE,
    "optimizer state, another replica": state_elsewhere / SIZE,
    "optimizer state, a rank of DDP": state_of_ddp / SIZE,
}

# %% claims="G1" tags=["nbval-check-output"]
print(checks.lab06.held(holds, found))
for name, value in found.items():
    print(f"{name:33} {value:g}")

# %% [markdown]
# Replica 0 is full first. It alone holds gradients and optimizer state, and all outputs: for a language model, those are rows × words × the size of the vocabulary. Its memory
# limits the batch of *all* devices. Under DDP all ranks hold the same. None of it is divided.
#
# ## The same numbers?
#
# "DataParallel is DDP for one machine", it is said. Seven rows, in parts of four and three; the loss is a mean. **Predict** with True or False whose gradient is that of one process.

# %% claims="G1"
equal = {}
equal["DataParallel"] = True  # solution
equal["DDP"] = False  # solution


# %% id="uneven" claims="G1"
def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(7, 4, generator=generator), torch.randn(7, 1, generator=generator)


def gradient(wrap, rows):
    torch.manual_seed(0)
    layer = nn.Linear(4, 1)
    x, y = (t[rows] for t in data())
    mse_loss(wrap(layer)(x), y).backward()
    return layer.weight.grad


def of_rank():
    return gradient(DDP, [slice(0, 4), slice(4, 7)][dist.get_rank()])


true = gradient(lambda layer: layer, slice(None))
gradients = {
    "DataParallel": gradient(ThreadedDataParallel, slice(None)),
    "DDP": pair.run(of_rank)[0],
}
is_true = {name: torch.allclose(one, true, atol=1e-6) for name, one in gradients.items()}

# %% claims="G1" tags=["nbval-check-output"]
print(checks.lab06.uneven(equal, is_true))
print("the gradient of one process:", is_true)

# %% [markdown]
# DataParallel gathers outputs and takes *one* loss over all rows; DDP has a loss on each rank, and takes the plain mean of the gradients (lab 04). A script that moves from
# one to the other must look at its loss, its batch size (of all devices there, of one rank here), and its data: nobody divides it any more.
#
# ## Recap
#
# - **"DataParallel is DDP for one machine."** One process with threads; each step sends the parameters anew, gathers outputs, and one device computes the loss and steps.
# - Python in the model is run by one thread at a time: the GIL. Processes have one each.
# - In and out of replica 0: 2 (n − 1) models a step. Of a rank of DDP: 4 (n − 1) / n, and during backward.
# - With two devices the bytes are the same. What DDP gains there is time in Python, overlap, and equal memory.
# - Replica 0's memory limits the batch of all.
# - On a CPU `nn.DataParallel` only calls the model.
#
# `lablib/parallel/threads.py` is the whole of it. Next you [build DDP](07_build_ddp.ipynb).
