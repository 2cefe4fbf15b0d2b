"""Judge the exercises of lab 00, ranks and launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from lablib.checks.answers import WrongKind, described, items, number, text, whole_number, whole_numbers
from lablib.checks.lab00_on_ranks import SetupProblem, Sums, try_setup, try_sums
from lablib.checks.tables import judge_letter
from lablib.checks.verdict import PASSED, Verdict, check, compare, failed
from lablib.errors import RunError, RunTimeout


class Runner(Protocol):
    """Run a function on ranks, as `lablib.run` does."""

    def __call__(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any: ...


@check(wants="the arguments that follow the rank, as a tuple")
def spawn_args(answer: Any, port: int, queue: object) -> Verdict:
    """Judge the args with which mp.spawn calls ``by_spawn(rank, world_size, port, answers)`` in two processes."""
    given = items(answer)
    if not any(one is queue for one in given):
        return failed("without the queue `answers` the ranks have nowhere to put their values")
    if len(given) == 4:
        return failed("spawn puts the rank in front by itself: by_spawn would get five arguments, and takes four")
    if len(given) != 3:
        return failed("by_spawn takes four arguments: the rank comes from spawn, and three from you")
    if given[2] is not queue:
        return failed("by_spawn takes the world size, the port and the queue, in this order")
    if whole_number(given[1]) != port:
        return failed("the second is the port where all ranks meet; the same for all, and a free one")
    return compare(
        whole_number(given[0]),
        2,
        {
            0: "the first is the world size, the same for all; the rank comes from spawn",
            1: "told that the world size is 1, each would be a job of its own, and there is no rank 1 of 1",
        },
        "that many ranks would wait for each other; nprocs=2 starts two",
    )


@check(wants="a command line, as you would type it")
def command(answer: Any) -> Verdict:
    """Judge the line that starts two processes of job.py on this host with torchrun."""
    program, *words = text(answer).split() or [""]
    if program != "torchrun":
        return failed("the program is called torchrun, and stands first")
    scripts = [word for word in words if word.removeprefix("./") == "job.py"]
    if not scripts:
        return failed("the script job.py is missing")
    if words[-1] != scripts[0]:
        return failed("what stands behind the script goes to the script: torchrun never sees it")
    options = _joined(words[:-1])
    for word in options:
        if word.startswith("-") and not word.startswith("--"):
            return failed(f"torchrun's options begin with two dashes, and {word} with one")
        if not word.startswith("-"):
            return failed(f"torchrun would take {word} for the script: it starts Python by itself, and values follow =")
    given = dict(_option(word) for word in options)
    if unknown := set(given) - {"standalone", "nproc_per_node", "nnodes"}:
        return failed(f"--{min(unknown)} is not needed here")
    if given.get("standalone"):
        return failed("--standalone has no value: it is there or not")
    if given.get("nnodes", "1") != "1":
        return failed("--nnodes counts hosts, and this is one host: torchrun would wait for another")
    if "nproc_per_node" not in given:
        return failed("torchrun starts one process where --nproc_per_node is not given")
    return compare(
        given["nproc_per_node"],
        "2",
        {"1": "one process is a job of one rank"},
        "--nproc_per_node is the number of processes on this host, and two are wanted",
    )


def _joined(words: list[str]) -> list[str]:
    """Write each value behind its option: ``--nnodes 1`` is ``--nnodes=1``."""
    joined: list[str] = []
    for word in words:
        last = joined[-1] if joined else ""
        if last.startswith("--") and "=" not in last and last != "--standalone" and word[0] not in "-=":
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _option(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name.lstrip("-").replace("-", "_"), value


@check(wants="a list of two numbers, the sum on rank 0 and the sum on rank 1")
def sums(answer: Any) -> Verdict:
    """Judge what the two ranks hold after adding 1 and 2."""
    return compare(
        tuple(number(item) for item in items(answer, 2)),
        (3.0, 3.0),
        {
            (3.0, 2.0): "rank 0 does not collect for the others: all_reduce gives the sum to every rank",
            (1.0, 2.0): "that is what the ranks bring; all_reduce puts the sum in its place, on every rank",
            (1.0, 1.0): "rank 0 brings 1 and rank 1 brings 2: the number is one more than the rank",
            (1.5, 1.5): "that is the mean; all_reduce adds up where nothing else is said",
        },
        "rank 0 brings 1, rank 1 brings 2, and both hold the sum",
    )


@check(wants="a whole number of items")
def list_length(answer: Any) -> Verdict:
    """Judge how long the notebook's list is after four ranks appended to theirs."""
    return compare(
        whole_number(answer),
        0,
        {
            4: "the ranks share no memory with the notebook: each appended to a list of its own",
            1: "no rank runs in the notebook, rank 0 neither: it is a process like the others",
        },
        "four processes appended to four lists, and none of them is the notebook's",
    )


@check(wants='one of the letters "a", "b", "c", "d"')
def started_by_hand(answer: Any) -> Verdict:
    """Judge what happens to two copies that nobody told their rank."""
    return judge_letter(
        answer,
        "b",
        {
            "a": "nothing tells the copies of each other: each believes it is rank 0 of a job of 1",
            "c": "a job of one rank is complete, and waits for nobody",
            "d": "each is rank 0 and serves the store: a port can be served only once",
        },
    )


@check(wants="a dict with what the processes of host 1 are told")
def second_host(answer: Any) -> Verdict:
    """Judge the environment on the second of two hosts with 4 GPUs each, the first being called alpha."""
    if not isinstance(answer, Mapping):
        raise WrongKind("got no dict")
    for name, judge in _SECOND_HOST.items():
        if name not in answer:
            return failed(f"{name} is missing")
        try:
            verdict = judge(answer[name])
        except WrongKind as error:
            return failed(f"{name}: {error.told}")
        if not verdict:
            return failed(f"{name}: {verdict.reason}")
    return PASSED


