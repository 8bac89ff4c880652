#include "paxos/heartbeat_thread.hpp"

#include <utility>

namespace crane::paxos {

HeartbeatThread::HeartbeatThread(uint64_t heartbeat_us, std::function<void()> speak)
    : heartbeat_(heartbeat_us), speak_(std::move(speak)), thread_([this] { work(); }) {}

HeartbeatThread::~HeartbeatThread() {
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        stopping_ = true;
    }
    signal_.notify_all();
    thread_.join();
}

void HeartbeatThread::begin() {
    bool wake = false;
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        waiting_ = true;
        ++waits_;
        wake = std::exchange(asleep_, false);
    }
    if (wake) signal_.notify_all();
}

void HeartbeatThread::end() {
    const std::lock_guard<std::mutex> guard(mutex_);
    waiting_ = false;
}

// Looks once a heartbeat: a wait that was there at the last look is a long one.
void HeartbeatThread::work() {
    std::unique_lock<std::mutex> guard(mutex_);
    uint64_t seen = 0;
    while (!stopping_) {
        if (waiting_ && waits_ == seen) speak_();
        if (!waiting_ && waits_ == seen) {
            asleep_ = true;
            signal_.wait(guard, [this] { return stopping_ || !asleep_; });
        }
        seen = waits_;
        signal_.wait_for(guard, heartbeat_, [this] { return stopping_; });
    }
}

}  // namespace crane::paxos
