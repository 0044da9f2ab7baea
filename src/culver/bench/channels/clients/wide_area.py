"""Latencies of a wide-area network, added to measured response times as the paper does (section V-B).

The paper draws from the King dataset, North America only, which is not at hand. Here a log-normal distribution stands
for it. Its shape comes from what is published of the whole dataset (median round trip 159 ms, mean 180 ms: a
deviation of 0.5 of the logarithm), its scale from the paper's own result: a message that passes the network twice
takes about 75 ms where no server is loaded.
"""

import math

from culver.bench.channels import dynamoth_paper as paper

DEVIATION = math.sqrt(2 * math.log(180 / 159))
MEAN_MS = paper.USUAL_RESPONSE_MS / 2
_LOGARITHM = math.log(MEAN_MS / 1e3) - DEVIATION**2 / 2


def draw_seconds(normal: float) -> float:
    """One passage, from a draw of the standard normal distribution."""
    return math.exp(_LOGARITHM + DEVIATION * normal)
