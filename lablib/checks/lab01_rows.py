"""Lab 01's tables: what the four ranks hold after each call, and what people write in place of it."""

from __future__ import annotations

from collections.abc import Mapping

Row = tuple[tuple[float, ...], Mapping[object, str], str]  # right answer, known mistakes, reason for the others

_OWN = (1.0, 2.0, 3.0, 4.0)
ONE_NUMBER: dict[str, Row] = {
    "broadcast": (
        (3.0, 3.0, 3.0, 3.0),
        {
            (2.0, 2.0, 2.0, 2.0): "src is a rank, and ranks count from 0: rank 2 brings 3",
            (1.0, 1.0, 1.0, 1.0): "that is what rank 0 brings, and src=2",
            _OWN: "that is what the ranks bring; broadcast overwrites it on all but the source",
            (1.0, 2.0, 3.0, 3.0): "broadcast goes to every rank, not to the next one only",
        },
        "every rank ends with what the source brings",
    ),
    "all_reduce SUM": (
        (10.0, 10.0, 10.0, 10.0),
        {
            (10.0, 2.0, 3.0, 4.0): "that would be reduce, to rank 0: all_reduce gives the result to every rank",
            (6.0, 6.0, 6.0, 6.0): "rank r brings r + 1, not r",
            (1.0, 3.0, 6.0, 10.0): "those are running sums; all_reduce combines what all ranks bring",
        },
        "1 + 2 + 3 + 4, on every rank",
    ),
    "all_reduce MAX": (
        (4.0, 4.0, 4.0, 4.0),
        {(3.0, 3.0, 3.0, 3.0): "rank r brings r + 1: that is the highest rank"},
        "the greatest of the four numbers, on every rank",
    ),
    "all_reduce AVG": (
        (2.5, 2.5, 2.5, 2.5),
        {
            (10.0, 10.0, 10.0, 10.0): "that is the sum; AVG divides it by the number of ranks",
            (2.0, 2.0, 2.0, 2.0): "floats are not rounded",
        },
        "the sum divided by the number of ranks, on every rank",
    ),
}
_BY_RANK = (0.0, 10.0, 20.0, 30.0)
FOUR_PARTS: dict[str, Row] = {
    "scatter": (
        (10.0, 11.0, 12.0, 13.0),
        {
            (10.0, 10.0, 10.0, 10.0): "that would be broadcast; scatter gives each rank another part",
            (0.0, 1.0, 2.0, 3.0): "those are the parts of rank 0, and src=1",
            (11.0, 10.0, 12.0, 13.0): "the source does not serve itself first: part i goes to rank i, src included",
            (0.0, 11.0, 22.0, 33.0): "only the source's parts count, and each rank brings its own there",
        },
        "part i of rank 1 goes to rank i, rank 1 included",
    ),
    "gather": (
        _BY_RANK,
        {
            (30.0, 0.0, 10.0, 20.0): "dst does not stand first: the list is in rank order, whoever gets it",
            (30.0, 20.0, 10.0, 0.0): "item i is from rank i",
            (60.0, 60.0, 60.0, 60.0): "gather combines nothing: that is a sum",
        },
        "item i is the number of rank i",
    ),
    "all_gather": (
        _BY_RANK,
        {
            (0.0, 0.0, 0.0, 0.0): "rank 0 gets an item of every rank, not its own four times",
            (60.0, 60.0, 60.0, 60.0): "all_gather combines nothing: that is a sum",
        },
        "item i is the number of rank i, on every rank",
    ),
    "reduce_scatter": (
        (60.0, 64.0, 68.0, 72.0),
        {
            (0.0, 11.0, 22.0, 33.0): "those are the ranks' own parts: reduce_scatter combines first",
            (6.0, 46.0, 86.0, 126.0): "parts with the same number are added across ranks, not all parts of one rank",
            (60.0, 60.0, 60.0, 60.0): "each rank keeps another part: rank i part i",
            (264.0, 264.0, 264.0, 264.0): "different parts are never added",
        },
        "rank i keeps the sum of everybody's part i",
    ),
    "all_to_all": (
        (1.0, 11.0, 21.0, 31.0),
        {
            (10.0, 11.0, 12.0, 13.0): "that is what rank 1 brings; it sends part i to rank i, and keeps only part 1",
            (0.0, 11.0, 22.0, 33.0): "rank 1 gets part 1 of every rank",
            (31.0, 21.0, 11.0, 1.0): "item i is from rank i",
            (0.0, 10.0, 20.0, 30.0): "that is what rank 0 gets; parts count from 0",
        },
        "item i is part 1 of rank i: rows become columns",
    ),
}
