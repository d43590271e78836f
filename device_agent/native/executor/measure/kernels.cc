#include "executor/measure/kernels.h"

#include <builtin_fp16.h>
#include <string.h>
#include <tvm/ffi/error.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/timer.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "executor/clock.h"
#include "executor/execute/bundle.h"
#include "executor/measure/repeats.h"
#include "executor/wire/wire.h"

namespace edgetlm {
namespace {

namespace ffi = tvm::ffi;

constexpr size_t kPatternElements = static_cast<size_t>(measuring::random_elements);

template <typename T>
void append(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Normal numbers for floats: zeros and denormals would change times and power. Integers are indices as often as
// not, and only 0 is in range of every table.
std::string pattern(const std::string& dtype, uint64_t seed) {
  if (dtype != "float16" && dtype != "float32" && dtype != "float64") return std::string(kPatternElements, '\0');
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::string bytes;
  for (size_t i = 0; i < kPatternElements; ++i) {
    const double value = normal(generator);
    if (dtype == "float16") {
      append(&bytes, half_of(value));
    } else if (dtype == "float32") {
      append(&bytes, static_cast<float>(value));
    } else {
      append(&bytes, value);
    }
  }
  return bytes;
}

// Waits until a device has done what it was asked to do.
void synchronise(DLDevice device) { tvm::runtime::DeviceAPI::Get(device)->StreamSync(device, nullptr); }

// A tensor of seeded normal numbers (of a repeated pattern); integers and booleans are 0.
tvm::runtime::Tensor random_tensor(const std::vector<int64_t>& shape, const std::string& dtype, uint64_t seed,
                                   DLDevice device) {
  tvm::runtime::Tensor tensor = empty_tensor(shape, dtype);
  const size_t size = tensor_bytes(shape, dtype);
  const std::string bytes = pattern(dtype, seed);
  char* data = static_cast<char*>(tensor->data);
  for (size_t at = 0; at < size; at += bytes.size()) memcpy(data + at, bytes.data(), std::min(bytes.size(), size - at));
  if (device.device_type == kDLCPU) return tensor;
  tvm::runtime::Tensor copy = tvm::runtime::Tensor::Empty(ffi::Shape(shape), tensor->dtype, device);
  copy.CopyFrom(tensor);
  synchronise(device);
  return copy;
}

double call_once(const ffi::Function& function, const std::vector<ffi::AnyView>& arguments, DLDevice device) {
  ffi::Any result;
  const double begin = seconds_now();
  function.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  synchronise(device);
  return seconds_now() - begin;
}

std::vector<double> times_of(const ffi::Function& function, const KernelPlan& plan,
                             const std::vector<ffi::AnyView>& arguments, DLDevice device) {
  const double first = call_once(function, arguments, device);
  if (first >= plan.max_s) return {first};
  const KernelCounts counts = kernel_counts(plan, first, call_once(function, arguments, device));
  const ffi::Function evaluator = tvm::runtime::WrapTimeEvaluator(
      function, device, static_cast<int>(counts.number), static_cast<int>(counts.repeat), 0, 100, 0, 1,
      static_cast<int>(plan.flush_bytes), ffi::Function(nullptr));
  ffi::Any result;
  evaluator.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  const ffi::Bytes raw = result.cast<ffi::Bytes>();
  std::vector<double> times(raw.size() / sizeof(double));
  memcpy(times.data(), raw.data(), times.size() * sizeof(double));
  return times;
}

// The energy of one call: windows in which the kernel is called in a loop, with its caches warm.
JsonObject energy_of(Meter* meter, const ffi::Function& function, const std::vector<ffi::AnyView>& arguments,
                     DLDevice device, std::vector<double> times_s) {
  const auto middle = times_s.begin() + static_cast<std::ptrdiff_t>(times_s.size() / 2);
  std::nth_element(times_s.begin(), middle, times_s.end());
  const int64_t together = calls_together(*middle);
  const auto call = [&] {
    for (int64_t i = 0; i < together; ++i) {
      ffi::Any result;
      function.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
    }
    synchronise(device);
  };
  const JsonObject found = meter->measure(call, kernel_energy(), together);
  // The reply's own state is that of the samples, which came before. A meter that was lost says nothing.
  for (const char* name : {"throttled", "invalid"}) {
    const Json flag = find(found, name);
    if (flag != nullptr && truth_of(flag)) return no_energy_record("the board throttled");
  }
  JsonObject record = object_of(at(found, "energy"));
  // Power over time, of thousands of programs, would be most of what their records hold.
  record.Set(ffi::String("trace"), JsonArray());
  return record;
}

}  // namespace

std::string measure_kernel(Meter* meter, ffi::Module module, const std::string& name,
                           const std::string& specification, std::vector<ffi::AnyView> arguments) {
  const JsonObject fields = object_of(parse_json(specification));
  const KernelPlan plan = kernel_plan_of(fields);
  const Json kind = find(fields, "device");
  const DLDevice device{kind.as<ffi::String>().value_or("") == "cuda" ? kDLCUDA : kDLCPU, 0};
  std::vector<tvm::runtime::Tensor> made;
  if (arguments.empty()) {
    uint64_t seed = static_cast<uint64_t>(plan.seed);
    for (const Json& entry : array_of(at(fields, "arguments"))) {
      const JsonArray argument = array_of(entry);
      made.push_back(random_tensor(integers_of(argument[0]), text_of(argument[1]), seed++, device));
    }
    arguments.assign(made.begin(), made.end());
  }
  // Kernels of a whole model lie in a module that its library imports.
  const ffi::Optional<ffi::Function> function = module->GetFunction(name, true);
  if (!function) TVM_FFI_THROW(AttributeError) << "Module has no function '" << name << "'";
  const auto take = [&](double) {
    Window window;
    window.start_s = seconds_now();
    window.times_s = times_of(*function, plan, arguments, device);
    window.end_s = seconds_now();
    window.runs = static_cast<int64_t>(window.times_s.size());
    return window;
  };
  JsonObject reply = meter->times(plan.retries, plan.cool_s, take);
  if (plan.energy) {
    std::vector<double> times_s;
    for (const Json& time : array_of(at(reply, "times_s"))) times_s.push_back(number_of(time));
    reply.Set(ffi::String("energy"), energy_of(meter, *function, arguments, device, std::move(times_s)));
  }
  return json_text(reply);
}

}  // namespace edgetlm
