"""Lab 05's predictions: what torch does, and what people write in place of it."""

from __future__ import annotations

from collections.abc import Mapping

Row = tuple[object, Mapping[object, str], str]  # right answer, known mistakes, reason for the others

FIRST_LOOK: dict[str, Row] = {
    "letters loaded without a sampler": (
        32,
        {
            8: "DDP splits no data: every rank goes through all of it",
            2: "that would be one rank's share, if anybody split the data; asked is all ranks together",
            16: "those are batches; letters are asked",
        },
        "four ranks, and each goes through all eight letters",
    ),
    "letters loaded with a sampler": (
        8,
        {
            32: "that is without: the sampler gives each rank a quarter",
            2: "that is one rank's share; asked is all ranks together",
            4: "those are batches; letters are asked",
        },
        "each letter goes to one rank",
    ),
    "letters of rank 0": (
        ("A", "E"),
        {
            ("A", "B"): "those would be blocks, as pictures show it: the sampler deals in turn, like cards",
            ("A", "C"): "there are four ranks: after A, the letters B, C, D go to the others",
            tuple("ABCDEFGH"): "that is without a sampler",
        },
        "the sampler deals in turn, beginning with rank 0",
    ),
}

Four = tuple[tuple[int, ...], ...]
TEN: Four = ((0, 4, 8), (1, 5, 9), (2, 6, 0), (3, 7, 1))
TEN_MISTAKES: dict[object, str] = {
    ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 0, 1)): "those are blocks: samples are dealt in turn",
    ((0, 4, 8), (1, 5, 9), (2, 6), (3, 7)): "every rank gets equally many: the list is filled up before it is dealt",
    ((0, 4, 8), (1, 5, 9), (2, 6, 9), (3, 7, 9)): "the list is filled up from its front, not with its last sample",
    ((0, 4, 8), (1, 5, 9), (2, 6, 8), (3, 7, 9)): "the list is filled up from its front, not with its end",
    ((0, 4, 8), (1, 5, 9), (2, 6, 2), (3, 7, 3)): "the list is filled up first and dealt then: all ranks have one list",
    ((0, 4), (1, 5), (2, 6), (3, 7)): "that is drop_last=True; by default nothing is dropped",
}
LOST: Row = (
    (8, 9),
    {
        (): "10 samples cannot be dealt to 4 ranks evenly: drop_last drops what is left over",
        (9,): "10 is 2 times 4, and two are left over",
        (0, 1): "those are seen twice without drop_last; what is dropped is the end of the list",
        (2, 3, 6, 7): "nothing is taken from ranks 2 and 3: the end of the list is dropped before it is dealt",
    },
    "two rounds of dealing, and the end of the list is left over",
)

FEW: dict[str, Row] = {
    "ranks that see sample 0": (
        3,
        {
            1: "3 samples are not enough for 8 ranks: the list goes round until each has one",
            2: "the list goes round more than twice: 0 1 2 0 1 2 0 1",
            8: "each rank gets one sample of 0 1 2 0 1 2 0 1",
            0: "nothing is dropped by default",
        },
        "the list is filled up to 8: 0 1 2 0 1 2 0 1",
    ),
    "steps of a rank with drop_last": (
        0,
        {
            1: "one round of dealing needs 8 samples; the 3 are the end of the list, and that is dropped",
            3: "no rank gets all samples",
        },
        "how many full rounds of 8 do 3 samples give?",
    ),
    "torch says": (
        "c",
        {"a": "no error: a loader may be empty", "b": "no warning either"},
        'choose "a", "b" or "c"',
    ),
}

EPOCHS: dict[str, Row] = {
    "different orders without set_epoch": (
        1,
        {3: "the order comes from seed + epoch, and nobody told the sampler the epoch: shuffle=True is not enough"},
        "three epochs, and the sampler thinks that each is epoch 0",
    ),
    "different orders with set_epoch": (
        3,
        {1: "with set_epoch the order comes from seed + epoch: another one each time"},
        "three epochs, each with its own order",
    ),
    "samples that two ranks see": (
        0,
        {12: "all ranks deal the same order: from the same seed and epoch, each takes its own part"},
        "12 samples on 4 ranks, all with the same seed",
    ),
}

LENGTHS: dict[str, Row] = {
    "samples of a rank": (
        6250,
        {50000: "the sampler deals them to 8 ranks", 256: "those are the samples of one step"},
        "50,000 samples are dealt to 8 ranks",
    ),
    "len(loader)": (
        196,
        {
            1563: "that is without a sampler: the loader of a rank knows its own share only",
            195: "the last batch is not full, and it counts: the loader drops nothing by default",
            25: "batch_size is per rank: 32 samples a batch, of 6,250",
            6250: "those are samples; batches are asked",
        },
        "6,250 samples, 32 a batch",
    ),
    "samples in a step": (
        256,
        {
            32: "that is one rank's batch; the gradient is averaged over all ranks",
            4: "32 is not divided by the ranks: batch_size is per rank",
        },
        "8 ranks, a batch of 32 on each",
    ),
    "len(loader) with drop_last in the loader": (
        195,
        {
            196: "the last batch is not full: it goes",
            1562: "that is without a sampler",
            24: "batch_size is per rank",
        },
        "6,250 samples, only full batches of 32",
    ),
}

SHUFFLE: dict[object, str] = {
    "a": "the order is the sampler's business alone; shuffle=True asks the loader for a sampler of its own",
    "c": "it is not ignored: torch says that the two exclude each other",
}
OWN_DATA: dict[object, str] = {
    "a": "each process draws its own numbers: index 3 is another sample on each rank",
    "c": "nothing compares the data of ranks: all are of length 8, and that is all the sampler knows",
}
WORKERS: dict[object, str] = {
    "b": "batches come in the sampler's order, whichever worker is first",
    "c": "workers share what the sampler gave their rank: they split nothing again",
}
COUNTED: dict[str, Row] = {
    "as counted": (
        0.667,
        {
            0.8: "samples 0 and 1 are counted twice: 12 answers, and not 10",
            0.833: "0 and 1 are wrong: what is repeated adds to the count, and not to what is right",
            0.75: "both 0 and 1 are seen twice, and both are wrong",
        },
        "12 answers are counted; how many of them are right?",
    ),
    "exact": (
        0.8,
        {0.667: "that is as counted; exact is each sample once"},
        "10 samples, two wrong",
    ),
}
