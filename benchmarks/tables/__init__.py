"""The tables of the documents, by the name that their blocks have."""

from benchmarks.tables import device, gpu, modelled, models, operators
from benchmarks.tables.language_models import language_models
from benchmarks.tables.support import support
from benchmarks.tables.table import Table

TABLES: dict[str, Table] = {
    "end_to_end_1_thread": Table(("e2e_1_thread",), models.end_to_end),
    "end_to_end_2_threads": Table(("e2e_2_threads",), models.end_to_end),
    "zoo": Table(("e2e_zoo",), models.zoo),
    "attention": Table(("e2e_attention",), models.end_to_end),
    "bfloat16_models": Table(("e2e_bf16",), models.bfloat16),
    "quantised_models": Table(("e2e_int8",), models.zoo),
    "loops_and_regions": Table(("e2e_loops_and_regions",), models.end_to_end),
    "loops_and_regions_2_threads": Table(("e2e_loops_and_regions_2_threads",), models.end_to_end),
    "language_models_int4": Table(("llm_int4_1_thread",), language_models),
    "language_models_int4_2_threads": Table(("llm_int4_2_threads",), language_models),
    "language_models_int8": Table(("llm_int8_1_thread",), language_models),
    "gpu_kernels": Table(
        ("gpu_kernels_mobilenetv2", "gpu_kernels_resnet50", "gpu_kernels_vit_tiny"), gpu.kernels
    ),
    "operators": Table(("operators",), operators.times),
    "operators_summary": Table(("operators",), operators.summary),
    "operators_others": Table(("operators_others",), operators.slower_than_library),
    "evaluation": Table(("evaluation",), models.evaluation),
    "evaluation_seconds": Table(("evaluation",), models.seconds_to_speed),
    "new_board": Table(("evaluation_avx2", "new_board"), models.new_board),
    "trials": Table(("trials",), models.trials),
    "first_programs": Table(("first_programs",), models.first_programs),
    "learned_estimate": Table(("learned_estimate",), models.learned_estimate),
    "learned_estimate_curve": Table(("learned_estimate",), models.learned_estimate_curve),
    "measured_search": Table(("measured_search",), models.measured_search),
    "modelled_boards": Table(("modelled_boards",), modelled.first_programs),
    "modelled_boards_shares": Table(("modelled_boards",), modelled.shares),
    "modelled_boards_published": Table(("modelled_boards_published",), modelled.published),
    "emulation": Table(("emulation",), operators.emulation),
    "instructions": Table(("instructions",), operators.instructions),
    "onnx_nodes": Table(("onnx_nodes",), models.node_tests),
    "learned_constants": Table(("learned_constants",), operators.learned_constants),
    "learned_choices": Table(("learned_constants",), operators.learned_choices),
    "dot_products": Table(("dot_products",), operators.dot_products),
    "dot_products_avx2": Table(("dot_products_avx2",), operators.dot_products),
    "agent": Table(("agent",), device.agent),
    "overhead": Table(("overhead",), device.overhead),
    "construction": Table(("construction",), operators.construction),
    "sampling": Table(("sampling",), device.sampling),
    "memory": Table(("memory",), device.memory),
    "light_commands": Table(("light_commands",), models.light_commands),
    "first_model": Table(("first_model",), models.first_model),
    "scale": Table(("scale",), device.scale),
    "bundle_check": Table(("bundle_check",), device.bundle_check),
    "fuzzing": Table(("fuzz_models", "fuzz_models_2", "fuzz_manifests", "fuzz_frames"), device.fuzzing),
    "random_models": Table(("fuzz_numbers",), device.fuzzing),
    "process_replay": Table(("process_replay",), device.process_replay),
    "support": Table((), support),
}
