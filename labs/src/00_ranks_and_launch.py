# ---
# jupyter:
#   lab:
#     title: Ranks and launch
#     minutes: 45
#     question: Who am I, and who told me?
#     measures: rank, environment, process and groups of every process under three launchers
# ---

# %% id="imports"
import os

os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"  # much fails on purpose here: hide stacks of C++

from lablib import warm_up

warm_up(training=False)

from lablib import RankFailed, RunError, UsageError, checks, device, expect, run, spawn, views

import importlib, inspect, pickle, re, socket, sys, tempfile, time
from datetime import timedelta
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

folder = tempfile.TemporaryDirectory()  # for scripts; it goes when the notebook does
here = Path(folder.name)

# %% [markdown]
# ## One function, three launchers
#
# A **rank** is one process of a job, and its number in the job: 0, 1, … `world_size` − 1. Every rank runs the *same*
# function. They differ only in what they are told about themselves.
#
# `hello` adds up one number from each rank: rank 0 brings 1, rank 1 brings 2, and so on. `who` looks at what the process
# was told, and by whom it was started.

# %%
NAMES = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"]
NAMES += ["MASTER_ADDR", "MASTER_PORT"]


def hello():
    mine = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(mine)
    return f"rank {dist.get_rank()} of {dist.get_world_size()} holds {mine.item()}"


def who():
    told = {name: os.environ[name] for name in NAMES}
    return told | {"PID": str(os.getpid()), "PARENT": str(os.getppid())}


# %% [markdown]
# Before ranks can talk, **every one** of them must call `init_process_group`. (`"gloo"` carries their messages; it works on
# every CPU.) There are two usual ways:
#
# - `by_torchrun` names nothing: rank, world size and meeting place come from the **environment** (`env://`);
# - `by_spawn` gets rank and world size as arguments, and a `tcp://` address where all meet.


# %% claims="R3 R4"
def by_torchrun():
    dist.init_process_group("gloo")
    try:
        told = " ".join(f"{name}={value}" for name, value in who().items())
        print(f"{told} | {hello()}\n", end="")  # one write, so that lines of two ranks never mix
    finally:
        dist.destroy_process_group()


def by_spawn(rank, world_size, port, answers):
    meet = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world_size)
    try:
        answers.put(hello())
    finally:
        dist.destroy_process_group()


# %% [markdown]
# These functions go into a file `job.py`, letter for letter, for the launchers that come with torch.

# %%
head = f"import os\nimport torch\nimport torch.distributed as dist\n\nNAMES = {NAMES}\n"
functions = [inspect.getsource(function) for function in (hello, who, by_torchrun, by_spawn)]
start = 'if __name__ == "__main__":\n    by_torchrun()\n'
(here / "job.py").write_text("\n\n".join([head, *functions, start]))
sys.path.insert(0, str(here))
import job


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# %% [markdown]
# ### Exercise: start it with torch.multiprocessing.spawn
#
# `mp.spawn(fn, args, nprocs=2)` starts two processes and calls `fn(0, *args)` in one and `fn(1, *args)` in the other.
# Fill in the `args` that `by_spawn` needs; `port` and `answers` are made in the line above. The answers come back through a queue. Each of the two imports torch first, which
# takes seconds, so they work in the background: read on, and collect at the end.

# %% claims="R7"
spawning = mp.get_context("spawn")
answers, port = spawning.SimpleQueue(), free_port()
args = (2, port, answers)  # solution

spawn_verdict = checks.lab00.spawn_args(args, port, answers)
if spawn_verdict:
    from_file = mp.spawn(job.by_spawn, args=args, nprocs=2, join=False)

# %% claims="R7" tags=["nbval-check-output"]
print(spawn_verdict)

# %% [markdown]
# ### Exercise: start it with torchrun
#
# The file is a script, too. Write the command: `torchrun`, told with `--standalone` that this host is alone (it then picks a
# free port) and with `--nproc_per_node` how many processes to start, namely two; then the script. Its turn comes further
# down, together with other commands.

# %% claims="R8" tags=["nbval-check-output"]
line = "torchrun --standalone --nproc_per_node=2 job.py"  # solution
torchrun_verdict = checks.lab00.command(line)
print(torchrun_verdict)

