"""`culver bench matching` measures how fast filters match, side by side on one core."""
