#include "proxy/loop_boost.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "proxy/session_share.hpp"

namespace crane::proxy {

namespace {

/// A file of /proc that is read again and again.
class Shown {
  public:
    explicit Shown(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~Shown() {
        if (fd_ >= 0) close(fd_);
    }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;
    /// Empty: it says nothing.
    const char* read() {
        const ssize_t got = fd_ < 0 ? 0 : pread(fd_, text_, sizeof(text_) - 1, 0);
        text_[got > 0 ? got : 0] = 0;
        return text_;
    }

  private:
    const int fd_;
    char text_[512];
};

}  // namespace

bool Starving::observe(char state, uint64_t ran_ns) {
    const bool starving = state == 'R' && state_ == 'R' && ran_ns == ran_ns_;
    state_ = state;
    ran_ns_ = ran_ns;
    return starving;
}

LoopBoost::LoopBoost() : thread_([this, loop = gettid()] { work(loop); }) {
    pthread_setname_np(thread_.native_handle(), "crane-boost");
}

LoopBoost::~LoopBoost() {
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        stopping_ = true;
    }
    signal_.notify_all();
    thread_.join();
}

void LoopBoost::work(pid_t loop) {
    if (!make_real_time(0, true)) return;
    const std::string folder = "/proc/self/task/" + std::to_string(loop);
    Shown stat(folder + "/stat"), times(folder + "/schedstat");
    Starving starving;
    bool boosted = false;
    uint64_t ran_then_ns = 0;
    std::unique_lock<std::mutex> guard(mutex_);
    while (!signal_.wait_for(guard, std::chrono::milliseconds(kLookMs), [this] { return stopping_; })) {
        const char* const behind_name = strrchr(stat.read(), ')');
        const char state = behind_name && behind_name[1] == ' ' ? behind_name[2] : 0;
        const uint64_t ran_ns = strtoull(times.read(), nullptr, 10);
        if (boosted && ran_ns != ran_then_ns) boosted = !make_real_time(loop, false);
        if (starving.observe(state, ran_ns)) {
            boosted = make_real_time(loop, true);
            ran_then_ns = ran_ns;
        }
    }
}

}  // namespace crane::proxy