# %% [markdown]
# `run` is the launcher of this course. It needs no file, since it sends the function itself to the ranks, and it makes the
# group before your function begins.
#
# **Predict.** Two ranks run `hello`. Which sum does rank 0 hold then? And rank 1? **Run.** Then four ranks introduce themselves.

# %%
sums = [3.0, 3.0]  # solution

ours = run(hello, world_size=2, backend="gloo")


def introduce():
    connections = psutil.Process().net_connections()
    open_ports = [one.laddr.port for one in connections if one.status == "LISTEN"]
    serves = int(os.environ["MASTER_PORT"]) in open_ports
    says = f"{dist.get_rank()} of {dist.get_world_size()}"
    return who() | {"torch says": says, "serves the store": serves}


four = run(introduce, world_size=4)

# %% claims="R1 R4" tags=["nbval-check-output"]
print(checks.lab00.sums(sums))
print("ours:", ours.values)
for seen in four:
    print(f"told {seen['RANK']} of {seen['WORLD_SIZE']}, torch says {seen['torch says']}")
print("ranks that serve the store:", [seen["RANK"] for seen in four if seen["serves the store"]])
print("ranks that were started by rank 0:", sum(seen["PARENT"] == four[0]["PID"] for seen in four))

# %% [markdown]
# | variable | says |
# |---|---|
# | `RANK`, `LOCAL_RANK` | my number in the whole job, and on this host |
# | `WORLD_SIZE`, `LOCAL_WORLD_SIZE` | how many processes there are: in the job, on this host |
# | `GROUP_RANK` | the number of this host |
# | `MASTER_ADDR`, `MASTER_PORT` | where the ranks meet: the **store**, a small server of names and values |
#
# Nobody runs anybody: one launcher started four equal processes. One of them serves the store, rank 0 (under `torchrun`,
# `torchrun` itself does). Point at one, or pick it in the list, to see what it was told.


# %%
def place(seen, launcher, device, groups=()):
    rank, local_rank = int(seen["RANK"]), int(seen["LOCAL_RANK"])
    host, launcher = f"host {seen['GROUP_RANK']}", f"{launcher}, PID {seen['PARENT']}"
    pid, groups = int(seen["PID"]), tuple(groups)
    return views.RankPlace(rank, local_rank, host, pid, device, seen, groups, launcher)


server = "lablib's fork server"
views.hosts([place(seen, server, four.device) for seen in four], badge=views.Badge.real(four))

# %% [markdown]
# **Predict.** Four ranks append their number to the list `heard`. How many items are in the *notebook's* list afterwards?

# %%
length = 0  # solution

heard = []


def note():
    heard.append(dist.get_rank())
    return heard


noted = run(note, world_size=4)

# %% tags=["nbval-check-output"]
print(checks.lab00.list_length(length))
print("lists of the ranks:", noted.values, " list of the notebook:", heard)

# %% [markdown]
# Separate processes share no memory. What ranks know of each other, they were sent.
#
# `torch.multiprocessing.spawn` got a function of a *file*. Would it take a function of a *cell*? It is built on `Process`,
# which sends the function to the new process by `pickle`. Try that one step with `from_a_cell`; what the new process says
# goes to a file.


# %% claims="R7"
def from_a_cell(rank):
    print("never reached by rank", rank)


from_cell = spawning.Process(target=from_a_cell, args=(0,))
with open(here / "cell.txt", "w") as log:
    stderr = os.dup(2)
    os.dup2(log.fileno(), 2)
    from_cell.start()
    os.dup2(stderr, 2)
from_cell.join(timeout=60)

# %% claims="R7" tags=["nbval-check-output"]
print("exit code:", from_cell.exitcode)
print(re.search(r"Can't get attribute '\w+' on <module '\w+'", (here / "cell.txt").read_text())[0])
print("what was sent:", pickle.dumps(from_a_cell))

