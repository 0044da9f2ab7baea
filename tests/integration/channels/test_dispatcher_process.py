import subprocess
import sys


def test_a_dispatcher_whose_service_has_died_before_it_began_ends_by_itself() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(10)
    options = ["--server", "1", "--url", "redis://127.0.0.1:1", "--parent", str(gone.pid)]
    with subprocess.Popen(
        [sys.executable, "-m", "culver.channels.dispatcher_process", *options],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as dispatcher:
        assert dispatcher.stdin is not None
        dispatcher.stdin.write(b"00\n\n")
        dispatcher.stdin.close()
        assert dispatcher.wait(20) == 0
