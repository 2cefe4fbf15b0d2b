"""One palette for every figure: rank r has the same colour everywhere, and so has each category of memory.

The eight hues stay apart for readers with protanopia, deuteranopia or tritanopia, on white and near-black.
From the ninth rank on the hues come again, darker and then lighter, with another dash and pattern. Memory has seven of
the hues and a grey; the first three, blue, orange and green, are those of the ZeRO paper's picture
(Rajbhandari et al. 2020, figure 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from lablib.trace import Category

HUES = ("#0568aa", "#e98e00", "#0f9d58", "#cc79a7", "#37b3ff", "#dc4e09", "#a58b38", "#8852d6")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
PATTERNS = ("", "/", "x", ".")

CATEGORIES = {
    Category.PARAMETERS: HUES[0],
    Category.GRADIENTS: HUES[1],
    Category.OPTIMIZER: HUES[2],
    Category.BUFFERS: HUES[6],
    Category.COMMUNICATION: HUES[5],
    Category.ACTIVATIONS: HUES[4],
    Category.TEMPORARY: HUES[3],
    Category.OTHER: "#6b7683",
}
"""Colours of memory, in the order in which it is stacked: what stays lies below what comes and goes."""

_DARK_TEXT = "#111111"
_LIGHT_TEXT = "#ffffff"
_TURNS = ((_DARK_TEXT, 0.0), (_DARK_TEXT, 0.45), (_LIGHT_TEXT, 0.45))


@dataclass(frozen=True)
class Theme:
    """Hold the colours of everything that is not a rank."""

    name: str
    paper: str
    panel: str
    ink: str
    muted: str
    grid: str
    real: str
    emulated: str
    simulated: str


LIGHT = Theme(
    "light",
    "#ffffff",
    "#f1f3f5",
    "#1b1f23",
    "#57606a",
    "#c8ced4",
    real="#0b6b3a",
    emulated="#8a4b00",
    simulated="#5b34a8",
)
DARK = Theme(
    "dark",
    "#181a1d",
    "#262a2f",
    "#eef1f4",
    "#a9b4c0",
    "#4a525b",
    real="#5fd196",
    emulated="#f5b252",
    simulated="#c0a3ff",
)


def alarm(theme: Theme) -> str:
    """Return the colour of what is wrong or too much."""
    return "#ff7b72" if theme is DARK else "#c1121f"


def rank_colour(rank: int) -> str:
    """Return the colour of a rank, as ``#rrggbb``."""
    turn, hue = divmod(rank, len(HUES))
    return mixed(HUES[hue], *_TURNS[turn % len(_TURNS)])


def rank_dash(rank: int) -> str:
    """Return the dash of a rank's line: the second cue where hues come again."""
    return DASHES[rank // len(HUES) % len(DASHES)]


def rank_pattern(rank: int) -> str:
    """Return the fill pattern of a rank's bar: the second cue where hues come again."""
    return PATTERNS[rank // len(HUES) % len(PATTERNS)]


def text_on(colour: str) -> str:
    """Return the text colour that reads best on a filled area."""
    return max((_DARK_TEXT, _LIGHT_TEXT), key=lambda text: contrast(text, colour))


def mixed(colour: str, other: str, share: float) -> str:
    """Return `colour` with `share` (0 to 1) of `other` mixed in."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(one + (two - one) * share):02x}" for one, two in pairs)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.2, relative luminance)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    def linear(channel: int) -> float:
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(channel) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
