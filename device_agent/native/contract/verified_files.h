// Which bundles' files were checked since the last boot, remembered where and as device_agent/contract/verify.py
// does, so that what one process has checked no other has to.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace edgetlm {

// Device, inode, size, and the times of the last change of content and of status: the identity of a
// file's content, by its name.
using Stamps = std::map<std::string, std::vector<int64_t>>;

class VerifiedFiles {
 public:
  // The folder is private to this user; what cannot be remembered is checked again.
  explicit VerifiedFiles(std::string folder) : folder_(std::move(folder)) {}

  // Whether files with these stamps were found to be those of a bundle.
  bool knows(const std::string& version, const Stamps& stamps) const;
  // Keeps what was found; a folder that cannot be written to keeps nothing.
  void remember(const std::string& version, const Stamps& stamps) const;

 private:
  void forget_old() const;

  std::string folder_;
};

}  // namespace edgetlm
