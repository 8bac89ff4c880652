#include "proxy/worker.hpp"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace crane::proxy {

namespace {

struct Posted {
    Worker::Job job;
    Worker::Job done;
};

}  // namespace

struct Worker::Shared {
    const int bell;  ///< an eventfd: something is in `finished`
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Posted> waiting;
    std::deque<Job> finished;
    size_t running = 0;  ///< taken by the thread, its `done` not called yet
    bool stopping = false;

    Shared() : bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (bell < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    }
    ~Shared() { close(bell); }

    void work() {
        std::unique_lock<std::mutex> guard(mutex);
        for (;;) {
            changed.wait(guard, [this] { return stopping || !waiting.empty(); });
            if (waiting.empty()) return;
            Posted next = std::move(waiting.front());
            waiting.pop_front();
            ++running;
            guard.unlock();
            next.job();
            next.job = nullptr;  // what it holds is freed here, not in the loop
            guard.lock();
            finished.push_back(std::move(next.done));
            changed.notify_all();
            const uint64_t one = 1;
            // Full is as good as rung.
            [[maybe_unused]] const ssize_t rung = write(bell, &one, sizeof(one));
        }
    }
};

Worker::Worker(event_base* base, const char* name)
    : shared_(std::make_shared<Shared>()),
      done_event_(event_new(base, shared_->bell, EV_READ | EV_PERSIST, &Worker::on_done, this)) {
    event_add(done_event_, nullptr);
    const int nice = nice_at_start();
    try {
        std::thread thread([shared = shared_, nice] {
            setpriority(PRIO_PROCESS, 0, nice);  // of this thread alone
            shared->work();
        });
        pthread_setname_np(thread.native_handle(), name);
        thread.detach();
    } catch (...) {
        event_free(done_event_);
        throw;
    }
}

Worker::~Worker() {
    event_free(done_event_);
    const std::lock_guard<std::mutex> guard(shared_->mutex);
    shared_->waiting.clear();
    shared_->finished.clear();
    shared_->stopping = true;
    shared_->changed.notify_all();
}

void Worker::post(Job job, Job done) {
    const std::lock_guard<std::mutex> guard(shared_->mutex);
    shared_->waiting.push_back({std::move(job), std::move(done)});
    shared_->changed.notify_all();
}

bool Worker::busy() const {
    const std::lock_guard<std::mutex> guard(shared_->mutex);
    return shared_->running != 0 || !shared_->waiting.empty();
}

bool Worker::finish(int patience_ms) {
    std::unique_lock<std::mutex> guard(shared_->mutex);
    const bool all = shared_->changed.wait_for(guard, std::chrono::milliseconds(patience_ms), [this] {
        return shared_->waiting.empty() && shared_->running == shared_->finished.size();
    });
    shared_->running -= shared_->finished.size();
    shared_->finished.clear();
    return all;
}

void Worker::on_done(int fd, short, void* self) {
    uint64_t count = 0;
    if (read(fd, &count, sizeof(count)) != sizeof(count)) return;
    const std::shared_ptr<Shared> shared = static_cast<Worker*>(self)->shared_;  // `done` may end the worker
    for (;;) {
        Job done;
        {
            const std::lock_guard<std::mutex> guard(shared->mutex);
            if (shared->finished.empty()) return;
            done = std::move(shared->finished.front());
            shared->finished.pop_front();
            --shared->running;
        }
        if (done) done();
    }
}

int nice_at_start() {
    static const int nice = getpriority(PRIO_PROCESS, 0);
    return nice;
}

void prefer_this_thread() {
    nice_at_start();
    // Refused without the right to: then the loop competes as everybody does.
    setpriority(PRIO_PROCESS, 0, std::min(nice_at_start(), kPreferredNice));
}

}  // namespace crane::proxy
