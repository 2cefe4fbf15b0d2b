"""Lab 00's checks: the solution passes, each known mistake gets its own reason, and nothing raises."""

import os
import subprocess
import sys
from datetime import timedelta
from queue import SimpleQueue

import numpy as np
import pytest
import torch
import torch.distributed as dist
from stranger import Stranger

from lablib import RunTimeout, run
from lablib.checks import NOT_ATTEMPTED, PASSED, lab00

pytestmark = pytest.mark.slow

SECOND_HOST = {
    "GROUP_RANK": 1,
    "RANK": [4, 5, 6, 7],
    "LOCAL_RANK": [0, 1, 2, 3],
    "WORLD_SIZE": 8,
    "LOCAL_WORLD_SIZE": 4,
    "MASTER_ADDR": "alpha",
}
PORT, QUEUE = 29517, SimpleQueue()
ROWS, COLUMNS = [[0, 1], [2, 3]], [[0, 2], [1, 3]]


def second_host(**changed):
    return lab00.second_host({**SECOND_HOST, **changed})


@pytest.mark.parametrize(
    "verdict",
    [
        lab00.spawn_args((2, PORT, QUEUE), PORT, QUEUE),
        lab00.spawn_args([np.int64(2), PORT, QUEUE], PORT, QUEUE),
        lab00.command("torchrun --standalone --nproc_per_node=2 job.py"),
        lab00.command(" torchrun  --nproc-per-node 2 --nnodes=1 --standalone job.py "),
        lab00.command("torchrun --nproc_per_node=2 ./job.py"),  # for one host it picks a free port by itself
        lab00.sums([3.0, 3.0]),
        lab00.sums(np.array([3, 3])),
        lab00.list_length(0),
        lab00.started_by_hand(" B "),
        second_host(),
        second_host(RANK=("4", "5", "6", "7"), WORLD_SIZE="8"),
        lab00.subgroups(ROWS, COLUMNS),
        lab00.subgroups([[3, 2], (0, 1)], [{1, 3}, {2, 0}]),
    ],
)
def test_right_answers_pass(verdict):
    assert verdict == PASSED


