"""Lab 08's checks: the solution passes, each known mistake gets its own reason, and nothing raises."""

import numpy as np
import pytest
from stranger import Stranger

from lablib.checks import NOT_ATTEMPTED, PASSED, lab08
from lablib.checks.lab08_functions import closed_before_cap, filled
from lablib.links import Link
from lablib.sim.buckets import MIB, Parameter
from lablib.sim.ddp import simulate
from lablib.sim.plan import Layer, Plan, chain


def layer(name, mib, bias_nbytes=0):
    bias = (Parameter(f"{name}.bias", bias_nbytes),) if bias_nbytes else ()
    return Layer(name, 1.0, 2.0, (Parameter(f"{name}.weight", int(mib * MIB)), *bias))


TWELVE = Plan(tuple(layer(str(number), 4, 4096) for number in range(12)))
SMALL = Plan(tuple(layer(str(number), 1, 2048) for number in range(12)))
SIXTEEN = chain([0.25] * 16, forward_ms=2, backward_ms=5)
SIZES = {"embed": 1, "head": 0.5, "mix": 0.5, "narrow": 0.25, "wide": 2}
USED = ("embed", "mix", "wide", "narrow", "head")
MIXED = Plan(tuple(layer(name, SIZES[name]) for name in USED), registered=tuple(SIZES))

FIRST = simulate(TWELVE)
SHARED = simulate(MIXED, bucket_cap_mb=1)
RUNS = {
    "bucket_cap_mb=5": simulate(SMALL, bucket_cap_mb=5),
    "bucket_cap_mb=25": simulate(SMALL, bucket_cap_mb=25),
    "find_unused_parameters=True": simulate(SMALL, find_unused_parameters=True),
    "bucket_cap_mb_list=[2, 4]": simulate(SMALL, bucket_cap_mb_list=[2, 4]),
}
STATIC = simulate(TWELVE, static_graph=True)
SLEEPING = simulate(chain([0.25] * 8, forward_ms=5, backward_ms=10), link=Link(bandwidth_mib_s=25), bucket_cap_mb=0.25)
SEEN = {"register_hook": 1.0, "post_accumulate": 2.0, "after backward": 3.0}
WEIGHED = {"default": (2.0, 1.0), "gradient_as_bucket_view": (1.0, 1.0)}

GUESS = {
    "layer that leaves first": 11,
    "buckets in iteration 0": 1,
    "buckets in iteration 2": 3,
    "MiB in its largest bucket": 28,
}
BUCKETS = [["head", "narrow", "wide"], ["mix", "embed"]]
MIB_OF = {
    "bucket_cap_mb=5": [5, 5, 2],
    "bucket_cap_mb=25": [12],
    "find_unused_parameters=True": [11, 1],
    "bucket_cap_mb_list=[2, 4]": [2, 4, 4, 2],
}
BACKWARD = {"iteration 0": 160, "iteration 2": 90}


def guessed(name, value):
    return lab08.first_look({**GUESS, name: value}, FIRST)


def shared(*buckets):
    return lab08.assignment([list(bucket) for bucket in buckets], SHARED, list(SIZES.items()))


def seen(name, value):
    return lab08.hooks({**SEEN, name: value}, SEEN)


def sized(name, value):
    return lab08.settings({**MIB_OF, name: value}, RUNS)


def lasts(name, value):
    return lab08.backward_ms({**BACKWARD, name: value}, SLEEPING)


def length_ms(cap):
    link = Link(latency_ms=3, bandwidth_mib_s=62.5)
    trace = simulate(SIXTEEN, link=link, iterations=[2], bucket_cap_mb=cap)
    return trace.only("backward", rank=0).spans[0].length_ns / 1e6


def weighed(name, value):
    return lab08.memory({**WEIGHED, name: value}, WEIGHED)


def ours(parameters, cap):
    buckets, bucket, size = [], [], 0
    for name, more in parameters:
        bucket.append(name)
        size += more
        if size >= cap:
            buckets.append(bucket)
            bucket, size = [], 0
    return [*buckets, bucket] if bucket else buckets


