import pytest
from hypothesis import given, strategies as st

from culver.channels.core.balance.server_capacity import LoadThresholds, ServerCapacity
from culver.channels.core.channel_load import ServerLoad

MB = 1e6


def _load(outgoing: float, cpu: float = 0.1, **signs: float) -> ServerLoad:
    return ServerLoad(
        server=1,
        seconds=5,
        outgoing_bytes=outgoing,
        cpu=cpu,
        clients=100,
        output_buffer_bytes=int(signs.get("buffers", 0)),
        buffer_growth=signs.get("growth", 0),
        waiting_clients=int(signs.get("waiting", 0)),
        probe_seconds=signs.get("probe", 0),
    )


def _observe(capacity: ServerCapacity, load: ServerLoad, seconds: int, begin: float = 0.0) -> float:
    for second in range(seconds):
        capacity.observe(load, begin + second)
    return begin + seconds


def test_the_load_ratio_is_the_larger_of_bandwidth_and_cpu() -> None:
    capacity = ServerCapacity(bandwidth=10 * MB, cpu=0.8)
    assert capacity.load_ratio(_load(5 * MB, cpu=0.2)) == pytest.approx(0.5)
    assert capacity.load_ratio(_load(1 * MB, cpu=0.6)) == pytest.approx(0.75)


def test_growing_buffers_of_many_clients_lower_the_allowed_bandwidth_to_what_was_sent() -> None:
    capacity = ServerCapacity(bandwidth=100 * MB)
    load = _load(10 * MB, buffers=5 * MB, growth=MB, waiting=50)
    _observe(capacity, load, 5)
    assert capacity.allowed_bytes == pytest.approx(10 * MB, rel=0.01)
    assert capacity.load_ratio(load) == pytest.approx(1.0, rel=0.01)
    assert capacity.saturation == "output buffers of 5.0 MB grow"


def test_health_raises_an_estimate_and_never_a_limit() -> None:
    estimate, limit = ServerCapacity(bandwidth=10 * MB), ServerCapacity(bandwidth=10 * MB, is_limit=True)
    for capacity in (estimate, limit):
        _observe(capacity, _load(15 * MB), 10)
    assert estimate.allowed_bytes == pytest.approx(15 * MB, rel=0.01)
    assert limit.allowed_bytes == 10 * MB
    assert limit.load_ratio(_load(15 * MB)) == pytest.approx(1.5)


def test_one_slow_reader_teaches_nothing() -> None:
    capacity = ServerCapacity(bandwidth=100 * MB)
    _observe(capacity, _load(10 * MB, buffers=5 * MB, growth=MB, waiting=1), 60)
    assert capacity.allowed_bytes == 100 * MB


def test_a_sign_of_one_second_teaches_nothing() -> None:
    capacity = ServerCapacity(bandwidth=100 * MB)
    for second in range(20):
        capacity.observe(_load(50 * MB, probe=0.2 if second % 2 else 0), second)
    assert capacity.allowed_bytes == 100 * MB


def test_slow_probes_lower_the_resource_that_is_nearer_to_its_limit() -> None:
    by_bytes, by_cpu = ServerCapacity(bandwidth=100 * MB), ServerCapacity(bandwidth=100 * MB)
    _observe(by_bytes, _load(60 * MB, cpu=0.2, probe=0.2), 5)
    assert by_bytes.allowed_bytes == pytest.approx(60 * MB, rel=0.01)
    assert by_bytes.allowed_cpu == 0.9
    _observe(by_cpu, _load(10 * MB, cpu=0.5, probe=0.2), 5)
    assert by_cpu.allowed_bytes == 100 * MB
    assert by_cpu.allowed_cpu == pytest.approx(0.5, rel=0.01)


def test_slow_probes_of_an_idle_server_teach_nothing() -> None:
    capacity = ServerCapacity(bandwidth=100 * MB)
    _observe(capacity, _load(10 * MB, cpu=0.1, probe=0.5), 20)
    assert capacity.allowed_bytes == 100 * MB
    assert capacity.saturation is None


def test_buffers_of_a_burst_teach_nothing() -> None:
    capacity = ServerCapacity(bandwidth=100 * MB)
    _observe(capacity, _load(60 * MB, buffers=5 * MB, growth=MB, waiting=50), 20)
    assert capacity.allowed_bytes == 100 * MB


def test_a_full_core_is_a_load_ratio_above_one() -> None:
    capacity = ServerCapacity(bandwidth=100 * MB)
    load = _load(5 * MB, cpu=0.99)
    _observe(capacity, load, 5)
    assert capacity.load_ratio(load) > 1
    assert capacity.saturation == "CPU at 99% of a core"


def test_healthy_throughput_above_the_estimate_raises_it() -> None:
    capacity = ServerCapacity(bandwidth=10 * MB)
    _observe(capacity, _load(15 * MB), 3)
    assert capacity.allowed_bytes == 10 * MB
    _observe(capacity, _load(15 * MB), 3, begin=3)
    assert capacity.allowed_bytes == pytest.approx(15 * MB)


def test_a_lesson_fades_slowly() -> None:
    capacity = ServerCapacity(bandwidth=100 * MB)
    now = _observe(capacity, _load(20 * MB, buffers=5 * MB, growth=MB, waiting=50), 5)
    capacity.observe(_load(0), now + 30)
    assert capacity.allowed_bytes < 25 * MB
    capacity.observe(_load(0), now + 600)
    assert 55 * MB < capacity.allowed_bytes < 65 * MB
    capacity.observe(_load(0), now + 36_000)
    assert capacity.allowed_bytes == pytest.approx(100 * MB)


def test_no_lesson_takes_everything() -> None:
    capacity = ServerCapacity(bandwidth=16 * MB)
    _observe(capacity, _load(0, buffers=5 * MB, growth=MB, waiting=50), 20)
    assert capacity.allowed_bytes == pytest.approx(1 * MB, rel=0.01)


def test_thresholds_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="must rise"):
        LoadThresholds(high=0.5, safe=0.6)
    with pytest.raises(ValueError, match="positive"):
        ServerCapacity(bandwidth=0)


@given(
    st.lists(
        st.builds(
            _load,
            st.floats(0, 500 * MB),
            st.floats(0, 1),
            probe=st.floats(0, 1),
            buffers=st.floats(0, 64 * MB),
            growth=st.floats(-MB, MB),
            waiting=st.integers(0, 100),
        ),
        max_size=50,
    )
)
def test_estimates_stay_between_the_floor_and_the_most_that_was_seen(loads: list[ServerLoad]) -> None:
    capacity = ServerCapacity(bandwidth=100 * MB)
    for second, load in enumerate(loads):
        capacity.observe(load, second)
        most = max(100 * MB, *(seen.outgoing_bytes for seen in loads))
        assert 100 * MB / 16 * 0.999 <= capacity.allowed_bytes <= most
        assert 0 < capacity.allowed_cpu <= 1
