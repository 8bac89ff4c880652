// A thread beside the event loop, for what may block: containers, other processes' memory, name servers,
// disks. Jobs run there one after the other; what is to follow from each is called back in the loop.
//
// Rules kept here:
//   - nothing of the loop's is touched by a job: it works on what it was given;
//   - a job that never ends (a thread in uninterruptible sleep cannot even be killed) costs its thread, and
//     no more: nobody waits for it longer than was asked for;
//   - threads do not inherit the loop's priority: what a job starts runs as the operator started craned.
#pragma once

#include <functional>
#include <memory>

struct event;
struct event_base;

namespace crane::proxy {

class Worker {
  public:
    using Job = std::function<void()>;

    /// `name` shows in ps -L and top -H. Throws std::system_error when no thread can be had.
    Worker(event_base* base, const char* name);
    /// Jobs that have not begun are dropped, and no `done` is called any more. See finish().
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    /// `job` runs in the thread, after those posted before it; then `done` in the loop.
    void post(Job job, Job done);
    /// Something was posted and its `done` not called yet.
    bool busy() const;
    /// Waits in the caller's thread until all that was posted is done, `patience_ms` at most; then calls no
    /// `done`. False: a job still runs, and is left to itself.
    bool finish(int patience_ms);

  private:
    struct Shared;
    static void on_done(int fd, short what, void* self);

    std::shared_ptr<Shared> shared_;  ///< with the thread, which may outlive this
    event* done_event_;
};

/// Above compilers and backups, below what the system itself prefers.
constexpr int kPreferredNice = -10;
/// Of the process as it was started; first called before anything changes it for one thread.
int nice_at_start();
/// Raises the calling thread's priority, as far as the system lets it: see the rule above.
void prefer_this_thread();

}  // namespace crane::proxy
