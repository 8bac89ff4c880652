// The sums of files that this process has computed: a large one is not read again while nothing has written
// to it. What a disk does to it meanwhile is found by the next process.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "checkpoint/file_sum.hpp"

namespace crane::checkpoint {

/// May be used by several threads.
class KnownSums {
  public:
    /// As sum_of_file(): without reading the file, if it is as it was when its sum was computed here.
    std::string sum_of(const File& file, const Stop& stop);

  private:
    struct Known {
        struct stat at;
        std::string sum;
    };
    using Key = std::pair<dev_t, ino_t>;

    std::mutex lock_;
    std::map<Key, Known> known_;  ///< under lock_
};

/// As sum_of_file(file, stop); with what is known, if that is not null.
inline std::string sum_of_file(const File& file, const Stop& stop, const std::shared_ptr<KnownSums>& known) {
    return known ? known->sum_of(file, stop) : sum_of_file(file, stop);
}

}  // namespace crane::checkpoint
