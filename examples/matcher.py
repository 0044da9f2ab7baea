"""Match events against filters in this program, without a site. Each part is a cell of a notebook.

Needs pip install 'culver[matcher]'; the last parts use pandas, too.
"""

# %% Filters, one by one
import tempfile
from pathlib import Path

import culver

matcher = culver.Matcher()
matcher.add("dear", "price > 20 AND symbol = 'XYZ'")
matcher.add("urgent", "'urgent' IN tags OR order.amount >= 10000")

print(matcher.match({"symbol": "XYZ", "price": 21, "tags": ["urgent"]}))  # noqa: T201

# %% Many filters of one form
alerts = {"symbol": ["XYZ", "ABC", "QQQ"], "at_least": [22.0, 3.0, 400.0]}
matcher.add_many("symbol = ? AND price >= ?", alerts, ids="alert")

print(len(matcher), list(matcher))  # noqa: T201

# %% Why does an event not match?
print(matcher.explain("dear", {"symbol": "XYZ", "price": "21"}))  # noqa: T201

# %% A frame in, a column out
import pandas  # noqa: E402

trades = pandas.DataFrame(
    {
        "symbol": ["XYZ", "ABC", "QQQ"],
        "price": [22.5, 3.5, None],
        "order": [{"amount": 100}, {"amount": 20_000}, None],
    }
)
trades["matches"] = matcher.match(trades)
print(trades[["symbol", "matches"]].to_string())  # noqa: T201

# %% One row for each match, as an Arrow table
pairs = matcher.match_pairs(trades[["symbol", "price", "order"]])
print(pairs.group_by("id").aggregate([("row", "count")]).to_pylist())  # noqa: T201

# %% A file, which many processes share
with tempfile.TemporaryDirectory() as directory:
    path = Path(directory) / "alerts.matcher"
    matcher.save(path)
    with culver.Matcher.open(path) as opened:
        opened.remove("alert.1")
        print(len(matcher), len(opened))  # noqa: T201
