"""Where the ranks live: a row for each host, a tile for each process, an outline for each group.

host-0 · started by torchrun, PID 71
  [rank 0] [rank 1]   a tile has the colour of its rank, as everywhere in the course
host-1 · started by torchrun, PID 72
  [rank 2] [rank 3]   local_rank counts from 0 again
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

import plotly.graph_objects as go

from lablib.views.frame import LINE_PX, TEXT_PX, Badge, chosen_theme, dress
from lablib.views.palette import DASHES, Theme, rank_colour, text_on
from lablib.views.places import HEAD, TILES_A_LINE, RankPlace, Row, Tile, box_of, depths_of, members_of, only, rows_of

_FEWEST_TILES_WIDE = 3.0
_ROOM_FOR_LONG_NAMES = 6  # more tiles in a line than this, and `local_rank 0` is wider than its tile
_PANEL = 0  # the first annotation holds the environment that the reader picks

_UNIT_PX = 104  # height of a tile
_PANEL_LINE_PX = 20
_PAIRS_A_LINE = 3


def hosts(
    places: Iterable[RankPlace],
    *,
    badge: Badge,
    title: str = "Hosts, processes and groups",
    across: int = TILES_A_LINE,
    theme: str | None = None,
) -> go.Figure:
    """Draw hosts, processes and groups.

    Args:
        places: one for each rank, in any order; hosts are drawn in the order of their lowest rank.
        badge: how true it is.
        title: what it shows.
        across: how many ranks of a host stand in a line; 2 shows four ranks as a 2 × 2 grid.
        theme: ``light`` or ``dark``; see `frame.chosen_theme`.

    Returns a figure; pointing at a tile, or picking a rank in its list, shows that rank's environment.
    Raises ValueError where there is no rank, or two have the same number.
    """
    by_rank = sorted(places, key=lambda place: place.rank)
    if not by_rank:
        raise ValueError("there is no rank to draw")
    if len({place.rank for place in by_rank}) < len(by_rank):
        raise ValueError("two places have the same rank; a rank is unique in its job")
    colours = chosen_theme(theme)
    rows = list(rows_of(by_rank, across=across))
    members = members_of(by_rank)
    panel_lines = 1 + max(1, *(-(-len(place.env) // _PAIRS_A_LINE) for place in by_rank))
    width = max(_FEWEST_TILES_WIDE, *(tile.x + 1 for row in rows for tile in row.tiles))
    bottom = rows[-1].y + rows[-1].height
    panel = (panel_lines * _PANEL_LINE_PX + 24) / _UNIT_PX

    fig = go.Figure()
    fig.add_annotation(_panel(by_rank[0], bottom, colours))
    for row in rows:
        _draw_host(fig, row, width, colours)
    for number, (name, ranks) in enumerate(members.items()):
        depth = depths_of(members)[name]
        _draw_group(fig, name, ranks, rows, number=number, depth=depth, theme=colours)
    fig.update_xaxes(visible=False, range=[-0.1, width + 0.1], fixedrange=True)
    fig.update_yaxes(visible=False, range=[bottom + panel, 0], fixedrange=True)
    dress(
        fig,
        title=title,
        badge=badge,
        summary=_summary(rows, members),
        height_px=round((bottom + panel) * _UNIT_PX) + 100 + (34 if members else 0),
        theme=colours,
    )
    fig.update_layout(
        updatemenus=[_picker(by_rank, colours)],
        legend={"orientation": "h", "x": 0, "y": 0, "yanchor": "top"},
    )
    return fig


def _draw_host(fig: go.Figure, row: Row, width: float, theme: Theme) -> None:
    fig.add_shape(
        type="rect",
        x0=-0.06,
        x1=width + 0.06,
        y0=row.y,
        y1=row.y + row.height,
        line={"width": LINE_PX, "color": theme.grid},
        fillcolor=theme.panel,
        layer="below",
    )
    head = f"<b>{escape(row.host)}</b>" + (f"  ·  started by {escape(row.launcher)}" if row.launcher else "")
    fig.add_annotation(
        text=head,
        x=0.04,
        y=row.y + HEAD / 2,
        xanchor="left",
        showarrow=False,
        font={"size": TEXT_PX, "color": theme.ink},
    )
    if row.launcher:
        _draw_descent(fig, row, theme)
    for tile in row.tiles:
        _draw_tile(fig, tile, short=width > _ROOM_FOR_LONG_NAMES)


def _draw_descent(fig: go.Figure, row: Row, theme: Theme) -> None:
    """Draw the lines from the launcher to the processes it started."""
    top = row.y + HEAD - 0.04
    middles = [tile.x + 0.5 for tile in row.tiles]
    lines = [(min(middles), max(middles), top, top)]
    lines += [(middle, middle, top, tile.y) for middle, tile in zip(middles, row.tiles, strict=True)]
    for x0, x1, y0, y1 in lines:
        line = {"width": LINE_PX, "color": theme.muted}
        fig.add_shape(type="line", x0=x0, x1=x1, y0=y0, y1=y1, line=line, layer="below")


def _draw_tile(fig: go.Figure, tile: Tile, *, short: bool) -> None:
    place, colour = tile.place, rank_colour(tile.place.rank)
    left, right, upper, lower = tile.x + 0.05, tile.x + 0.95, tile.y, tile.y + 1
    about = [f"<b>rank {place.rank}</b>", *([] if place.pid is None else [f"PID {place.pid}"])]
    fig.add_trace(
        go.Scatter(
            x=[left, right, right, left, left],
            y=[upper, upper, lower, lower, upper],
            mode="lines",
            fill="toself",
            fillcolor=colour,
            line={"width": LINE_PX, "color": colour},
            hoveron="fills",
            hoverinfo="text",
            text="<br>".join([*about, *(escape(pair, quote=False) for pair in _variables(place))]),
            name=f"rank {place.rank}",
            showlegend=False,
            meta={
                "rank": place.rank,
                "local_rank": place.local_rank,
                "host": place.host,
                "pid": place.pid,
                "device": place.device,
                "groups": list(place.groups),
            },
        )
    )
    about.insert(1, f"{'local' if short else 'local_rank'} {place.local_rank}")
    fig.add_annotation(
        text="<br>".join([*about, escape(place.device)]),
        x=tile.x + 0.5,
        y=tile.y + 0.5,
        showarrow=False,
        font={"size": TEXT_PX, "color": text_on(colour)},
        captureevents=False,
    )


def _draw_group(
    fig: go.Figure, name: str, ranks: list[int], rows: list[Row], *, number: int, depth: int, theme: Theme
) -> None:
    """Outline a group: once around all its tiles where nobody else is between them, else once around each."""
    tiles = [tile for row in rows for tile in row.tiles]
    inside = [tile for tile in tiles if tile.place.rank in ranks]
    boxes = [box_of(inside)] if only(inside, tiles) else [box_of([tile]) for tile in inside]
    inset = 0.005 + 0.05 * depth
    line = {"width": LINE_PX + 1, "color": theme.ink, "dash": DASHES[number % len(DASHES)]}
    xs: list[float | None] = []
    ys: list[float | None] = []
    for left, right, upper, lower in boxes:
        x0, x1, y0, y1 = left + inset, right - inset, upper - 0.06 + inset, lower + 0.06 - inset
        xs += [x0, x1, x1, x0, x0, None]
        ys += [y0, y0, y1, y1, y0, None]
    fig.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            mode="lines",
            line=line,
            hoverinfo="skip",
            name=f"{name} = {ranks}",
            showlegend=True,
            meta={"group": name, "ranks": ranks},
        )
    )


def _panel(place: RankPlace, bottom: float, theme: Theme) -> dict[str, Any]:
    return {
        "name": "environment",
        "text": _environment(place),
        "x": 0,
        "y": bottom + 0.08,
        "xanchor": "left",
        "yanchor": "top",
        "align": "left",
        "showarrow": False,
        "font": {"size": TEXT_PX, "color": theme.ink, "family": "monospace"},
    }


def _picker(by_rank: list[RankPlace], theme: Theme) -> dict[str, Any]:
    def button(place: RankPlace) -> dict[str, Any]:
        shown = {f"annotations[{_PANEL}].text": _environment(place)}
        return {"label": f"environment of rank {place.rank}", "method": "relayout", "args": [shown]}

    return {
        "type": "dropdown",
        "x": 1,
        "xanchor": "right",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 6},
        "bgcolor": theme.panel,
        "bordercolor": theme.muted,
        "font": {"size": TEXT_PX, "color": theme.ink},
        "buttons": [button(place) for place in by_rank],
    }


def _environment(place: RankPlace) -> str:
    pairs = _variables(place)
    if not pairs:
        return f"rank {place.rank} has no variables to show"
    cell = max(map(len, pairs)) + 2
    lines = [
        "".join(pair.ljust(cell, "\N{NO-BREAK SPACE}") for pair in pairs[start : start + _PAIRS_A_LINE])
        for start in range(0, len(pairs), _PAIRS_A_LINE)
    ]
    head = f"<b>rank {place.rank}</b> · another: choose it in the list, or point at it"
    return "<br>".join([head, *(escape(line, quote=False) for line in lines)])


def _variables(place: RankPlace) -> list[str]:
    return [f"{name}={value}" for name, value in place.env.items()]


def _summary(rows: list[Row], members: dict[str, list[int]]) -> str:
    lived = "; ".join(f"{row.host} has ranks {[tile.place.rank for tile in row.tiles]}" for row in rows)
    grouped = "; ".join(f"{name} = {ranks}" for name, ranks in members.items())
    return lived + (f"; groups: {grouped}" if grouped else "")
