// IEEE half precision to and from wider types, under the names that TVM's runtime sources call. Only the pairs
// of types that these use are declared; any other is an error of the linker.
#pragma once

#include <bit>
#include <cstdint>

namespace edgetlm {

// Nearest half, ties to even; a NaN stays a NaN, what is too large becomes infinite.
inline uint16_t half_of(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 48) & 0x8000;
  const uint64_t magnitude = bits & 0x7fffffffffffffff;
  if (magnitude > 0x7ff0000000000000) return sign | 0x7e00;
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  if (exponent > 15) return sign | 0x7c00;
  if (exponent < -25) return sign;
  const uint64_t mantissa = (magnitude & 0x000fffffffffffff) | 0x0010000000000000;
  // Below -14 a half is subnormal: fewer bits of the mantissa stay.
  const int drop = exponent < -14 ? 42 + (-14 - exponent) : 42;
  uint64_t kept = mantissa >> drop;
  const uint64_t rest = mantissa & ((uint64_t{1} << drop) - 1), half = uint64_t{1} << (drop - 1);
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // The leading one of a normal number adds to the exponent, as does a carry out of rounding.
  if (exponent >= -14) kept += static_cast<uint64_t>(exponent + 14) << 10;
  return sign | static_cast<uint16_t>(kept);
}

inline float float_of(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

}  // namespace edgetlm

template <typename Source, typename SourceBits, int kSourceDigits, typename Target, typename TargetBits,
          int kTargetDigits>
inline Target __truncXfYf2__(Source value) {
  static_assert(sizeof(Source) >= 4 && sizeof(Target) == 2 && kTargetDigits == 10);
  return edgetlm::half_of(static_cast<double>(value));
}

template <typename Source, typename SourceBits, int kSourceDigits, typename Target, typename TargetBits,
          int kTargetDigits>
inline Target __extendXfYf2__(Source value) {
  static_assert(sizeof(Source) == 2 && sizeof(Target) == 4 && kSourceDigits == 10);
  return edgetlm::float_of(value);
}