# %% [markdown]
# Look at what was sent: no code, but two names: "`from_a_cell`, to be found in `__main__`". The new process has another
# `__main__`. The error of `torch.multiprocessing.spawn` tells the exit code only; the reason stands in what the process printed
# on its way. Keep the function in a file there, or use `run` and `spawn` of lablib, which send the function itself.
#
# Four ranks, and how many GPUs? `world_size` counts **processes**. Where there is a GPU for each, NCCL can carry the
# messages; it refuses to share a GPU. gloo works on every CPU, and MPI only if torch was built with it. "gloo and
# MPI together" does not exist: a group has *one* backend for each type of device.

# %% claims="R2 R6 R20"
gpus = torch.cuda.device_count()
print(f"{len(four)} ranks ran here; this machine has {gpus} GPUs")
for name in ("gloo", "nccl", "mpi"):
    print(f"{name} is in this torch: {getattr(dist, f'is_{name}_available')()}")
with expect(UsageError):
    run(hello, world_size=gpus + 1, backend="nccl")


def try_backends(names):
    try:
        return "works: " + dist.get_backend_config(dist.new_group(backend=names))
    except ValueError as error:
        first, *_ = str(error).split(". ")
        return f"refused: {' '.join(first.split())}"


def try_both():
    return [try_backends(names) for names in ("cpu:gloo,cuda:gloo", "cpu:gloo,cpu:mpi")]


backends = run(try_both, world_size=1)[0]

# %% claims="R20" tags=["nbval-check-output"]
print(*backends, sep="\n")

# %% [markdown]
# ## Set-ups that fail
#
# `group=False` gives your function the environment and no group: it makes the group itself, as a script does. First
# failure: rank 1 does not call `init_process_group`. (The time limit is a `timedelta` of Python's `datetime`;
# torch has none of its own.)
#
# Second: the port is fixed in the script, and another job sits on it. (`spawn` is called like
# `torch.multiprocessing.spawn`, the rank comes first, and it works from a cell.)


# %% claims="R3 R10"
def one_stays_out():
    if os.environ["RANK"] == "0":
        dist.init_process_group("gloo", timeout=timedelta(seconds=0.2))


with expect(RankFailed) as alone:
    run(one_stays_out, group=False)


# %% claims="R5"
def fixed_port(rank, world_size, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    return hello()


with socket.create_server(("127.0.0.1", 0)) as other_job:
    port = other_job.getsockname()[1]
    with expect(RankFailed) as taken:
        spawn(fixed_port, args=(2, port), nprocs=2)
cured = spawn(fixed_port, args=(2, free_port()), nprocs=2)

# %% claims="R3 R5 R10" tags=["nbval-check-output"]
print("one stays out:", alone.summary)
print("port is taken:", taken.summary.replace(str(port), "…"))
print("port is free: ", cured.values)
print("torch.timedelta exists:", hasattr(torch, "timedelta"))

# %% [markdown]
# The cures for a busy port: ask the system for a free one (`free_port` binds port 0), or leave it to
# `torchrun --standalone` or `run`. And end the stuck job of an hour ago: it keeps its port.
#
# Third: a script has a fixed port, and falls back to `RANK` 0 and `WORLD_SIZE` 1 where they are unset. You start it twice by hand,
# hoping for two ranks. **Predict** what happens: `"a"` the two train together, `"b"` one trains alone and one dies, `"c"` both wait
# for each other, `"d"` both train alone.

# %% claims="R18"
by_hand = "b"  # solution


def train(copy, port, tried):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    try:
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
        return f"trains as rank {dist.get_rank()} of {dist.get_world_size()}"
    except dist.DistNetworkError as error:
        return "dies: " + str(error).rpartition("message: ")[2]
    finally:
        (tried / str(copy)).touch()
        while len(list(tried.iterdir())) < 2:  # whoever got the port keeps it until both have tried
            time.sleep(0.01)


tried = Path(tempfile.mkdtemp(dir=here))
copies = spawn(train, args=(free_port(), tried), nprocs=2)

# %% [markdown]
# Fourth: training raises an error, and you try again in the same process, as you do in a notebook all day.
# `tidy` decides for each of two processes whether `destroy_process_group` stands in a `finally`.


# %% claims="R9"
def try_twice(rank, tidy):
    said = []
    for _ in range(2):
        try:
            dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
            try:
                raise KeyError("labels")  # the error in training
            finally:
                if tidy[rank]:
                    dist.destroy_process_group()
        except Exception as error:
            said.append(repr(error))
    return said


untidy, tidy = spawn(try_twice, args=([False, True],), nprocs=2)

# %% claims="R9 R18" tags=["nbval-check-output"]
print(checks.lab00.started_by_hand(by_hand))
print("two copies:     ", sorted(copies.values))
print("without finally:", untidy)
print("with finally:   ", tidy)

# %% [markdown]
# Without the `finally`, "twice!" hides the real error from then on.
#
# ### Exercise: bug hunt
#
# This set-up stands in many scripts. Started by a launcher that sets the environment, every rank waits, then
# fails. Why? Look at what a rank is told, and repair it.


# %% claims="R15"
def setup():
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "12355"
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=n, timeout=timedelta(seconds=0.05))


