"""What setup.cfg requires can be installed on each system, as wheels; which warnings are errors."""
import configparser
import warnings

import pytest
from packaging.requirements import Requirement

from tests.kit import ROOT

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
INTEL_MAC, MAC, LINUX, ARM, WINDOWS = (
    {"sys_platform": system, "platform_machine": machine} for system, machine in (
        ("darwin", "x86_64"), ("darwin", "arm64"), ("linux", "x86_64"), ("linux", "aarch64"),
        ("win32", "AMD64")))


def required(section, key, system):
    """The requirements of a system, by name; each name stands once."""
    lines = map(Requirement, SETUP[section][key].strip().splitlines())
    found = [line for line in lines if line.marker is None or line.marker.evaluate(system)]
    names = {line.name: line.specifier for line in found}
    assert len(names) == len(found)
    return names


@pytest.mark.parametrize("system, newest", [(INTEL_MAC, "0.62.1"), (MAC, "0.68.1"),
                                            (LINUX, "0.68.1"), (ARM, "0.68.1"),
                                            (WINDOWS, "0.68.1")])
def test_numba_is_the_newest_that_has_a_wheel_there_but_not_0_66(system, newest):
    needed = required("options", "install_requires", system)
    assert needed.keys() == {"numpy", "numba", "tqdm"}
    versions = ["0.61.2", "0.62.0", "0.62.1", "0.63.0", "0.65.1", "0.66.0", "0.66.1", "0.67.0",
                "0.68.1"]
    allowed = [*needed["numba"].filter(versions)]
    assert (allowed[0], allowed[-1]) == ("0.62.0", newest)
    assert not {"0.66.0", "0.66.1"} & {*allowed}


@pytest.mark.parametrize("system, mpi", [(INTEL_MAC, "mpich"), (MAC, "mpich"), (LINUX, "mpich"),
                                         (ARM, "mpich"), (WINDOWS, "impi-rt")])
def test_the_extra_mpi_has_an_mpi_with_wheels_there(system, mpi):
    assert required("options.extras_require", "mpi", system).keys() == {"mpi4py", mpi}


def test_the_false_warnings_of_a_product_are_no_errors_and_others_are():
    for error in ("divide by zero", "overflow", "invalid value"):
        warnings.warn(f"{error} encountered in matmul", RuntimeWarning)
        with pytest.raises(RuntimeWarning):
            warnings.warn(f"{error} encountered in log", RuntimeWarning)
