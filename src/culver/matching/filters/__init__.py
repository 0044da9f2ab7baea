"""Implementations of the Filter protocol; `culver.plugins` names them."""
