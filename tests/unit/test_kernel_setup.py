"""The kernels of a site are compiled once, with progress."""

import logging
from pathlib import Path

import numba
import pytest
from numba.core import event

import culver
from culver import jit, kernel_setup
from culver.kernel_setup import prepare_kernels


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels that are kept in `tmp_path` and belong to a package of one module. Lists what is loaded."""
    loaded: list[str] = []
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(culver, "__file__", str(package / "__init__.py"))
    monkeypatch.setattr(kernel_setup, "cache_directory", lambda kernel: tmp_path)
    monkeypatch.setattr(kernel_setup, "_load_all", lambda progress: loaded.append("all"))
    return loaded


def test_all_kernels_of_a_site_are_loaded_without_a_failure() -> None:
    kernel_setup._load_all(lambda text: None)


def test_the_kernels_are_prepared_once(loads: list[str], tmp_path: Path) -> None:
    assert [prepare_kernels(print) for _ in range(3)] == [tmp_path] * 3
    assert loads == ["all"]


def test_they_are_prepared_again_when_the_package_or_the_processor_has_changed(
    loads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_kernels(print)
    (tmp_path / "package" / "kernels.py").write_text("changed = True\n")
    prepare_kernels(print)
    assert loads == ["all"] * 2
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "another")
    prepare_kernels(print)
    assert loads == ["all"] * 3


def test_a_preparation_that_fails_is_made_again(loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(kernel_setup, "_load_all", lambda progress: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepare_kernels(print)
    prepare_kernels(print)
    assert loads == ["all"]


def test_kernels_that_no_directory_can_keep_are_compiled_with_a_warning(
    loads: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernel_setup, "cache_directory", lambda kernel: None)
    with caplog.at_level(logging.WARNING):
        assert prepare_kernels(print) is None
    assert "NUMBA_CACHE_DIR" in caplog.text
    assert loads == ["all"]


def test_progress_tells_of_kernels_that_are_compiled_and_not_of_those_that_are_loaded() -> None:
    def double(number: int) -> int:
        return 2 * number

    double.__module__ = "culver.doubles"
    kernel = numba.njit(double)
    told: list[str] = []
    with event.install_listener("numba:compile", kernel_setup._Compilations(told.append)):
        assert kernel(2) == 4
        assert kernel(3) == 6
    assert told == ["compiling the kernels, once for this installation: 0 of about 90"]
    assert jit.cache_directory(kernel) is None
