#include "executor/frame_reading.h"

#include <limits>
#include <stdexcept>

#include "executor/errors.h"
#include "executor/measure/measure.h"
#include "executor/wire/fields.h"
#include "executor/wire/json.h"
#include "executor/wire/wire.h"

namespace edgetlm {
namespace {

template <typename Reader>
void with_runtime_errors(const Reader& read) {
  try {
    read();
  } catch (const AgentError& error) {
    throw std::runtime_error(error.kind() + ": " + error.what());
  } catch (const ClosedError& error) {
    throw std::runtime_error(std::string("closed: ") + error.what());
  }
}

// A header without the length before it.
JsonObject header_in(const std::string& input) {
  const uint32_t size = static_cast<uint32_t>(input.size());
  std::string framed;
  for (int shift = 24; shift >= 0; shift -= 8) framed += static_cast<char>(size >> shift & 0xff);
  return parse_frame(framed + input);
}

}  // namespace

void read_frame(const std::string& input) {
  with_runtime_errors([&] {
    const JsonObject header = parse_frame(input);
    blob_bytes(header, most_blob_bytes(header));
    const Fields fields(header);
    fields.seconds_or("time_limit_s", 0.0);
    fields.name("command");
  });
}

void read_hello(const std::string& input) {
  with_runtime_errors([&] { parse_hello(input); });
}

void read_tensors(const std::string& input) {
  with_runtime_errors([&] {
    const JsonObject header = header_in(input);
    described_tensors(header, blob_bytes(header, std::numeric_limits<int64_t>::max()));
  });
}

void read_plan(const std::string& input) {
  with_runtime_errors([&] { plan_of(header_in(input)); });
}

void read_variant_plan(const std::string& input) {
  with_runtime_errors([&] { variant_plan_of(header_in(input)); });
}

}  // namespace edgetlm
