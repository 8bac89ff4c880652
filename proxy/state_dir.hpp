// STATE/rN, what belongs to one replica: made for its owner alone, and worked on by one process at a time.
#pragma once

#include <string>

namespace crane::proxy {

/// For its owner only, since the log holds what clients sent. A directory that was there before is the
/// operator's: it is left as it is, and what is wrong with it is returned.
std::string make_state_dir(const std::string& path);

/// One craned, or one restore, per state directory; gone with the process. Throws std::runtime_error.
class StateDirLock {
  public:
    explicit StateDirLock(const std::string& state_dir);
    ~StateDirLock();
    StateDirLock(const StateDirLock&) = delete;
    StateDirLock& operator=(const StateDirLock&) = delete;

  private:
    int fd_;
};

}  // namespace crane::proxy