def published(parameters, cap):
    buckets, bucket, size = [], [], 0
    for name, more in parameters:
        if size + more > cap:
            buckets.append(bucket)
            bucket, size = [], 0
        bucket.append(name)
        size += more
    return buckets


def only_after(parameters, cap):
    return [bucket for bucket in ours(parameters, cap) if sum(dict(parameters)[name] for name in bucket) >= cap]


def with_an_empty_one(parameters, cap):
    buckets, bucket, size = [], [], 0
    for name, more in parameters:
        bucket.append(name)
        size += more
        if size >= cap:
            buckets.append(bucket)
            bucket, size = [], 0
    return [*buckets, bucket]


def above_only(parameters, cap):
    return ours(parameters, cap + 1e-9)


def each_alone(parameters, cap):
    return [[name] for name, _ in parameters]


def all_in_one(parameters, cap):
    return [[name for name, _ in parameters]]


def backwards(parameters, cap):
    return ours(parameters[::-1], cap)


def twice(parameters, cap):
    return [*ours(parameters, cap), [parameters[0][0]]]


def nothing(parameters, cap):
    return []


def without_the_first(parameters, cap):
    return ours(parameters[1:], cap) if len(parameters) > 1 else ours(parameters, cap)


def sizes_only(parameters, cap):
    return [[size] for _, size in parameters]


def hidden_share(compute, communication, total):
    return (compute + communication - total) / min(compute, communication)


@pytest.mark.parametrize(
    "verdict",
    [
        lab08.first_look(GUESS, FIRST),
        guessed("MiB in its largest bucket", np.float32(28)),
        shared(*BUCKETS),
        shared(("wide", "head", "narrow"), ("embed", "mix")),
        lab08.hooks(SEEN, SEEN),
        lab08.flipped(" B"),
        lab08.slower_rank("d"),
        lab08.settings(MIB_OF, RUNS),
        lab08.static_graph(2, STATIC),
        lab08.backward_ms(BACKWARD, SLEEPING),
        lab08.best_cap(1, SIXTEEN, length_ms),
        lab08.best_cap(0.875, SIXTEEN, length_ms),
        lab08.fill(ours),
        lab08.fill(filled),
        lab08.coefficient(hidden_share),
        lab08.memory(WEIGHED, WEIGHED),
    ],
)
def test_right_answers_pass(verdict):
    assert verdict == PASSED


