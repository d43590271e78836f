from __future__ import annotations

import json
from dataclasses import replace

import pytest

from host.build import target_for
from host.compile.device_profile import target_profile
from host.errors import UserError
from targets import MachineDescription, board_for, board_names, declared, families, family_of
from targets.x86_64 import required_tiles

BOARDS = [name for name in declared() if not name.startswith("x86_64")]
# What Linux prints on real machines of each kind.
SEEN = {
    "Raspberry Pi 3 Model B Rev 1.2": ("aarch64", "0x41:0xd03", "raspberry_pi_3", "cortex-a53"),
    "Raspberry Pi 4 Model B Rev 1.4": ("aarch64", "0x41:0xd08", "raspberry_pi_4", "cortex-a72"),
    "Raspberry Pi 5 Model B Rev 1.0": ("aarch64", "0x41:0xd0b", "raspberry_pi_5", "cortex-a76"),
    "NVIDIA Jetson Nano Developer Kit": ("aarch64", "0x41:0xd07", "jetson_nano", "cortex-a57"),
    "NVIDIA Jetson Xavier NX Developer Kit": ("aarch64", "0x4e:0x004", "jetson_xavier_nx", "carmel"),
    "NVIDIA Jetson Orin Nano Developer Kit": ("aarch64", "0x41:0xd42", "jetson_orin_nano", "cortex-a78ae"),
    "Jetson AGX Orin Developer Kit": ("aarch64", "0x41:0xd42", "jetson_agx_orin", "cortex-a78ae"),
    "NVIDIA Jetson Orin NX Engineering Reference Developer Kit": (
        "aarch64",
        "0x41:0xd42",
        "jetson_orin_nx",
        "cortex-a78ae",
    ),
    "NVIDIA Jetson AGX Xavier Developer Kit": ("aarch64", "0x4e:0x004", "jetson_agx_xavier", "carmel"),
    "NVIDIA Jetson AGX Thor Developer Kit": ("aarch64", "0x41:0xd83", "jetson_agx_thor", "neoverse-v3ae"),
    "StarFive VisionFive 2 v1.3B": ("riscv64", "sifive,u74-mc", "visionfive2", "sifive-u74"),
    "spacemit k1-x deb1 board": ("riscv64", "spacemit,x60", "spacemit_k1", "spacemit-x60"),
}


def machine(name: str, cpu: str, model: str = "", features: tuple[str, ...] = ()) -> MachineDescription:
    return MachineDescription(name, cpu, 4, features, {}, 1.2e9, 1 << 30, model)


def test_boards_are_found_by_listing_the_folder() -> None:
    assert {"x86_64", "raspberry_pi_4", "jetson_orin_nano", "visionfive2", "spacemit_k1"} < set(board_names())
    assert set(BOARDS) < set(board_names())


@pytest.mark.parametrize("name", BOARDS)
def test_every_declared_machine_is_its_own_board_and_compiles(name: str) -> None:
    board = board_for(declared()[name])
    assert board is not None
    assert board.name == name
    target = target_for(board)
    assert int(target.attrs["num-cores"]) == board.hardware.cores
    assert board.hardware.source == "declared"


@pytest.mark.parametrize("name", BOARDS)
def test_hardware_models_are_plausible(name: str) -> None:
    board = board_for(declared()[name])
    assert board is not None
    hardware = board.hardware
    assert 1e9 < hardware.peak_flops < 1e11
    assert hardware.levels[-1].name == "DRAM"
    assert [level.name for level in hardware.levels[:-1]] == [
        f"L{i + 1}" for i in range(len(hardware.levels) - 1)
    ]
    for inner, outer in zip(hardware.levels, hardware.levels[1:], strict=False):
        assert inner.bandwidth_bytes_per_s > outer.bandwidth_bytes_per_s
        assert inner.latency_s < outer.latency_s
        assert inner.size_bytes < outer.size_bytes or not outer.size_bytes
    in_order = {"cortex-a53", "sifive-u74", "spacemit-x60", "generic-rv64"}
    assert (hardware.look_ahead <= 16) == (board.tvm_target["mcpu"] in in_order)