@pytest.mark.parametrize(
    "verdict",
    [
        lab00.spawn_args(..., PORT, QUEUE),
        lab00.spawn_args((2, ..., QUEUE), PORT, QUEUE),
        lab00.command(...),
        lab00.sums(...),
        lab00.list_length(...),
        lab00.started_by_hand(...),
        second_host(RANK=...),
        lab00.subgroups(ROWS, ...),
        lab00.setup(..., run),
        lab00.group_sums(..., run),
    ],
)
def test_open_answers_are_not_attempted(verdict):
    assert verdict == NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (lab00.spawn_args((0, 2, PORT, QUEUE), PORT, QUEUE), "puts the rank in front by itself"),
        (lab00.spawn_args((PORT, QUEUE), PORT, QUEUE), "three from you"),
        (lab00.spawn_args((2, PORT), PORT, QUEUE), "nowhere to put their values"),
        (lab00.spawn_args((QUEUE, PORT, 2), PORT, QUEUE), "in this order"),
        (lab00.spawn_args((PORT, 2, QUEUE), PORT, QUEUE), "where all ranks meet"),
        (lab00.spawn_args((2, 29500, QUEUE), PORT, QUEUE), "where all ranks meet"),
        (lab00.spawn_args((0, PORT, QUEUE), PORT, QUEUE), "the rank comes from spawn"),
        (lab00.spawn_args((1, PORT, QUEUE), PORT, QUEUE), "a job of its own"),
        (lab00.spawn_args((4, PORT, QUEUE), PORT, QUEUE), "nprocs=2 starts two"),
        (lab00.spawn_args(("2", PORT, QUEUE), PORT, QUEUE), "wanted: the arguments"),
        (lab00.spawn_args(2, PORT, QUEUE), "wanted: the arguments"),
        (lab00.command("python job.py"), "called torchrun"),
        (lab00.command("torchrun --standalone --nproc_per_node=2"), "job.py is missing"),
        (lab00.command("torchrun job.py --standalone --nproc_per_node=2"), "goes to the script"),
        (lab00.command("torchrun --standalone --nnodes=2 job.py"), "counts hosts"),
        (lab00.command("torchrun --standalone job.py"), "starts one process"),
        (lab00.command("torchrun --standalone --nproc_per_node=1 job.py"), "a job of one rank"),
        (lab00.command("torchrun --standalone --nproc_per_node=4 job.py"), "two are wanted"),
        (lab00.command("torchrun -standalone --nproc_per_node=2 job.py"), "two dashes"),
        (lab00.command("torchrun --standalone=True --nproc_per_node=2 job.py"), "has no value"),
        (lab00.command("torchrun --standalone --nproc_per_node = 2 job.py"), "take = for the script"),
        (lab00.command("torchrun --standalone --nproc_per_node=2 python job.py"), "take python for the script"),
        (lab00.command("torchrun --standalone 2 --nproc_per_node=2 job.py"), "take 2 for the script"),
        (second_host(MASTER_ADDR="localhost"), "MASTER_ADDR: that is each host itself"),
        (second_host(WORLD_SIZE=[8] * 4), "WORLD_SIZE: got a list; wanted: one number, the same for all four"),
        (lab00.command("torchrun --standalone --rank=0 --nproc_per_node=2 job.py"), "--rank is not needed"),
        (lab00.sums([3, 2]), "does not collect for the others"),
        (lab00.sums([1, 2]), "what the ranks bring"),
        (lab00.sums([1, 1]), "one more than the rank"),
        (lab00.sums([1.5, 1.5]), "mean"),
        (lab00.sums([9, 9]), "both hold the sum"),
        (lab00.list_length(4), "share no memory"),
        (lab00.list_length(1), "no rank runs in the notebook"),
        (lab00.list_length(7), "four lists"),
        (lab00.started_by_hand("a"), "nothing tells the copies of each other"),
        (lab00.started_by_hand("c"), "waits for nobody"),
        (lab00.started_by_hand("d"), "served only once"),
        (lab00.started_by_hand("both"), "wanted: one of the letters"),
        (second_host(RANK=[0, 1, 2, 3]), "RANK: local_rank equals rank on the first host only"),
        (second_host(RANK=[5, 6, 7, 8]), "RANK: ranks count from 0"),
        (second_host(RANK=[1, 1, 1, 1]), "number of the host"),
        (second_host(LOCAL_RANK=[4, 5, 6, 7]), "LOCAL_RANK: the rank is not the number of a GPU"),
        (second_host(LOCAL_RANK=[1, 2, 3, 4]), "count from 0"),
        (second_host(LOCAL_RANK=[0, 1]), "LOCAL_RANK: got 2 items"),
        (second_host(WORLD_SIZE=4), "WORLD_SIZE: that is this host alone"),
        (second_host(WORLD_SIZE=2), "number of hosts"),
        (second_host(LOCAL_WORLD_SIZE=8), "LOCAL_WORLD_SIZE: that is the whole job"),
        (second_host(GROUP_RANK=2), "hosts count from 0"),
        (second_host(MASTER_ADDR="beta"), "no store of its own"),
        (second_host(MASTER_ADDR="10.0.0.2"), "meet where rank 0 is"),
        (lab00.second_host({}), "GROUP_RANK is missing"),
        (lab00.subgroups(COLUMNS, ROWS), "exchanged"),
        (lab00.subgroups(ROWS, ROWS), "one rank of each host"),
        (lab00.subgroups(ROWS, [[0, 3], [1, 2]]), "equal places"),
        (lab00.subgroups([[1, 2], [3, 4]], [[1, 3], [2, 4]]), "ranks count from 0"),
        (lab00.subgroups([[0, 1], [0, 1]], [[0, 0], [1, 1]]), "those are local ranks"),
        (lab00.subgroups([[0, 1, 2, 3]], COLUMNS), "one row and in one column"),
    ],
)
def test_a_known_mistake_is_named(verdict, reason):
    assert verdict.status == "failed"
    assert reason in verdict.reason


