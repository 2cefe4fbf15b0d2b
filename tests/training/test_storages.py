"""Storages that are noted: views count once, what is freed no longer, and nothing is kept alive."""

import torch

from lablib.training.storages import Storages


def test_views_share_a_storage_and_copies_do_not():
    storages, whole = Storages(), torch.zeros(10)
    parts = whole[:4], whole[4:].view(2, 3)
    for tensor in (whole, *parts):
        storages.note(tensor)
    assert (len(storages), storages.nbytes) == (1, 40)
    copy = parts[0].clone()
    storages.note(copy)
    assert (len(storages), storages.nbytes) == (2, 56)


def test_a_storage_is_gone_with_its_last_tensor():
    storages, whole = Storages(), torch.zeros(10)
    part = whole[:1]
    storages.note(whole)
    del whole
    assert (len(storages), storages.nbytes) == (1, 40)
    del part
    assert (len(storages), storages.nbytes) == (0, 0)


def test_what_autograd_keeps_is_there_and_goes_with_the_graph():
    storages, weight = Storages(), torch.ones(8, requires_grad=True)
    kept = weight * 2
    storages.note(kept)
    result = (kept * kept).sum()
    del kept
    assert storages.nbytes == 32
    del result
    assert storages.nbytes == 0
