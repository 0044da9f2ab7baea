"""A site of a demo, as a process that ends with the demo: `python -m culver.cli.demo.attended_site serve ...`.

The demo holds the other end of this process's standard input, and never writes. If the demo is killed, the system
closes that end, and the site stops as by Ctrl-C.
"""

import os
import signal
import sys
import threading
import time

_STOP_SECONDS = 20.0


def _stop_with_the_demo() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_STOP_SECONDS)
    os.killpg(os.getpgid(0), signal.SIGKILL)  # it leads a group of its own


def main() -> int:
    threading.Thread(target=_stop_with_the_demo, name="culver-demo", daemon=True).start()
    from culver.cli import main as culver

    return culver(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
