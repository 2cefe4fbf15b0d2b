"""What forward keeps for backward, module by module, in closed form.

With T the bytes of the numbers between two blocks (batch × sequence × hidden), S those of attention's weights (batch ×
heads × sequence × sequence), and an inner layer four times as wide, a block of a transformer keeps

    math      16 T + S      without dropout; Korthikanti et al. count 34 bytes for each number of T in 2-byte types and
                            5 for each of S: of these, dropout's masks are 2 and 1, and what they make of S is 2
    flash     16 T          and the logarithm of a sum, 4 bytes, for each row of S
    selective 16 T          S is computed again
    full       T            everything is

and two numbers for each row of each of its two norms. A linear layer keeps its input; a ReLU keeps what it makes, which
is the next layer's input; a GELU what it is given.

Sources: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4; Dao et
al., "FlashAttention", 2022; torch's tools/autograd/derivatives.yaml. The modules: `lablib.training.memory_models`.
"""

from __future__ import annotations

from collections.abc import Sequence

from lablib.errors import UsageError
from lablib.sim.dtypes import dtype_named
from lablib.sim.tape import Activations, Tape

__all__ = ["Activations", "mlp", "transformer"]


def mlp(
    widths: Sequence[int],
    *,
    batch: int,
    activation: str = "relu",
    dtype: str = "float32",
    autocast: bool = False,
    checkpoint: int = 0,
) -> Activations:
    """Return what linear layers with activations between them keep for backward, and how they come to it.

    Args:
        widths: numbers that go in, numbers between the layers, and numbers that come out.
        batch: samples on a rank.
        activation: ``relu`` or ``gelu``.
        dtype: of the model and its input.
        autocast: whether forward computes in bfloat16 with a float32 model: activations halve, and the layers keep
            bfloat16 copies of their weights, but the first.
        checkpoint: segments that the layers fall into, each of which backward computes again; 0 for none.

    Returns:
        a sequence of pairs: name of the module, or first module of the segment, and bytes.

    Raises:
        UsageError: there is no such model; the message says what to give.
    """
    _whole(batch=batch, **{f"widths[{place}]": width for place, width in enumerate(widths)})
    layers = len(widths) - 1
    if layers < 1:
        raise UsageError(f"widths={list(widths)}: give at least the numbers that go in and that come out")
    _one_of(("relu", "gelu"), activation=activation)
    segments = int(checkpoint)
    if not 0 <= segments <= layers:
        raise UsageError(f"checkpoint={checkpoint!r}: {layers} layers fall into 1 to {layers} segments; 0 is for none")
    tape = _tape(dtype, autocast)
    x = tape.tensor("input", batch * widths[0])
    segment = -1
    for layer in range(layers):
        if segments and layer * segments // layers != segment:
            segment = layer * segments // layers
            tape.segment = str(2 * layer)
        x = tape.linear(str(2 * layer), x, widths[layer + 1], into=widths[layer])
        if layer < layers - 1:
            x = tape.activation(str(2 * layer + 1), x, activation)
    return tape.done(x)


