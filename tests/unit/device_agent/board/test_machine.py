"""Descriptions and states from fake system trees."""

from __future__ import annotations

from dataclasses import fields

from device_agent.board import matrix_tiles
from device_agent.board.machine import Machine, software
from targets import MachineDescription


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def board(root):
    write(
        root,
        "proc/cpuinfo",
        "processor : 0\nmodel name\t: Some CPU @ 2GHz\nflags\t\t: fpu avx2 fma\ncpu MHz : 1500.5\n",
    )
    write(root, "proc/meminfo", "MemTotal:  1024 kB\n")
    write(root, "proc/loadavg", "0.25 0.1 0.05 1/100 42\n")
    write(root, "proc/device-tree/model", "Board 3000\0")
    for index, level, kind, size in (
        (0, 1, "Data", "32K"),
        (1, 1, "Instruction", "64K"),
        (2, 2, "Unified", "1M"),
    ):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        write(root, f"{folder}/level", str(level))
        write(root, f"{folder}/type", kind)
        write(root, f"{folder}/size", size)
    return Machine(str(root))


def test_a_description_has_the_fields_of_the_host(tmp_path):
    described = board(tmp_path).describe()
    # Which board it is, the host decides.
    assert set(described) == {field.name for field in fields(MachineDescription)} - {"board"}
    assert described["cpu_name"] == "Some CPU @ 2GHz"
    assert described["features"] == ["fpu", "avx2", "fma"]
    assert described["cache_bytes"] == {"L1": 32 << 10, "L2": 1 << 20}
    assert described["memory_bytes"] == 1 << 20
    assert described["device_tree_model"] == "Board 3000"
    assert described["frequency_hz"] == 1500.5e6


def test_registers_that_linux_refuses_are_no_feature(tmp_path, monkeypatch):
    """A container's filter, or a kernel that does not save them: programs with them would end there."""
    machine = board(tmp_path)
    write(tmp_path, "proc/cpuinfo", "flags : avx2 amx_tile amx_int8 amx_bf16 fma\n")
    for may, features in (
        (False, ["avx2", "fma"]),
        (True, ["avx2", "amx_tile", "amx_int8", "amx_bf16", "fma"]),
    ):
        monkeypatch.setattr(matrix_tiles, "may_use_tiles", lambda may=may: may)
        assert machine.describe()["features"] == features


def test_arm_and_risc_v_processors_are_told_by_what_linux_prints(tmp_path):
    write(tmp_path, "proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd08\nFeatures\t: fp asimd\n")
    described = Machine(str(tmp_path)).describe()
    assert described["cpu_name"] == "0x41:0xd08"
    assert described["features"] == ["fp", "asimd"]
    write(tmp_path, "proc/cpuinfo", "isa\t: rv64imafdcv_zba\nuarch\t\t: spacemit,x60\n")
    described = Machine(str(tmp_path)).describe()
    assert described["cpu_name"] == "spacemit,x60"
    assert described["features"] == ["rv64imafdcv_zba"]


def test_cpufreq_is_preferred_to_cpuinfo(tmp_path):
    machine = board(tmp_path)
    write(tmp_path, "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "1200000")
    write(tmp_path, "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "2400000")
    write(tmp_path, "sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance")
    assert machine.describe()["frequency_hz"] == 2.4e9
    state = machine.state()
    assert state["clocks_hz"] == [1.2e9]
    assert state["governors"] == {"policy0": "performance"}


def test_a_state_holds_temperatures_and_throttling_where_there_are_any(tmp_path):
    machine = board(tmp_path)
    assert "temperatures_c" not in machine.state() and "throttle_count" not in machine.state()
    write(tmp_path, "sys/class/thermal/thermal_zone0/temp", "45500")
    write(tmp_path, "sys/class/thermal/thermal_zone0/type", "x86_pkg_temp")
    write(tmp_path, "sys/class/thermal/thermal_zone1/temp", "not a number")
    write(tmp_path, "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3")
    write(tmp_path, "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4")
    # Zones do not come and go: they are looked for once.
    state = Machine(str(tmp_path)).state()
    assert state["temperatures_c"] == {"thermal_zone0.x86_pkg_temp": 45.5}
    assert state["throttle_count"] == 7
    assert state["load_1min"] == 0.25


def test_an_empty_tree_describes_something(tmp_path):
    described = Machine(str(tmp_path)).describe()
    assert described["cores"] >= 1 and described["memory_bytes"] == 0 and described["features"] == []


def test_versions_of_installed_runtimes_are_found():
    import importlib.metadata

    assert software()["tvm_ffi"] == importlib.metadata.version("apache-tvm-ffi")