@pytest.mark.parametrize("model", SEEN)
def test_the_device_tree_picks_the_board(model: str) -> None:
    architecture, cpu, name, mcpu = SEEN[model]
    board = board_for(machine(architecture, cpu, model))
    assert board is not None
    assert (board.name, board.title, board.tvm_target["mcpu"]) == (name, model, mcpu)
    assert board.hardware.frequency_hz == 1.2e9, "as the agent reports it"


def test_an_unknown_board_is_generic_with_the_figures_of_its_core() -> None:
    unknown = replace(machine("aarch64", "0x41:0xd0b", "Some New Board"), cache_bytes={"L3": 1 << 20})
    board = board_for(unknown)
    known = board_for(declared()["raspberry_pi_5"])
    assert board is not None
    assert known is not None
    assert (board.name, board.title) == ("aarch64", "Some New Board")
    assert board.tvm_target["mcpu"] == "cortex-a76"
    assert board.hardware.fma_per_cycle == known.hardware.fma_per_cycle
    assert board.hardware.level("L3").size_bytes == 1 << 20
    plain = board_for(machine("aarch64", "0x99:0x999"))
    assert plain is not None
    assert plain.tvm_target["mcpu"] == "generic"


@pytest.mark.parametrize(
    ("cpu", "isa", "name", "bits"),
    [
        ("unknown,core", "rv64imafdcv_zicbom_zba", "rv64gcv", 128),
        ("unknown,core", "rv64imafdc_zicsr_zve32x", "rv64gc", 32),
        ("spacemit,x60", "rv64imafdcv_zvl256b", "rv64gcv", 256),
        # An older system that does not save the vector registers.
        ("spacemit,x60", "rv64imafdc", "rv64gc", 32),
        # A draft of the standard, which runs none of these programs.
        ("thead,c906", "rv64imafdcvsu", "rv64gc", 32),
        ("unknown,core", "rv64imafdc_xtheadvector", "rv64gc", 32),
    ],
)
def test_vectors_are_used_where_the_system_has_them(cpu: str, isa: str, name: str, bits: int) -> None:
    board = board_for(machine("riscv64", cpu, features=(isa,)))
    assert board is not None
    assert (board.name, board.hardware.vector_bits) == (name, bits)


_V4 = ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_ICE_LAKE = (*_V4, "avx512_vbmi2", "avx512_vnni")


@pytest.mark.parametrize(
    ("cpu", "features", "units"),
    [
        # Skylake's first generation, by data sheet.
        ("Intel(R) Xeon(R) Silver 4110 CPU @ 2.10GHz", _V4, 1.0),
        ("Intel(R) Xeon(R) Platinum 8180 CPU @ 2.50GHz", _V4, 2.0),
        ("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", (*_V4, "avx512_vnni"), 2.0),
        ("Intel(R) Xeon(R) Gold 5217 CPU @ 3.00GHz", (*_V4, "avx512_vnni"), 1.0),
        ("Intel(R) Xeon(R) Silver 4310 CPU @ 2.10GHz", _ICE_LAKE, 2.0),
        ("Intel(R) Xeon(R) E-2388G CPU @ 3.20GHz", _ICE_LAKE, 1.0),
        ("Intel(R) Xeon(R) Processor", (*_ICE_LAKE, "amx_tile", "avx512_fp16"), 2.0),
        ("11th Gen Intel(R) Core(TM) i7-11700K @ 3.60GHz", _ICE_LAKE, 1.0),
        ("AMD EPYC 9354 32-Core Processor", (*_ICE_LAKE, "avx512_bf16"), 1.0),
        ("AMD EPYC 9555 64-Core Processor", (*_ICE_LAKE, "avx512_bf16", "avx_vnni"), 2.0),
        ("AMD Ryzen AI 9 HX 370 w/ Radeon 890M", (*_ICE_LAKE, "avx512_bf16", "avx_vnni"), 1.0),
        ("AMD EPYC 7763 64-Core Processor", ("avx2", "fma"), 2.0),
        ("", ("avx2", "fma"), 2.0),
        ("", (), 1.0),
    ],
)
def test_multiply_adds_of_a_core_by_its_name_and_instructions(
    cpu: str, features: tuple[str, ...], units: float
) -> None:
    board = board_for(machine("x86_64", cpu, features=features))
    assert board is not None
    hardware = board.hardware
    assert hardware.fma_per_cycle == units
    # Two units of 256 bits join for 512 bits, and take half a vector each.
    assert hardware.halves_vectors == (units == 1.0 and features[2:7] == _V4[2:7])
    assert hardware.peak_flops == 2.0 * hardware.lanes * units * hardware.frequency_hz