def transformer(
    *,
    layers: int,
    batch: int,
    sequence: int,
    hidden: int,
    heads: int,
    dtype: str = "float32",
    autocast: bool = False,
    attention: str = "math",
    checkpoint: str = "none",
    mlp_ratio: int = 4,
) -> Activations:
    """Return what blocks of a transformer keep for backward, and how they come to it.

    Args:
        layers: number of blocks, with the norm before attention and before the inner layers.
        batch: samples on a rank.
        sequence: positions in a sample.
        hidden: numbers at each position.
        heads: of attention.
        dtype, autocast: as of `mlp`; norms and sums then stay in float32.
        attention: ``math`` or ``flash``.
        checkpoint: ``full`` computes each block again in backward, ``selective`` only attention between what is
            computed of queries, keys and values; ``none``.
        mlp_ratio: how much wider a block is inside.

    Returns:
        a sequence of pairs: name of the module or checkpointed part, and bytes.

    Raises:
        UsageError: there is no such model; the message says what to give.
    """
    _whole(layers=layers, batch=batch, sequence=sequence, hidden=hidden, heads=heads, mlp_ratio=mlp_ratio)
    _one_of(("math", "flash"), attention=attention)
    _one_of(("none", "full", "selective"), checkpoint=checkpoint)
    if hidden % heads:
        raise UsageError(f"hidden={hidden} is not divisible by {heads} heads; try {heads * (hidden // heads + 1)}")
    tape = _tape(dtype, autocast)
    x = tape.tensor("input", batch * sequence * hidden)
    for layer in range(layers):
        block = f"blocks.{layer}"
        if checkpoint == "full":
            tape.segment = block
        normed = tape.norm(f"{block}.norm1", x, hidden)
        seen = _attend(tape, f"{block}.attention", normed, (batch, sequence, hidden, heads), attention, checkpoint)
        x = tape.add(block, [x, seen], f"{block} middle", tape.numel(x), passes=True)
        inner = tape.linear(f"{block}.up", tape.norm(f"{block}.norm2", x, hidden), mlp_ratio * hidden, into=hidden)
        inner = tape.activation(f"{block}.gelu", inner, "gelu")
        made = tape.linear(f"{block}.down", inner, hidden, into=mlp_ratio * hidden)
        x = tape.add(block, [x, made], f"{block} out", tape.numel(x), passes=True)
    return tape.done(x)


def _attend(tape: Tape, name: str, x: str, sizes: tuple[int, int, int, int], attention: str, checkpoint: str) -> str:
    batch, sequence, hidden, heads = sizes
    numel = batch * sequence * hidden
    packed = tape.linear(f"{name}.qkv", x, 3 * hidden, into=hidden)
    packed = tape.add(name, [packed], f"{name} heads", 3 * numel, views=True)
    if checkpoint == "selective":
        tape.segment = name
    q, k, v = tape.split(name, packed, [f"{name} {part}" for part in "qkv"])
    if attention == "flash":
        sums = 4 * batch * heads * sequence
        seen = f"{name} seen"
        tape.add(name, [q, k, v], seen, numel, saves=[q, k, v, seen], stats_nbytes=sums)
    else:
        weights = batch * heads * sequence * sequence
        q, k = (tape.add(name, [part], f"{part} copy", numel, passes=True) for part in (q, k))
        scores = tape.add(name, [q, k], f"{name} scores", weights, saves=[q, k])
        scores = tape.add(name, [scores], f"{name} scaled", weights)
        scores = tape.add(name, [scores], f"{name} weights", weights, saves=[f"{name} weights"])
        v = tape.add(name, [v], f"{v} copy", numel, passes=True)
        seen = tape.add(name, [scores, v], f"{name} sum", numel, saves=[scores, v])
        seen = tape.add(name, [seen], f"{name} seen", numel, holds=[packed])
    if checkpoint == "selective":
        tape.segment = ""
    return tape.linear(f"{name}.out", seen, hidden, into=hidden, holds=[x])


def _tape(dtype: str, autocast: bool) -> Tape:
    found = dtype_named(dtype)
    if not found.is_float:
        raise UsageError(f"dtype={dtype!r} has no gradients: give float32, bfloat16 or float16")
    if autocast and dtype != "float32":
        raise UsageError(f"autocast copies a float32 model: leave out dtype={dtype!r}, or autocast")
    return Tape(element=found.nbytes, autocast=autocast)


def _whole(**sizes: int) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"{name}={value!r}: give a whole number from 1 on")


def _one_of(choices: Sequence[str], **given: str) -> None:
    for name, value in given.items():
        if value not in choices:
            raise UsageError(f"{name}={value!r} is not known here; choose {', '.join(choices)}")