with expect(RankFailed) as overwritten:
    run(setup, group=False)


# %% claims="R15"
def repaired_setup():
    # solution
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    # end solution


verdict = checks.lab00.setup(repaired_setup, run)

# %% claims="R11 R15" tags=["nbval-check-output"]
print("overwritten:", overwritten.summary.partition("raised ")[2])
default = dist.distributed_c10d.default_pg_timeout
print("without timeout= gloo would wait", default)
print("timeout=timedelta(seconds=1800) changes that:", timedelta(seconds=1800) != default)
print(verdict)

# %% [markdown]
# The store is served **already** when `setup` begins, on the port that stands in `MASTER_PORT`: by `torchrun`, or under `run` by
# rank 0. The ranks join that store and make none (`TORCHELASTIC_USE_AGENT_STORE`), so nobody listens on 12355.
#
# Against slow ranks, 1,800 seconds are often advised. That is the half an hour that gloo waits anyway (NCCL: ten minutes), and a
# longer time only hides for longer that ranks hang. Ask which rank is slow, and why.
#
# ## Many hosts
#
# With several hosts you start one `torchrun` on each: `--nnodes` hosts, `--nproc_per_node` processes on each,
# `--node_rank` to say which host this is, `--rdzv_endpoint` where all meet, `--rdzv_id` to name the job. Two of
# them on this machine can play two hosts; the function `torch.distributed.run.main` is what `torchrun` calls. (`[rank 0]` in
# front of a line: the first command printed it.)
#
# Many commands start together, since they mostly wait for each other: two hosts; the name that `torchrun` had before; two
# more pairs of hosts, each with a mistake, for later; and yours.

# %% claims="R1 R8 R19"
report = 'print(" ".join(f"{name}={value}" for name, value in who().items()) + "\\n", end="")\n'
(here / "report.py").write_text(
    f"import os\n\nNAMES = {NAMES}\n\n\n{inspect.getsource(who)}\n\n{report}"
)


def launch(number, commands):
    program, *words = commands[number].split()
    os.chdir(here)
    try:
        return importlib.import_module(program).main(words)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"


def two_hosts(options="", own=("", "")):
    meet = f"--rdzv_endpoint=127.0.0.1:{free_port()}"
    common = f"torch.distributed.run --nnodes=2 --nproc_per_node=2 {meet} {options}"
    return [f"{common} {mine} report.py" for mine in own]


def told_in(*texts):
    lines = sorted(line for text in texts for line in text.splitlines() if line.startswith("RANK="))
    return [dict(pair.split("=") for pair in line.split()) for line in lines]


numbers = "--node_rank=0", "--node_rank=1"
names = "--node_rank=0 --local_addr=localhost", "--node_rank=1 --local_addr=127.0.0.1"
commands = two_hosts(own=numbers)
commands += [f"torch.distributed.launch --nproc_per_node=1 --master_port={free_port()} report.py"]
commands += two_hosts("--rdzv_conf=timeout=1")
commands += two_hosts("--rdzv_backend=c10d --rdzv_id=lab00", own=names)
if torchrun_verdict:
    commands += [line.replace("torchrun", "torch.distributed.run", 1)]
