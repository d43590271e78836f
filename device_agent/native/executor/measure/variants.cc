#include "executor/measure/variants.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "executor/clock.h"
#include "executor/errors.h"
#include "executor/execute/engine.h"
#include "executor/execute/kernel_times.h"
#include "executor/wire/json.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

// One library of a model, on a machine of its own.
class Variant {
 public:
  Variant(const Model& model, const ffi::Module& library, size_t place)
      : name_("variant " + std::to_string(place)), times_(model), model_(model) {
    try {
      invoke_ = model.instrumented(times_.instrument(), library);
    } catch (const ffi::Error& error) {
      throw tvm_fails("tvm cannot load " + name_, error.message());
    } catch (const AgentError& error) {
      throw tvm_fails("tvm cannot load " + name_, error.what());
    }
  }

  // One inference: calls and seconds of each kernel; those of the machine itself are left out.
  KernelTotals run() {
    try {
      invoke_();
      model_.synchronise();
    } catch (const ffi::Error& error) {
      throw tvm_fails("tvm cannot run " + name_, error.message());
    }
    KernelTotals totals = times_.take();
    std::erase_if(totals, [](const auto& entry) { return entry.first.starts_with(kBuiltin); });
    return totals;
  }

 private:
  const std::string name_;
  KernelTimes times_;
  const Model& model_;
  ffi::Function invoke_;
};

double seconds_of(const KernelTotals& run) {
  return std::accumulate(run.begin(), run.end(), 0.0,
                         [](double sum, const auto& entry) { return sum + entry.second.seconds; });
}

// The times of each kernel of the first run in all runs.
JsonArray kernels_of(const std::vector<KernelTotals>& runs) {
  JsonArray kernels;
  for (const auto& first : runs.front()) {
    const auto same = [&first](const auto& entry) { return entry.first == first.first; };
    JsonArray times;
    for (const KernelTotals& run : runs) {
      const auto found = std::find_if(run.begin(), run.end(), same);
      if (found != run.end()) times.push_back(found->second.seconds);
    }
    kernels.push_back(JsonObject{{ffi::String("name"), ffi::String(first.first)},
                                 {ffi::String("calls"), first.second.calls},
                                 {ffi::String("times_s"), times}});
  }
  return kernels;
}

// What was found in one window.
struct InTurn {
  JsonArray variants;
  int64_t runs = 0;
};

// Runs each variant once, and then those that are not too slow in rounds of shuffled order.
InTurn measure_in_turn(const std::vector<std::unique_ptr<Variant>>& variants, const VariantPlan& plan) {
  std::vector<KernelTotals> first;
  for (const auto& variant : variants) first.push_back(variant->run());
  const double longest_s = plan.slowest * seconds_of(first.front());
  std::vector<std::vector<KernelTotals>> counted(variants.size());
  std::vector<bool> slow(variants.size(), false);
  std::vector<size_t> order;
  for (size_t place = 0; place < variants.size(); ++place) {
    // All others are compared with the first variant, so that it always runs.
    slow[place] = place > 0 && seconds_of(first[place]) > longest_s;
    if (slow[place]) {
      counted[place].push_back(std::move(first[place]));
    } else {
      order.push_back(place);
    }
  }
  std::mt19937_64 generator(static_cast<uint64_t>(plan.seed));
  const double started_s = seconds_now();
  for (int64_t round = 0; round < plan.runs; ++round) {
    std::shuffle(order.begin(), order.end(), generator);
    for (const size_t place : order) counted[place].push_back(variants[place]->run());
    if (seconds_now() - started_s >= plan.max_s) break;
  }
  InTurn found;
  for (size_t place = 0; place < variants.size(); ++place) {
    found.runs += static_cast<int64_t>(counted[place].size());
    found.variants.push_back(JsonObject{{ffi::String("slow"), static_cast<bool>(slow[place])},
                                        {ffi::String("kernels"), kernels_of(counted[place])}});
  }
  return found;
}

}  // namespace

std::string measure_variants(Meter* meter, const Model& model, const std::string& specification,
                             const std::vector<ffi::Module>& libraries) {
  const VariantPlan plan = variant_plan_of(object_of(parse_json(specification)));
  if (libraries.empty()) throw AgentError("bad_request", "no variant is given; load at least one library");
  std::vector<std::unique_ptr<Variant>> variants;
  for (const ffi::Module& library : libraries) {
    variants.push_back(std::make_unique<Variant>(model, library, variants.size()));
  }
  // The first run reads the weights and starts the threads; it would make the first variant seem slow.
  model.invoke();
  JsonArray found;
  const auto take = [&](double) {
    Window window;
    window.start_s = seconds_now();
    InTurn in_turn = measure_in_turn(variants, plan);
    window.end_s = seconds_now();
    window.runs = in_turn.runs;
    // A window that is taken again leaves nothing behind.
    found = std::move(in_turn.variants);
    return window;
  };
  JsonObject reply = meter->times(plan.retries, plan.cool_s, take);
  reply.erase(ffi::String("times_s"));
  reply.Set(ffi::String("variants"), found);
  return json_text(reply);
}

}  // namespace edgetlm