@pytest.mark.parametrize(
    ("cpu", "features", "first", "third"),
    [
        # Bytes in a cycle of the first level and of the third, which is behind a mesh in servers.
        ("Intel(R) Xeon(R) Platinum 8480+", _ICE_LAKE, 128, 10),
        ("Intel(R) Xeon(R) Silver 4110 CPU @ 2.10GHz", _V4, 64, 10),
        ("Intel(R) Xeon(R) E-2388G CPU @ 3.20GHz", _ICE_LAKE, 64, 20),
        ("AMD EPYC 9555 64-Core Processor", (*_ICE_LAKE, "avx512_bf16", "avx_vnni"), 128, 20),
        ("AMD EPYC 7763 64-Core Processor", ("avx2", "fma"), 64, 20),
    ],
)
def test_what_the_caches_of_a_core_deliver(
    cpu: str, features: tuple[str, ...], first: int, third: int
) -> None:
    board = board_for(machine("x86_64", cpu, features=features))
    assert board is not None
    levels, clock = board.hardware.levels, board.hardware.frequency_hz
    assert levels[0].bandwidth_bytes_per_s == first * clock
    assert levels[2].bandwidth_bytes_per_s == third * clock


@pytest.mark.parametrize(
    ("cpu", "features", "restrict", "shared"),
    [
        ("Intel(R) Xeon(R) Processor", (*_ICE_LAKE, "amx_tile"), "", True),
        ("Intel(R) Xeon(R) Platinum 8180 CPU @ 2.50GHz", _V4, "", True),
        # One unit of 512 bits, two of 256, and cores that were not measured.
        ("Intel(R) Xeon(R) Silver 4110 CPU @ 2.10GHz", _V4, "", False),
        ("Intel(R) Xeon(R) Processor", (*_ICE_LAKE, "amx_tile"), "avx2", False),
        ("Intel(R) Xeon(R) E-2388G CPU @ 3.20GHz", _ICE_LAKE, "", False),
        ("AMD EPYC 9354 32-Core Processor", (*_ICE_LAKE, "avx512_bf16"), "", False),
        ("AMD EPYC 9555 64-Core Processor", (*_ICE_LAKE, "avx512_bf16", "avx_vnni"), "", False),
    ],
)
def test_fetching_and_counting_take_turns_beside_two_wide_units(
    cpu: str, features: tuple[str, ...], restrict: str, shared: bool
) -> None:
    board = board_for(machine("x86_64", cpu, features=features), restrict)
    assert board is not None
    assert (board.hardware.fetch_cycles > 0.0) == shared
    assert (board.hardware.loop_cycles > 0.0) == shared


def test_a_larger_first_level_has_more_ways() -> None:
    """Its sets are found by the bits of an address within a page of 4 KB."""
    described = machine("x86_64", "", features=("avx2", "fma"))
    for size, ways in ((32 << 10, 8), (48 << 10, 12)):
        board = board_for(replace(described, cache_bytes={"L1": size}))
        assert board is not None
        assert board.hardware.levels[0].ways == ways