done = spawn(launch, args=(commands,), nprocs=len(commands))
*hosts, old = done.output[:3]
told = told_in(*hosts)
badge = views.Badge("real", len(told), note="two torchruns on one machine")
views.hosts([place(seen, "torchrun", "cpu") for seen in told], badge=badge)

# %% [markdown]
# `LOCAL_RANK` starts again at 0 on each host. Many scripts name the GPU by the *rank*, `cuda:{rank}`. On hosts with two
# GPUs, which name exists?

# %% claims="R1 R14 R19" tags=["nbval-check-output"]
for seen in told:
    exists = int(seen["RANK"]) < int(seen["LOCAL_WORLD_SIZE"])
    by_local_rank = f"by local_rank cuda:{seen['LOCAL_RANK']} exists"
    by_rank = f"by rank cuda:{seen['RANK']} {'exists' if exists else 'does not exist'}"
    print(f"host {seen['GROUP_RANK']}: {by_local_rank}, {by_rank}")
print("old name:", " ".join(re.search(r"The module.*?Use torchrun\.", old, re.DOTALL)[0].split()))

# %% [markdown]
# ### Exercise: the second host
#
# Two hosts with 4 GPUs each: host 0 is called `alpha`, host 1 `beta`. Fill in what the four processes of **host 1** are told.
# Where they differ, give a list of four.

# %% claims="R1" tags=["nbval-check-output"]
second = {}
second["GROUP_RANK"] = 1  # solution
second["RANK"] = [4, 5, 6, 7]  # solution
second["LOCAL_RANK"] = [0, 1, 2, 3]  # solution
second["WORLD_SIZE"] = 8  # solution
second["LOCAL_WORLD_SIZE"] = 4  # solution
second["MASTER_ADDR"] = "alpha"  # solution
print(checks.lab00.second_host(second))

# %% [markdown]
# Eight GPUs are not at hand: this picture is simulated, by the formula rank = host × 4 + local_rank.


# %% claims="R1"
def planned(host, local_rank):
    rank = host * 4 + local_rank
    values = rank, local_rank, 8, 4, host, "alpha", 29500
    told = {name: str(value) for name, value in zip(NAMES, values)}
    name, gpu = ("alpha", "beta")[host], f"cuda:{local_rank}"
    return views.RankPlace(rank, local_rank, name, device=gpu, env=told, launcher="torchrun")


plan = [planned(host, local_rank) for host in range(2) for local_rank in range(4)]
badge = views.Badge("simulated", 8, "cuda", "nccl")
views.hosts(plan, badge=badge, title="Two hosts with 4 GPUs each")

# %% [markdown]
# The two mistakes. **Forget** `--node_rank`: without `--rdzv_backend` the numbers are *static*, and yours is 0. **Give**
# it together with `--rdzv_backend=c10d`: there the hosts settle the numbers among themselves. (`--local_addr` gave our two
# hosts a name each.) Here is what came of it.

# %% claims="R16 R17" tags=["nbval-check-output"]
forgotten = sorted(re.sub(r"port: \d+.*message", "…", value) for value in done.values[3:5])
given = done.output[5:7]
print("forgotten:", *forgotten, sep="\n   ")
print("given with c10d:", re.search("node_rank is only used.*", "".join(given))[0])
for asked, text in enumerate(given):
    print(f"   asked for host {asked}, became host {told_in(text)[0]['GROUP_RANK']}")

# %% [markdown]
# Forgotten, both are host 0, and both want to serve the store: on one machine the second finds the port taken, and the first
# waits for a host 1 that never comes. With c10d the hosts are numbered in the order of their names.
#
# ## Groups
#
# A **group** is a part of the ranks that talks among itself. Put four ranks on a 2 × 2 grid: a row for each host, a column for
# each place on a host.
#
# ### Exercise: who is in which group?

# %% tags=["nbval-check-output"]
rows = [[0, 1], [2, 3]]  # solution
columns = [[0, 2], [1, 3]]  # solution
print(checks.lab00.subgroups(rows, columns))

# %% [markdown]
# Every rank makes every group, also those that it is not in. Then it adds up the ranks of its row, and of its column.

