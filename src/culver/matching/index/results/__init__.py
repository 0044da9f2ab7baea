"""Matches by registration: gathered, or listed and grouped."""