@pytest.mark.parametrize(
    "verdict",
    [
        guessed("buckets in iteration 0", ...),
        lab08.assignment(..., SHARED, list(SIZES.items())),
        seen("register_hook", ...),
        lab08.flipped(...),
        lab08.slower_rank(...),
        sized("bucket_cap_mb=25", ...),
        lab08.static_graph(..., STATIC),
        lasts("iteration 0", ...),
        lab08.best_cap(..., SIXTEEN, length_ms),
        lab08.fill(...),
        lab08.coefficient(...),
        weighed("default", ...),
    ],
)
def test_open_answers_are_not_attempted(verdict):
    assert verdict == NOT_ATTEMPTED


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (guessed("layer that leaves first", 0), "the first layer is the last to get its gradient"),
        (guessed("layer that leaves first", 12), "numbered 0 to 11"),
        (guessed("buckets in iteration 0", 3), "does not know in which order"),
        (guessed("buckets in iteration 0", 2), "iteration 0 has no caps"),
        (guessed("buckets in iteration 0", 12), "one for each layer"),
        (guessed("buckets in iteration 2", 1), "that is iteration 0"),
        (guessed("buckets in iteration 2", 2), "the first bucket is smaller"),
        (guessed("buckets in iteration 2", 24), "one for each parameter"),
        (guessed("MiB in its largest bucket", 25), "not how large it may be"),
        (guessed("MiB in its largest bucket", 24), "once it has reached it"),
        (guessed("MiB in its largest bucket", 48), "the whole model"),
        (guessed("MiB in its largest bucket", 27.5), "not a whole number"),
        (lab08.first_look({}, FIRST), "layer that leaves first is missing"),
        (shared(["wide"], ["narrow", "mix", "head"], ["embed"]), "the order in which the model *has* its layers"),
        (shared(["embed"], ["head", "mix"], ["narrow", "wide"]), "the order in which the model *has* its layers"),
        (shared(["embed"], ["mix", "wide"], ["narrow", "head"]), "the order of forward"),
        (shared(["head", "narrow"], ["wide"], ["mix"], ["embed"]), "reached* the cap, not before"),
        (shared(["head", "narrow", "wide", "mix", "embed"]), "that is iteration 0"),
        (shared(["mix", "embed"], ["head", "narrow", "wide"]), "right layers, wrong order"),
        (shared(["head", "narrow", "wide", "mix"], ["embed"]), "now add sizes up"),
        (shared(["head", "narrow", "wide"], ["mix"]), "embed is in no bucket"),
        (shared(["head", "narrow", "wide"], ["wide", "mix", "embed"]), "in two buckets"),
        (shared(["head", "tail"]), "tail is none of the layers"),
        (seen("register_hook", 2), "*before* accumulation"),
        (seen("register_hook", 1.5), "local gradient"),
        (seen("post_accumulate", 1), "*after* accumulation"),
        (seen("post_accumulate", 3), "local gradient"),
        (seen("after backward", 1.5), "two were accumulated"),
        (seen("after backward", 6), "divides by their number"),
        (seen("after backward", "x"), "after backward: got a str"),
        (lab08.flipped("a"), "bucket k leaves only after buckets 0 to k - 1"),
        (lab08.flipped("c"), "all ranks have the buckets of rank 0"),
        (lab08.slower_rank("a"), "does not split data"),
        (lab08.slower_rank("b"), "rebuilt once"),
        (lab08.slower_rank("c"), "caps are settings"),
        (sized("bucket_cap_mb=5", [1, 5, 5, 1]), "for the first bucket, too"),
        (sized("bucket_cap_mb=5", [4, 4, 4]), "have not reached 5 MiB"),
        (sized("bucket_cap_mb=5", [12]), "that is iteration 0"),
        (sized("bucket_cap_mb=25", [1, 11]), "is not the default"),
        (sized("find_unused_parameters=True", [1, 11]), "the one filled *last* leaves first"),
        (sized("find_unused_parameters=True", [12]), "even iteration 0 has several"),
        (sized("bucket_cap_mb_list=[2, 4]", [2, 4]), "half of the model"),
        (sized("bucket_cap_mb_list=[2, 4]", [2, 10]), "all buckets that follow"),
        (sized("bucket_cap_mb_list=[2, 4]", [1, 2, 4, 4, 1]), "takes the place of the small first bucket"),
        (sized("bucket_cap_mb=25", [1, 2, 3]), "add up layers of 1 MiB"),
        (lab08.static_graph(1, STATIC), "without static_graph"),
        (lab08.static_graph(0, STATIC), "as without this setting"),
        (lab08.static_graph(3, STATIC), "sooner"),
        (lasts("iteration 0", 90), "does not work from step one"),
        (lasts("iteration 0", 80), "the last bucket is full only when computing is over"),
        (lasts("iteration 2", 80), "the last bucket is full only when computing is over"),
        (lasts("iteration 2", 160), "one leaves after each layer"),
        (lasts("iteration 2", 20), "add up what computes"),
        (lab08.best_cap(0.25, SIXTEEN, length_ms), "smaller buckets are not always better"),
        (lab08.best_cap(0.5, SIXTEEN, length_ms), "too many calls"),
        (lab08.best_cap(2, SIXTEEN, length_ms), "smaller ones start sooner"),
        (lab08.best_cap(6.25, SIXTEEN, length_ms), "nothing to hide behind"),
        (lab08.best_cap(0, SIXTEEN, length_ms), "above 0"),
        (lab08.fill(published), "the last one that was filled is never appended"),
        (lab08.fill(only_after), "the last one that was filled is never appended"),
        (lab08.fill(closed_before_cap), "closes it once the cap is *reached*"),
        (lab08.fill(with_an_empty_one), "an empty bucket"),
        (lab08.fill(above_only), "reached the cap exactly"),
        (lab08.fill(each_alone), "closed before it has reached the cap"),
        (lab08.fill(all_in_one), "takes more after it has reached the cap"),
        (lab08.fill(backwards), "the order is another one"),
        (lab08.fill(twice), "in two buckets"),
        (lab08.fill(nothing), "no bucket at all"),
        (lab08.fill(without_the_first), "a in no bucket"),
        (lab08.fill(sizes_only), "wanted: a function of parameters and a cap"),
        (lab08.coefficient(lambda c, m, t: 1 - t / (c + m)), "published formula"),
        (lab08.coefficient(lambda c, m, t: c + m - t), "divide it"),
        (lab08.coefficient(lambda c, m, t: (c + m - t) / m), "hidden ÷ communication"),
        (lab08.coefficient(lambda c, m, t: (c + m - t) / c), "hidden ÷ compute"),
        (lab08.coefficient(lambda c, m, t: (c + m - t) / max(c, m)), "divided by the *longer*"),
        (lab08.coefficient(lambda c, m, t: (c + m - t) / t), "hidden ÷ total"),
        (lab08.coefficient(lambda c, m, t: max(c, m) / t), "not 0 where nothing is hidden"),
        (lab08.coefficient(lambda c, m, t: 1 - hidden_share(c, m, t)), "*not* hidden"),
        (lab08.coefficient(lambda c, m, t: (c + m) / t), "how many times faster"),
        (lab08.coefficient(lambda c, m, t: 7), "all that can be hidden is the shorter of the two"),
        (weighed("default", [1, 0]), "a copy of every gradient"),
        (weighed("default", [2, 0]), "the reducer keeps its buckets"),
        (weighed("default", [2, 2]), "sets gradients to None"),
        (weighed("gradient_as_bucket_view", [1, 0]), "the reducer keeps the memory"),
        (weighed("gradient_as_bucket_view", [2, 1]), "no memory of its own"),
        (weighed("gradient_as_bucket_view", [0, 0]), "does not mean no memory"),
    ],
)
def test_a_known_mistake_is_named(verdict, reason):
    assert verdict.status == "failed"
    assert reason in verdict.reason


