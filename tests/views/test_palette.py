"""The palette: the same colour for a rank everywhere, readable on both papers and for colour-blind eyes."""

from itertools import combinations

import numpy as np
import pytest

from lablib.views import palette

# How each kind of colour blindness sees linear red, green and blue (Machado, Oliveira and Fernandes 2009, severity 1).
SEEN_BY = {
    "all": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour):
    share = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def cielab(rgb):
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one, other, eyes):
    return np.linalg.norm(cielab(eyes @ linear(one)) - cielab(eyes @ linear(other)))


@pytest.mark.parametrize("eyes", SEEN_BY)
def test_eight_ranks_stay_apart(eyes):
    seen = np.array(SEEN_BY[eyes])
    colours = [palette.rank_colour(rank) for rank in range(8)]
    assert min(distance(one, other, seen) for one, other in combinations(colours, 2)) > 12


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK], ids=lambda theme: theme.name)
def test_colours_show_on_the_paper(theme):
    assert all(palette.contrast(palette.rank_colour(rank), theme.paper) >= 2.2 for rank in range(8))
    for text in (theme.ink, theme.muted, theme.real, theme.emulated, theme.simulated):
        assert palette.contrast(text, theme.paper) >= 4.5
        assert palette.contrast(text, theme.panel) >= 4.5


def test_text_on_every_rank_is_readable():
    for rank in range(32):
        colour = palette.rank_colour(rank)
        assert palette.contrast(palette.text_on(colour), colour) >= 4.5


def test_twenty_four_ranks_have_colours_of_their_own_and_later_ones_another_dash_or_pattern():
    def look(rank):
        return palette.rank_colour(rank), palette.rank_dash(rank), palette.rank_pattern(rank)

    assert len({palette.rank_colour(rank) for rank in range(24)}) == 24
    assert len({look(rank) for rank in range(64)}) == 64


def test_contrast_is_that_of_the_standard():
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert palette.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert palette.mixed("#000000", "#ffffff", 0.5) == "#808080"
