// Times of single kernels: the RPC function "edgetlm.measure" of device_agent/execute/kernels.py.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <string>
#include <vector>

#include "executor/measure/measure.h"
#include "executor/wire/json.h"

namespace edgetlm {

// Times `function` of a loaded module. The specification is JSON of the fields of a KernelPlan, `device` and
// `arguments` ([shape, dtype] each), which are made here where none are given; the result is JSON too.
std::string measure_kernel(Meter* meter, tvm::ffi::Module module, const std::string& name,
                           const std::string& specification, std::vector<tvm::ffi::AnyView> arguments);

}  // namespace edgetlm
