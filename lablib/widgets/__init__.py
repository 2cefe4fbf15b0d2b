"""Knobs around predictions and pictures; what runs on ranks is given to them."""
