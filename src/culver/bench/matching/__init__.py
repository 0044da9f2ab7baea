"""`culver bench matching`: how fast filters match, side by side, on one core."""