JUNK = [None, True, "", "x", b"x", 3, float("nan"), [], [[]], {}, {"RANK": Stranger()}, Stranger(), print, int]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_fails_with_a_reason(junk):
    def no_ranks(*args, **options):
        raise RunTimeout("time is up")

    answers = [
        check(junk)
        for check in (lab00.command, lab00.sums, lab00.list_length, lab00.started_by_hand, lab00.second_host)
    ]
    answers += [lab00.spawn_args(junk, PORT, QUEUE), lab00.spawn_args((junk, PORT, QUEUE), PORT, QUEUE)]
    answers += [lab00.subgroups(junk, COLUMNS), lab00.subgroups(ROWS, junk)]
    answers += [lab00.setup(junk, no_ranks), lab00.group_sums(junk, no_ranks), second_host(RANK=junk)]
    if junk == 3:
        answers.pop(2)  # a whole number is a fair answer to list_length
    assert all(verdict.status == "failed" and verdict.reason for verdict in answers)


# The set-up, judged on two real ranks in a launcher's environment.


def takes_what_it_is_told():
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))


def spells_it_out():
    meet = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", meet, rank=rank, world_size=world_size)


def overwrites():
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "12355"
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


def names_a_port():
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:12355", rank=int(os.environ["RANK"]), world_size=2)


def always_rank_0():
    dist.init_process_group("gloo", rank=0, world_size=2)


def alone():
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=1)


def told_as_text():
    dist.init_process_group("gloo", rank=os.environ["RANK"], world_size=2)


def tidies_up_too_early():
    dist.init_process_group("gloo")
    dist.destroy_process_group()


def makes_nothing():
    os.environ["MASTER_PORT"] = "12355"


def stumbles():
    raise KeyError("MASTER_PRT")


def one_stays_out():
    if os.environ["RANK"] == "0":
        dist.init_process_group("gloo")


def never_ready():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.barrier()
        dist.barrier()


@pytest.mark.usefixtures("no_orphans")
@pytest.mark.parametrize("answer", [takes_what_it_is_told, spells_it_out])
def test_a_set_up_that_believes_its_launcher_passes(answer):
    assert lab00.setup(answer, run) == PASSED


@pytest.mark.usefixtures("no_orphans")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (overwrites, "MASTER_PORT is overwritten"),
        (names_a_port, "init_method names a port of its own"),
        (always_rank_0, "rank is not what the launcher said in RANK"),
        (alone, "world_size is not what the launcher said"),
        (told_as_text, "rank is a text"),
        (tidies_up_too_early, "the group is gone again"),
        (makes_nothing, "no group was made"),
        (one_stays_out, "no group was made"),
        (stumbles, "raised KeyError"),
    ],
)
def test_a_set_up_that_does_not_is_told_why(answer, reason):
    verdict = lab00.setup(answer, run)
    assert verdict.status == "failed"
    assert reason in verdict.reason


@pytest.mark.usefixtures("no_orphans")
def test_a_set_up_that_waits_for_ever_is_ended():
    def impatient(fn, *args, **options):
        return run(fn, *args, **{**options, "timeout": 1.0})

    assert "wait for each other" in lab00.setup(never_ready, impatient).reason


# The group exercise, judged on four real ranks.


def held():
    return torch.tensor([float(dist.get_rank())])


def all_make_all():
    mine, first, everyone = held(), dist.new_group([0, 1]), dist.new_group([0, 1, 2, 3])
    if dist.get_rank() in (0, 1):
        dist.all_reduce(mine, group=first)
    dist.all_reduce(mine, group=everyone)
    return mine.item()


def members_only_but_local():
    mine = held()
    if dist.get_rank() in (0, 1):
        first = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(mine, group=first)
    dist.all_reduce(mine, group=dist.new_group())
    return mine


