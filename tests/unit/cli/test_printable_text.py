"""Characters that steer a terminal are escaped in what others have written."""

import json

from culver.cli.printable_text import printable

HOSTILE = "\x1b[2J\x9b31m\x7f\r\u202eevil\u2066\u2028"


def test_control_characters_are_escaped_and_other_text_stays() -> None:
    plain = "Zoë 狐 🦊\tprice > 20\nnext line"
    assert printable(plain) == plain
    assert printable(HOSTILE) == r"\u001b[2J\u009b31m\u007f\u000d\u202eevil\u2066\u2028"


def test_a_json_text_keeps_its_meaning() -> None:
    text = json.dumps({"name": HOSTILE}, ensure_ascii=False)
    assert json.loads(printable(text)) == {"name": HOSTILE}