def _told(value: Any) -> int:
    if isinstance(value, list | tuple):
        raise WrongKind(f"got {described(value)}", "one number, the same for all four")
    if isinstance(value, str) and value.strip().isdecimal():  # in the environment everything is text
        return int(value)
    return whole_number(value)


def _told_four(value: Any) -> tuple[int, ...]:
    return tuple(_told(item) for item in items(value, 4))


_SECOND_HOST: dict[str, Callable[[Any], Verdict]] = {
    "GROUP_RANK": lambda value: compare(
        _told(value),
        1,
        {2: "hosts count from 0", 0: "that is the first host"},
        "it is the number of the host",
    ),
    "RANK": lambda value: compare(
        _told_four(value),
        (4, 5, 6, 7),
        {
            (0, 1, 2, 3): "local_rank equals rank on the first host only; from there the ranks count on",
            (5, 6, 7, 8): "ranks count from 0",
            (1, 1, 1, 1): "that is the number of the host; every process has a rank of its own",
        },
        "the first host has the first ranks, and this one has the next four",
    ),
    "LOCAL_RANK": lambda value: compare(
        _told_four(value),
        (0, 1, 2, 3),
        {
            (
                4,
                5,
                6,
                7,
            ): "the rank is not the number of a GPU: local_rank is, and starts from 0 on each host",
            (1, 2, 3, 4): "local ranks count from 0",
        },
        "each host counts its own processes, from 0",
    ),
    "WORLD_SIZE": lambda value: compare(
        _told(value),
        8,
        {4: "that is this host alone", 2: "that is the number of hosts", 7: "that is the highest rank"},
        "it is the number of processes in the whole job",
    ),
    "LOCAL_WORLD_SIZE": lambda value: compare(
        _told(value),
        4,
        {8: "that is the whole job", 3: "that is the highest local rank"},
        "it is the number of processes on this host",
    ),
    "MASTER_ADDR": lambda value: compare(
        text(value),
        "alpha",
        {
            "beta": "a host has no store of its own: all ranks of a job meet in one place, where rank 0 is",
            "localhost": "that is each host itself: host 1 would look at home, and rank 0 is elsewhere",
            "127.0.0.1": "that is each host itself: host 1 would look at home, and rank 0 is elsewhere",
        },
        "all ranks of a job meet where rank 0 is",
    ),
}


@check(wants="two lists of groups, each group a list of ranks")
def subgroups(rows: Any, columns: Any) -> Verdict:
    """Judge the groups of a grid of 2 hosts with 2 places each."""
    return compare(
        (_groups(rows), _groups(columns)),
        (_ROWS, _COLUMNS),
        {
            (
                _COLUMNS,
                _ROWS,
            ): "rows and columns are exchanged: a row is a host, and holds ranks that follow each other",
            (_ROWS, _ROWS): "a column takes one rank of each host",
            (_ROWS, ((0, 3), (1, 2))): "a column holds equal places: first with first, second with second",
            (((1, 2), (3, 4)), ((1, 3), (2, 4))): "ranks count from 0",
            (
                ((0, 1), (0, 1)),
                ((0, 0), (1, 1)),
            ): "those are local ranks; the ranks of the second host count on",
        },
        "ranks 0 and 1 are on the first host; each rank is in one row and in one column",
    )


_ROWS = ((0, 1), (2, 3))
_COLUMNS = ((0, 2), (1, 3))


def _groups(answer: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted(tuple(sorted(whole_numbers(group))) for group in items(answer)))


@check(wants="a function without arguments that makes the process group")
def setup(answer: Callable[[], object], run: Runner) -> Verdict:
    """Judge a set-up by running it on two ranks in a launcher's environment."""
    _callable(answer)
    try:
        totals = run(try_setup, answer, world_size=2, group=False, timeout=20.0).values
    except RunTimeout:
        return failed("the ranks wait for each other for ever")
    except RunError as error:
        problem = error.__cause__
        return failed(str(problem) if isinstance(problem, SetupProblem) else f"it went wrong: {error.summary}")
    return compare(totals, [3.0, 3.0], {}, "the two ranks made a group, and the numbers 1 and 2 do not add up in it")


@check(wants="a function without arguments that returns the sum on each rank")
def group_sums(answer: Callable[[], object], run: Runner) -> Verdict:
    """Judge a function that adds up on ranks 0 and 1, then on all four, by running it."""
    _callable(answer)
    try:
        seen: list[Sums] = run(try_sums, answer, world_size=4, timeout=5.0).values
    except RunTimeout:
        return failed(
            "some ranks wait for ever: they did not all make the same groups in the same order,"
            " or not all members of a group called in it"
        )
    except RunError as error:
        return failed(f"it went wrong: {error.summary}")
    found = tuple(number(one.value) for one in seen)
    verdict = compare(
        found,
        (7.0, 7.0, 7.0, 7.0),
        {
            (6.0, 6.0, 6.0, 6.0): "the ranks 0 and 1 did not add up first",
            (24.0, 24.0, 24.0, 24.0): "all four ranks added up first; the first group has two members",
            (1.0, 1.0, 2.0, 3.0): "the four ranks did not add up in the end",
        },
        f"the ranks hold {', '.join(f'{value:g}' for value in found)}; first two add up 0 + 1, then all four",
    )
    if verdict and any(one.groups != seen[0].groups for one in seen):
        return failed("right by luck: the ranks made different groups, and the next group would not fit together")
    return verdict


def _callable(answer: object) -> None:
    if not callable(answer):
        raise WrongKind("got no function")