def members_only():
    mine = held()
    if dist.get_rank() in (0, 1):
        dist.all_reduce(mine, group=dist.new_group([0, 1]))
    dist.all_reduce(mine, group=dist.new_group([0, 1, 2, 3]))
    return mine.item()


def members_last():
    mine, everyone = held(), dist.new_group([0, 1, 2, 3])
    if dist.get_rank() in (0, 1):
        dist.all_reduce(mine, group=dist.new_group([0, 1]))
    dist.all_reduce(mine, group=everyone)
    return mine.item()


def no_first_sum():
    mine = held()
    dist.all_reduce(mine, group=dist.new_group([0, 1, 2, 3]))
    return mine.item()


def all_add_first():
    mine, first = held(), dist.new_group([0, 1, 2, 3])
    dist.all_reduce(mine, group=first)
    dist.all_reduce(mine, group=first)
    return mine.item()


def no_last_sum():
    mine, first = held(), dist.new_group([0, 1])
    if dist.get_rank() in (0, 1):
        dist.all_reduce(mine, group=first)
    return mine.item()


def refuses():
    raise ValueError("no group")


def quickly(fn, *args, **options):
    return run(fn, *args, **{**options, "timeout": min(options["timeout"], 1.5)})


@pytest.mark.usefixtures("no_orphans")
@pytest.mark.parametrize("answer", [all_make_all, members_only_but_local])
def test_groups_that_all_ranks_agree_on_pass(answer):
    assert lab00.group_sums(answer, run) == PASSED


@pytest.mark.usefixtures("no_orphans")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (members_only, "some ranks wait for ever"),
        (members_last, "right by luck"),
        (no_first_sum, "did not add up first"),
        (all_add_first, "the first group has two members"),
        (no_last_sum, "did not add up in the end"),
        (refuses, "raised ValueError"),
        (dist.get_rank, "the ranks hold 0, 1, 2, 3"),
        (makes_nothing, "wanted: a function without arguments"),
    ],
)
def test_other_groups_are_told_why(answer, reason):
    verdict = lab00.group_sums(answer, quickly)
    assert verdict.status == "failed"
    assert reason in verdict.reason


# What the lab says about torch's own launchers, and shows under lablib's ranks because those start at once.


def test_under_torchrun_itself_a_port_of_ones_own_fails(tmp_path):
    script = tmp_path / "overwrites.py"
    script.write_text(
        "import os\nfrom datetime import timedelta\nimport torch.distributed as dist\n"
        "os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'] = '127.0.0.1', '12355'\n"
        "rank, world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "try:\n"
        "    dist.init_process_group('gloo', rank=rank, world_size=world_size, timeout=timedelta(seconds=1))\n"
        "except dist.DistNetworkError as error:\n"
        "    print(f'rank {rank} fails\\n', end='')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert sorted(done.stdout.splitlines()) == ["rank 0 fails", "rank 1 fails"]


def test_mp_spawn_cannot_find_a_function_that_was_typed_in(tmp_path):
    typed = "import torch.multiprocessing as mp\ndef cell(rank): pass\nmp.spawn(cell, nprocs=1)"
    done = subprocess.run(
        [sys.executable, "-c", typed], check=False, capture_output=True, text=True, timeout=100, cwd=tmp_path
    )
    assert "Can't get attribute 'cell' on <module '__main__'" in done.stderr
    assert "process 0 terminated with exit code 1" in done.stderr


def waits_for():
    gloo = dist.group.WORLD._get_backend(torch.device("cpu"))
    return gloo.options._timeout


@pytest.mark.usefixtures("no_orphans")
def test_half_an_hour_is_what_gloo_waits_anyway():
    def default_group():
        dist.init_process_group("gloo")
        return waits_for()

    def patient_group():
        dist.init_process_group("gloo", timeout=timedelta(seconds=1800))
        return waits_for()

    assert run(default_group, group=False).values == run(patient_group, group=False).values
    assert dist.distributed_c10d.default_pg_timeout == timedelta(seconds=1800)
