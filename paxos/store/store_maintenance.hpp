// A thread that calls Store's maintain() about once a second, so that no persist() pays for writing pages
// back.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "paxos/store/store.hpp"

namespace crane::paxos {

class StoreMaintenance {
  public:
    /// `store` must outlive this.
    explicit StoreMaintenance(BdbStore& store);
    ~StoreMaintenance();
    StoreMaintenance(const StoreMaintenance&) = delete;
    StoreMaintenance& operator=(const StoreMaintenance&) = delete;

  private:
    void loop();

    BdbStore& store_;
    std::mutex mutex_;
    std::condition_variable signal_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace crane::paxos
