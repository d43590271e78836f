// Times of the kernels of several variants of the loaded model, inside of it: the RPC function
// "edgetlm.measure_variants" of device_agent/execute/variants.py.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <string>
#include <vector>

#include "executor/execute/bundle.h"
#include "executor/measure/measure.h"

namespace edgetlm {

// Runs variants of a model in turn: libraries with other programs for its kernels, which share its parameters and
// inputs. The specification is JSON of the fields of a VariantPlan; the result is JSON too. AgentError where a field is
// wrong, a library holds no such model, or a kernel failed.
std::string measure_variants(Meter* meter, const Model& model, const std::string& specification,
                             const std::vector<tvm::ffi::Module>& libraries);

}  // namespace edgetlm
