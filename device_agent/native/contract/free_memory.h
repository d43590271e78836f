// Refuses a language model that this machine has no memory for, before anything of it is loaded: the same rule as in
// device_agent/execute/memory/free_memory.py.
#pragma once

#include <cstdint>
#include <string>

#include "contract/manifest.h"

namespace edgetlm {

// ContractError where the weights and the state of a language model take more than the system can give without
// swapping. Nothing is refused where it does not say what it can give.
void require_free(const CheckedManifest& manifest);

// Bytes that this process can get without swapping, see proc(5); below 0 where the system does not say. The limits of
// its control groups count as well, see cgroups(7): the system ends the process that passes one.
int64_t free_bytes(const std::string& meminfo = "/proc/meminfo", const std::string& groups = "/sys/fs/cgroup",
                   const std::string& own = "/proc/self/cgroup");

}  // namespace edgetlm