# %%
GRID = {"row 0": [0, 1], "row 1": [2, 3], "column 0": [0, 2], "column 1": [1, 3]}


def on_the_grid():
    rank, mine = dist.get_rank(), {}
    groups = {name: dist.new_group(ranks) for name, ranks in GRID.items()}
    for name, group in groups.items():
        if rank in GRID[name]:
            total = torch.tensor([float(rank)], device=device())
            dist.all_reduce(total, group=group)
            mine[name] = total.item(), dist.get_group_rank(group, rank)
    return who(), mine


grid = run(on_the_grid, world_size=4)
places = [place(seen, server, grid.device, groups=mine) for seen, mine in grid]
views.hosts(places, badge=views.Badge.real(grid), title="Groups of a 2 × 2 grid", across=2)

# %% [markdown]
# ### Exercise: some ranks only
#
# The ranks 0 and 1 add up first, then all four. Only the members make the first group, which looks reasonable:


# %%
def two_sums():
    mine = torch.tensor([float(dist.get_rank())], device=device())
    if dist.get_rank() in (0, 1):
        first = dist.new_group([0, 1])
        dist.all_reduce(mine, group=first)
    everyone = dist.new_group([0, 1, 2, 3])
    dist.all_reduce(mine, group=everyone)
    return mine.item()


with expect(RunError) as stuck:
    run(two_sums, world_size=4, timeout=0.3)

# %% tags=["nbval-check-output"]
for seen, mine in grid:
    found = [f"number {i} in {name}, sum {total:.0f}" for name, (total, i) in mine.items()]
    print(f"rank {seen['RANK']}:", "; ".join(found))
print("came back from two_sums:", [bool(value) for value in stuck.error.run.values])

# %% [markdown]
# A group is called by its *count*: `everyone` is group 2 on the ranks 0 and 1, and group 1 on the others. They wait for each
# other under different names.
#
# The rule: **every rank makes every group, in the same order**. Repair `two_sums`: the ranks 0 and 1 add up, then all four.


# %%
def repaired_sums():
    mine = torch.tensor([float(dist.get_rank())], device=device())
    # solution
    first = dist.new_group([0, 1])
    everyone = dist.new_group([0, 1, 2, 3])
    if dist.get_rank() in (0, 1):
        dist.all_reduce(mine, group=first)
    dist.all_reduce(mine, group=everyone)
    # end solution
    return mine.item()


verdict = checks.lab00.group_sums(repaired_sums, run)

# %% tags=["nbval-check-output"]
print(verdict)

# %% [markdown]
# ## Three launchers, the same numbers?
#
# `torchrun` gave lines of text, if you wrote its command. By now `torch.multiprocessing.spawn` is done, too; it gives nothing
# back, so its ranks put their values into a queue.

# %% claims="R7 R8"
by_launcher = {"run": ours.values}
for text in done.output[7:]:  # your torchrun, if it was among them
    by_launcher["torchrun"] = sorted(re.findall(r" \| (.*)", text))
if spawn_verdict:
    while not from_file.join(timeout=100):
        pass
    by_launcher["mp.spawn"] = sorted(answers.get() for _ in range(2))

# %% claims="R7 R8" tags=["nbval-check-output"]
for launcher, values in by_launcher.items():
    print(f"{launcher:9}", values)

# %% [markdown]
# ## Recap
#
# - **"Rank 0 runs the others."** No: a launcher starts equal processes, and environment variables tell them apart. Rank 0
#   may serve the store. (What else it gives the others is in [lab 04](04_gradient_averaging.ipynb).)
# - **"The rank is the number of the GPU."** No: that is `local_rank`. `world_size` counts processes, with or without GPUs.
# - **"local_rank equals rank."** On one host only.
# - Ranks share no memory with each other, nor with the notebook.
# - `run`, `torchrun` and `torch.multiprocessing.spawn` give the same numbers. The last one wants its function in a file.
# - Keep the address and port that the launcher gives. Never fix a port, never overwrite `MASTER_PORT`.
# - `init_process_group` by all, `destroy_process_group` in a `finally`, `new_group` by all in the same order.