@pytest.mark.parametrize(
    ("cpu", "features", "per_cycle"),
    [
        ("AMD EPYC 9354 32-Core Processor", (*_ICE_LAKE, "avx512_bf16"), 1.0),
        ("AMD EPYC 9555 64-Core Processor", (*_ICE_LAKE, "avx512_bf16", "avx_vnni"), 2.0),
        ("Intel(R) Xeon(R) Platinum 8480+", (*_ICE_LAKE, "avx512_bf16", "amx_tile"), 0.5),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", _ICE_LAKE, None),
        ("AMD EPYC 9354 32-Core Processor", ("avx2", "fma", "avx512_bf16"), None),
    ],
)
def test_dot_products_of_bfloat16_by_instructions(
    cpu: str, features: tuple[str, ...], per_cycle: float | None
) -> None:
    board = board_for(machine("x86_64", cpu, features=features))
    assert board is not None
    found = board.hardware.bfloat16
    assert (None if found is None else found.per_cycle) == per_cycle
    assert ("+avx512bf16" in list(map(str, board.tvm_target.get("mattr", ())))) == (found is not None)  # type: ignore[call-overload]
    assert board.hardware.has_fast_bfloat16 == ("AMD" in cpu and found is not None)


@pytest.mark.parametrize(
    ("features", "kinds"),
    [
        (("amx_tile", "amx_int8", "amx_bf16"), ("u8s8", "s8s8", "bf16bf16")),
        (("amx_tile", "amx_int8"), ("u8s8", "s8s8")),
        (("amx_tile",), None),
        (("amx_int8",), None),
    ],
)
def test_registers_of_matrices(features: tuple[str, ...], kinds: tuple[str, ...] | None) -> None:
    described = machine("x86_64", "Intel(R) Xeon(R) Processor", features=(*_ICE_LAKE, *features))
    board = board_for(described)
    assert board is not None
    found = board.hardware.matrix_tiles
    assert (None if found is None else found.kinds) == kinds
    named = [f"+{name.replace('_', '-')}" for name in features]
    attributes = list(map(str, board.tvm_target.get("mattr", ())))  # type: ignore[call-overload]
    assert all((name in attributes) == (found is not None) for name in named)
    # Numbers of bfloat16 are made by instructions that a virtual machine may hide.
    assert not board.hardware.has_bfloat16_tiles and not board.hardware.has_fast_bfloat16_layers
    whole = board_for(replace(described, features=(*described.features, "avx512_bf16")))
    assert whole is not None
    assert whole.hardware.has_fast_bfloat16_layers == ("bf16bf16" in (kinds or ()))
    assert required_tiles(board.tvm_target) == (features if kinds else ())
    narrow = board_for(described, "avx2")
    assert narrow is not None and narrow.hardware.matrix_tiles is None
    assert required_tiles(narrow.tvm_target) == ()


def test_a_machine_that_nobody_claims() -> None:
    assert board_for(machine("sparc64", "")) is None


def test_restrictions_are_known_or_refused() -> None:
    with pytest.raises(ValueError, match="raspberry_pi_4 knows no restriction 'avx2'"):
        board_for(declared()["raspberry_pi_4"], "avx2")


def test_jetsons_carry_their_gpu() -> None:
    board = board_for(declared()["jetson_orin_nano"])
    assert board is not None
    assert board.gpu is not None
    assert board.on_gpu().tvm_target["arch"] == "sm_87"
    assert board.hardware.dot_product
    assert not board.on_gpu().hardware.dot_product


