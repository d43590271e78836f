#include "executor/execute/kernel_times.h"

#include "executor/clock.h"

namespace edgetlm {
namespace ffi = tvm::ffi;

ffi::Function KernelTimes::instrument() {
  // The machine passes to it the function, its name, whether this is before the call, the result, the arguments.
  return ffi::Function::FromPacked([this](ffi::PackedArgs arguments, ffi::Any*) {
    model_.synchronise();
    if (arguments[2].cast<bool>()) {
      started_s_ = seconds_now();
      return;
    }
    const double spent_s = seconds_now() - started_s_;
    const std::string name = arguments[1].cast<std::string>();
    const auto [place, added] = places_.emplace(name, totals_.size());
    if (added) totals_.emplace_back(name, KernelTotal{});
    KernelTotal& total = totals_[place->second].second;
    total.seconds += spent_s;
    ++total.calls;
  });
}

KernelTotals KernelTimes::take() {
  places_.clear();
  return std::exchange(totals_, {});
}

}  // namespace edgetlm
