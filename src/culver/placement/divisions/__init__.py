"""Dimensions divided among slices, and what is decided about them."""
