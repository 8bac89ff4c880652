#include "paxos/store/store_maintenance.hpp"

#include <chrono>

namespace crane::paxos {
namespace {

constexpr auto kInterval = std::chrono::seconds(1);

}  // namespace

StoreMaintenance::StoreMaintenance(BdbStore& store) : store_(store), thread_([this] { loop(); }) {}

StoreMaintenance::~StoreMaintenance() {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        stopping_ = true;
    }
    signal_.notify_all();
    thread_.join();
}

void StoreMaintenance::loop() {
    std::unique_lock<std::mutex> guard(mutex_);
    while (!signal_.wait_for(guard, kInterval, [this] { return stopping_; })) {
        guard.unlock();
        store_.maintain();
        guard.lock();
    }
}

}  // namespace crane::paxos