def test_families_stand_for_their_boards() -> None:
    found = families()
    assert set(found) == {"jetson", "raspberry-pi", "riscv"}
    assert {"jetson_nano", "jetson_xavier_nx", "jetson_orin_nano", "jetson_agx_orin"} < set(found["jetson"])
    assert found["raspberry-pi"] == ("raspberry_pi_3", "raspberry_pi_4", "raspberry_pi_5")
    assert set(found["riscv"]) == {"rv64gc", "rv64gcv", "spacemit_k1", "visionfive2"}
    assert family_of("jetson_agx_orin") == "jetson"
    assert family_of("aarch64") == family_of("x86_64") == ""


@pytest.mark.parametrize("name", families()["jetson"])
def test_every_jetson_says_which_rails_are_its_whole(name: str) -> None:
    board = board_for(declared()[name])
    assert board is not None
    assert board.rails
    assert board.boundary
    # A total and its parts must never be added.
    totals = {"VDD_IN", "POM_5V_IN", "VIN"} & set(board.rails)
    assert not totals or len(board.rails) == 1
    assert "VDDQ_VDD2_1V8AO" not in board.rails


def test_facts_for_the_agent_are_plain_data() -> None:
    board = board_for(declared()["jetson_agx_orin"])
    assert board is not None
    facts = json.loads(json.dumps(board.facts()))
    assert facts == board.facts()
    assert facts["schema"] == "edgetlm.board/1"
    assert (facts["name"], facts["family"], facts["sensors"]) == ("jetson_agx_orin", "jetson", ["ina3221"])
    assert facts["rails"] == ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"]


def test_power_modes_of_orin_have_data_of_their_gpu() -> None:
    for name in ("jetson_orin_nano", "jetson_orin_nx", "jetson_agx_orin"):
        board = board_for(declared()[name])
        assert board is not None and board.gpu is not None
        modes = board.gpu_modes()
        assert set(board.power_modes) <= set(modes)
        # The figures without a mode are those of the first.
        assert board.gpu.in_mode(next(iter(modes.values()))) is board.gpu
        for mode in modes.values():
            gpu = board.gpu.in_mode(mode)
            share = mode.frequency_hz * mode.multiprocessors
            share /= board.gpu.frequency_hz * board.gpu.multiprocessors
            assert gpu.peak_flops == pytest.approx(board.gpu.peak_flops * share)
            usual = board.gpu.level("L2").bandwidth_bytes_per_s
            assert gpu.level("L2").bandwidth_bytes_per_s == pytest.approx(usual * share)
            assert gpu.level("DRAM").bandwidth_bytes_per_s == mode.memory_bytes_per_s
            assert gpu.level("DRAM").latency_s == board.gpu.level("DRAM").latency_s


def test_a_target_may_be_in_a_power_mode() -> None:
    usual, low = (target_profile(name).board.gpu for name in ("jetson_orin_nano", "jetson_orin_nano@7W"))
    assert usual is not None and low is not None
    assert (usual.multiprocessors, low.multiprocessors) == (8, 4)
    with pytest.raises(UserError, match="no power mode 'x' of jetson_orin_nano's GPU: use 15W, 7W, 25W"):
        target_profile("jetson_orin_nano@x")
    with pytest.raises(UserError, match="no power mode '15W' of raspberry_pi_4's GPU: none is known"):
        target_profile("raspberry_pi_4@15W")


def test_weights_come_from_the_level_that_holds_all_of_a_model() -> None:
    caches = {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
    board = board_for(MachineDescription("x86_64", "test", 1, ("avx2", "fma"), caches, 3e9, 1 << 30))
    assert board is not None
    hardware = board.hardware

    def source(size_bytes: int) -> str:
        found = hardware.with_weights(size_bytes)
        return found.levels[found.weights_level].name

    assert [source(size) for size in (1, 600 << 10, 8 << 20, 64 << 20)] == ["L2", "L2", "L3", "DRAM"]
    assert source(0) == "DRAM", "where it is not known"
    assert hardware.with_weights(8 << 20) is hardware.with_weights(9 << 20)
    alone = replace(hardware, levels=hardware.levels[-1:])
    assert alone.with_weights(1) is alone, "as a bundle from elsewhere may have it"
