"""The filtering scheme of a subscription: the name of the filter that matches it (StreamHub, section 3.2.1).

`culver.plugins` has the table of filters. Subscriptions of several schemes live side by side, those of each scheme
matched by an operator M of its own, and all schemes give the same answers.
"""

COLUMNAR = "columnar"
"""Of every subscription that names no other, and of all members of sets."""