def test_another_torch_makes_other_answers_right():
    one = {**GUESS, "buckets in iteration 2": 1, "MiB in its largest bucket": 48, "layer that leaves first": 11}
    assert lab08.first_look(one, simulate(TWELVE, bucket_cap_mb=100)) == PASSED


def test_the_published_code_loses_half_of_twelve_layers():
    sizes = [(one.name, one.nbytes / MIB) for one in TWELVE.parameters]
    kept = [name for bucket in published(sizes, 25) for name in bucket]
    assert kept == [one.name for one in TWELVE.parameters][:12]


JUNK = [None, True, "", "x", b"x", 7, float("nan"), [], [[]], {}, {"default": Stranger()}, Stranger(), print, int]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_fails_with_a_reason(junk):
    answers = [
        lab08.first_look(junk, FIRST),
        lab08.assignment(junk, SHARED, list(SIZES.items())),
        lab08.hooks(junk, SEEN),
        lab08.flipped(junk),
        lab08.slower_rank(junk),
        lab08.settings(junk, RUNS),
        lab08.backward_ms(junk, SLEEPING),
        lab08.fill(junk),
        lab08.coefficient(junk),
        lab08.memory(junk, WEIGHED),
        guessed("buckets in iteration 0", junk),
        seen("after backward", junk),
        sized("bucket_cap_mb=25", junk),
        weighed("default", junk),
    ]
    answers += [lab08.static_graph(junk, STATIC), lab08.best_cap(junk, SIXTEEN, length_ms)]
    assert all(verdict.status == "failed" and verdict.reason for verdict in answers)
