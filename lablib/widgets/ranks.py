"""A knob to choose ranks: one button a rank."""

from __future__ import annotations

from typing import Any

import ipywidgets
import traitlets


class RankPicker(ipywidgets.HBox):  # type: ignore[misc]
    """Choose some ranks; ``value`` is a tuple of them, in order.

    Args:
        world_size: how many ranks there are; change it with `resize`.
        most: how many there can be.
        description: the words before the buttons.
    """

    value = traitlets.Tuple()

    def __init__(self, world_size: int, *, most: int = 8, description: str = "ranks") -> None:
        self._size = 0
        self._buttons = [
            ipywidgets.ToggleButton(description=str(rank), tooltip=f"rank {rank}", layout={"width": "36px"})
            for rank in range(most)
        ]
        label = ipywidgets.Label(description, layout={"width": "72px", "justify_content": "flex-end"})
        super().__init__([label, *self._buttons], layout={"align_items": "center"})
        self.resize(world_size)
        self.observe(self._follow, "value")
        for button in self._buttons:
            button.observe(self._pressed, "value")

    def resize(self, world_size: int) -> None:
        """Offer so many ranks; new ones are chosen, and others stay as they are."""
        chosen = {rank for rank in self.value if rank < world_size} | {*range(self._size, world_size)}
        self._size = world_size
        for rank, button in enumerate(self._buttons):
            button.layout.display = None if rank < world_size else "none"
        self.value = tuple(chosen)
        self._follow(None)

    @traitlets.validate("value")
    def _sorted(self, proposal: Any) -> tuple[int, ...]:
        return tuple(sorted({int(rank) for rank in proposal["value"]}))

    def _follow(self, _: Any) -> None:
        for rank, button in enumerate(self._buttons):
            button.value = rank in self.value

    def _pressed(self, change: Any) -> None:
        rank = self._buttons.index(change["owner"])
        if change["new"] != (rank in self.value):
            self.value = tuple({*self.value} ^ {rank})
