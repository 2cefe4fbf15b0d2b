"""What every figure has in common: theme, title, the badge that says how true it is, a summary in words."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

import plotly.graph_objects as go

from lablib.trace.spans import Truth
from lablib.views.palette import DARK, LIGHT, Theme

THEME_VARIABLE = "LABLIB_THEME"
TEXT_PX = 15
TITLE_PX = 20
LINE_PX = 2
LEGEND_BELOW = {
    "orientation": "h",
    "x": 0,
    "yref": "container",
    "y": 0,
    "yanchor": "bottom",
    "traceorder": "normal",
    "itemclick": False,
    "itemdoubleclick": False,
}
"""A legend at the foot of the card, in the order of the traces, which a click does not change."""

_TOP_PX = 84
_SIDE_PX = 16


class Measured(Protocol):
    """Be a run on real ranks, as far as a badge needs to know it."""

    @property
    def backend(self) -> str | None: ...
    @property
    def device(self) -> str: ...
    @property
    def world_size(self) -> int: ...


class Recorded(Measured, Protocol):
    """Be a trace, or a table of one, as far as a badge needs to know it."""

    @property
    def truth(self) -> Truth: ...


@dataclass(frozen=True)
class Badge:
    """Say what kind of truth a figure shows.

    Args:
        truth: ``real`` processes and collectives; ``emulated`` where compute sleeps and links delay;
            ``simulated`` by formulas.
        world_size: number of ranks.
        device: ``cpu`` or ``cuda``.
        backend: ``gloo`` or ``nccl``; None where no group was made.
        note: what else must be known, in a few words.
    """

    truth: Truth
    world_size: int
    device: str = "cpu"
    backend: str | None = None
    note: str = ""

    @classmethod
    def real(cls, run: Measured, note: str = "") -> Badge:
        """Make the badge of a run on real ranks."""
        return cls("real", run.world_size, run.device, run.backend, note)

    @classmethod
    def of(cls, trace: Recorded, note: str = "") -> Badge:
        """Make the badge of a trace, or of a table that remembers where it comes from."""
        return cls(trace.truth, trace.world_size, trace.device, trace.backend, note)

    @property
    def text(self) -> str:
        """Return the badge in words: ``real · gloo · 4 ranks · cpu``."""
        ranks = f"{self.world_size} rank{'s' if self.world_size != 1 else ''}"
        return " · ".join(filter(None, (self.truth, self.backend or "no backend", ranks, self.device, self.note)))


def chosen_theme(name: str | None = None) -> Theme:
    """Return the theme called `name`; left out, the one that LABLIB_THEME in the environment names, or light.

    Raises ValueError for a name that is neither ``light`` nor ``dark``.
    """
    name = name or os.environ.get(THEME_VARIABLE) or LIGHT.name
    for theme in (LIGHT, DARK):
        if theme.name == name:
            return theme
    raise ValueError(f"theme {name!r} does not exist; choose light or dark")


def dress(fig: go.Figure, *, title: str, badge: Badge, summary: str, height_px: int, theme: Theme) -> go.Figure:
    """Give a figure the common layout and return it.

    Args:
        fig: the figure; it is changed.
        title: what it shows, in a few words.
        badge: how true it is.
        summary: the facts shown, in one line without a badge.
        height_px: full height.
        theme: colours of text and background.
    """
    font = {"size": TEXT_PX, "color": theme.ink}
    fig.update_layout(
        height=height_px,
        margin={"l": _SIDE_PX, "r": _SIDE_PX, "t": _TOP_PX, "b": _SIDE_PX},
        paper_bgcolor=theme.paper,
        plot_bgcolor=theme.paper,
        font=font,
        title={
            "text": f"<b>{title}</b>",
            "font": {"size": TITLE_PX, "color": theme.ink},
            "x": 0,
            "xref": "container",
            "pad": {"l": _SIDE_PX},
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "automargin": False,
        },
        hoverlabel={
            "font": {"size": TEXT_PX, "family": "monospace", "color": theme.ink},
            "bgcolor": theme.panel,
            "bordercolor": theme.muted,
            "align": "left",
        },
        legend={"font": font},
        meta={"summary": f"{badge.text}: {summary}", "badge": badge.text, "theme": theme.name},
    )
    fig.layout.title.pad.t = _SIDE_PX
    fig.add_annotation(_pill(badge, theme))
    fig.update_xaxes(tickfont=font, title_font=font, gridcolor=theme.grid, linecolor=theme.muted)
    fig.update_yaxes(tickfont=font, title_font=font, gridcolor=theme.grid, linecolor=theme.muted)
    return fig


def summary(fig: go.Figure) -> str:
    """Return the facts that a figure shows, in one line: for screen readers, and for comparing."""
    meta = fig.layout.meta
    if not isinstance(meta, dict) or "summary" not in meta:
        raise ValueError("this figure has no summary; only figures made by lablib.views have one")
    return str(meta["summary"])


def _pill(badge: Badge, theme: Theme) -> dict[str, Any]:
    colour = {"real": theme.real, "emulated": theme.emulated, "simulated": theme.simulated}[badge.truth]
    kind, *rest = badge.text.split(" · ")
    return {
        "name": "badge",
        "text": " · ".join((f"<b>{kind.upper()}</b>", *rest)),
        "font": {"size": TEXT_PX, "color": colour},
        "showarrow": False,
        "bordercolor": colour,
        "borderwidth": LINE_PX,
        "borderpad": 4,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "xshift": 6,
        "yshift": 10,
    }
