// Times the kernels of a model on the virtual machine, with the caches as the model leaves them.
#pragma once

#include <tvm/ffi/function.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/execute/bundle.h"

namespace edgetlm {

// Begins the names of the machine's own calls, which compute nothing that a model's author would recognise.
inline constexpr std::string_view kBuiltin = "vm.builtin.";

// All calls of one kernel.
struct KernelTotal {
  int64_t calls = 0;
  double seconds = 0.0;
};

// By name, in the order of the first calls.
using KernelTotals = std::vector<std::pair<std::string, KernelTotal>>;

// What an instrument of `Model::instrumented` adds up; the machine's own calls are timed too.
class KernelTimes {
 public:
  // The model has to live as long.
  explicit KernelTimes(const Model& model) : model_(model) {}
  KernelTimes(const KernelTimes&) = delete;

  // An instrument that adds to this object, which has to live as long.
  tvm::ffi::Function instrument();
  // The totals since they were taken last.
  KernelTotals take();

 private:
  const Model& model_;
  double started_s_ = 0.0;
  KernelTotals totals_;
  std::map<std::string, size_t> places_;
};

}  // namespace edgetlm
