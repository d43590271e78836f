// Refuses a language model that this machine has no memory for, before anything of it is loaded: the same rule as in
// device_agent/execute/free_memory.py.
#pragma once

#include <string>

#include "contract/manifest.h"

namespace edgetlm {

// ContractError where the weights and the state of a language model take more than the system can give without
// swapping. Nothing is refused where it does not say what it can give.
void require_free(const CheckedManifest& manifest, const std::string& meminfo = "/proc/meminfo");

}  // namespace edgetlm
