"""Every number that the text of BlueDove's paper gives (sections IV-C to IV-F).

The paper's testbed had 24 virtual machines of 4 cores: 20 matchers, 2 dispatchers and 2 generators. Numbers that
the paper only draws in its plots are left out.
"""

SATURATION = 114_000.0  # messages a second, of 20 matchers with 40,000 subscriptions
BELOW, ABOVE = 100_000.0, 150_000.0  # messages a second: the two rates of figure 5
MATCHERS = 20
SUBSCRIPTIONS = 40_000
RATE = 100_000.0  # messages a second, of figure 6(b)

OVER_ONE_DIMENSION = {5: 3.5, 20: 4.2}  # by matchers, saturation rate
OVER_REPLICATED = {5: 14.0, 20: 67.0}
MORE_THAN_ONE_DIMENSION = 4.0  # subscriptions, 20 matchers
MORE_THAN_REPLICATED = 30.0

ADAPTIVE_OVER = {"response-time": 1.1, "subscription-count": 1.2, "random": 3.5}
DEVIATION = {"mpartition": 0.14, "one-dimension": 0.82}

FALLS_WITHIN_SECONDS = 5.0  # of adding a matcher, on the average
LOST_PERCENT = 5.0  # of messages, after a matcher has failed
DETECTED_AFTER_SECONDS = 17.5  # on the average
FAILURE_EVERY_SECONDS = 300.0

FOUR_DIMENSIONS_OVER_ONE = 5.5
LEFT_AT_DEVIATION_1000 = 0.6  # of the rate at 250: "drops almost 40 %"
LEFT_WITH_FOUR_SKEWED = 50.0 / 114.0  # of the rate without skew: "drops more than 50 %", to about 50,000
SKEWED_OVER_ONE_DIMENSION = 50.0 / 30.0  # about 50,000 against about 30,000, which has even messages
