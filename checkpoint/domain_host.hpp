// checkpoint/: the domain as a thing that is started, stopped and (with CRIU, beside this file) saved.
//
// DomainHost starts one server domain under crane-init, in an LXC container or without one, and is the
// only part that knows how to take it down again. The rules it keeps:
//   - the file system starts fresh: what an earlier run wrote is gone, the log brings it back; only a server
//     that is started again in the course of the log goes on with the files of the one before;
//   - no domain outlives its craned: kill -9 of the craned ends crane-init, and with it the container;
//   - a server that comes out of an image (domain_images.cpp) is the one that was dumped, down to its pids;
//   - pids are deterministic: crane-init is 1 and the server 2, nothing else runs in the namespace;
//   - kill_all() and clean() take bounded time, may be repeated, and leave no process, mount or cgroup.
// Not thread-safe; start() must be called by a thread that lives as long as the domain (the kernel ties
// parent-death signals to the thread that forked).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/shown_machine.hpp"
#include "checkpoint/command.hpp"
#include "checkpoint/confinement.hpp"
#include "checkpoint/disk_quota.hpp"

namespace crane::checkpoint {

enum class Isolation { kLxc, kNone };
enum class Files { kFresh, kKept, kImaged };

struct DomainSpec {
    using Isolation = crane::checkpoint::Isolation;

    std::string name;       ///< unique container name: crane-<cluster id>-<replica>
    std::string state_dir;  ///< STATE/rN, absolute; STATE/rN/shared appears as /run/crane in the domain
    std::vector<std::string> argv;
    std::string cwd;
    std::vector<std::string> environment;  ///< NAME=value; start() adds LD_PRELOAD and CRANE_*
    std::string shim_path;                 ///< host path of libcrane.so; copied into shared/
    std::string init_path;                 ///< host path of crane-init; copied into shared/
    Isolation isolation = Isolation::kLxc;
    std::string hostname = "crane";
    std::vector<std::string> own_addresses;         ///< base/own_address.hpp; none: the usual ones
    ShownMachine machine = ShownMachine::of(0, 0);  ///< what /proc and /sys of a scheduled server show
    bool schedule = true;       ///< false: the server runs natively, without the shim and its checks
    bool host_network = false;  ///< false: a network of its own with loopback alone
    struct Inherited {
        int fd;  // this process'
        int as;  // its place among the reserved descriptors of the server (base/reserved_descriptors.hpp)
    };
    std::vector<Inherited> inherited;  ///< descriptors that the server finds open, besides 0, 1 and 2
    std::string user, group;           ///< whom the server runs as; "": as craned
    Confinement confinement;           ///< its exceptions; a server without a container is not confined
    std::vector<std::string> hidden;   ///< host paths that it does not see, besides the usual ones
    std::vector<std::string> shown;    ///< host paths that it sees although they are usually hidden
    std::string image;  ///< the server's files are those of this base image (base_image.hpp); "": this host's
    std::string image_sum;              ///< its address
    DiskQuota disk_quota;               ///< of all that it writes; none: what the state directory's disk has
    int start_timeout_ms = 15'000;      ///< of the container, not counting the restore of an image
    std::optional<uint32_t> first_cpu;  ///< when set, the domain is started on this CPU alone
};

struct ExitReport {
    bool known = false;     ///< false: no status was left (the container was killed from outside)
    bool signaled = false;  ///< ended by `signal`, else by exit(`code`)
    int code = 0;
    int signal = 0;
    std::string text;  ///< for people: "exited with status 1", "killed by signal 9 (SIGKILL)…"
};

struct ImageReport {
    uint64_t wall_us = 0;    ///< of its processes
    uint64_t frozen_us = 0;  ///< of an image taken: how long the server stood still
    uint64_t files_us = 0;   ///< for the files beside it: of an image taken, part of frozen_us
};

/// An image of a server and the files that belong to it, as both were while it stood still: on the disk, and
/// gone with this object.
class TakenImage {
  public:
    explicit TakenImage(const ImageReport& report) : report_(report) {}
    virtual ~TakenImage() = default;
    TakenImage(const TakenImage&) = delete;
    TakenImage& operator=(const TakenImage&) = delete;
    const ImageReport& report() const { return report_; }
    /// The files into the file `archive`, the image into `image`, at a low priority: in any thread, whatever
    /// becomes of the server meanwhile. What `check` throws (see run_command()) is thrown.
    virtual void pack(const std::string& archive, const std::string& image,
                      const Check& check = {}) const = 0;

  private:
    ImageReport report_;
};

class DomainHost {
  public:
    explicit DomainHost(DomainSpec spec);
    ~DomainHost();  ///< kills the domain if it still runs
    DomainHost(const DomainHost&) = delete;
    DomainHost& operator=(const DomainHost&) = delete;

    /// Removes by id whatever an earlier run left: processes, container, mounts, cgroups, file-system
    /// changes.
    static void clean(const DomainSpec& spec);

    /// Starts the domain on a fresh file system, or on the files that the one before has left (all but /run,
    /// /tmp and what it held in memory, as after a host's restart); returns when crane-init has started the
    /// server (exec succeeded). Throws std::runtime_error with what happened and what to do. May be called
    /// again after the domain has gone.
    void start(Files files = Files::kFresh);

    /// Between two servers: what the last one has written gets times that are the same on all replicas (see
    /// settle_times()), and is packed into the file `archive`, or laid out from it for start(Files::kKept).
    /// Only in a container. Throw std::runtime_error.
    void settle_times(uint64_t since_ns, uint64_t time_ns) const;
    void pack_files(const std::string& archive, const Check& check = {}) const;
    void unpack_files(const std::string& archive);

    /// Writes an image of the server's processes into `folder`, which is made and must be empty. The image
    /// holds memory and descriptors; the files that belong to it are the layers at the time of
    /// `while_frozen`, which is called while the server stands still. To be called while the server is at
    /// rest: what forks while CRIU works gets other pids than it would have. Throws CriuError (criu.hpp);
    /// unless that says otherwise the server runs on, and nothing is left but CRIU's log.
    /// `watched`: paths of files that it has inotify watch, as it sees them.
    ImageReport take_image(const std::string& folder, const std::function<void()>& while_frozen = {},
                           const std::vector<std::string>& watched = {});

    /// Starts a container on the layers exactly as they are, and in it the server from an image, in the state
    /// and with the pids that it had. Pipes and memfds that it had inherited are replaced by what is handed
    /// down now, by their numbers. Throws like start(). `while_frozen` is called before the server runs.
    ImageReport restore(const std::string& folder, const std::function<void()>& while_frozen = {});

    /// The same with the files that belong to it; the server runs on when this returns. Not to be called
    /// again before what it returns is gone. `files_since_ns`: as of settle_times(). What `check` throws is
    /// thrown, and the server runs on.
    std::unique_ptr<TakenImage> take_whole_image(uint64_t files_since_ns, const Check& check = {},
                                                 const std::vector<std::string>& watched = {});
    /// Of both, packed here or on another replica.
    ImageReport restore_packed(const std::string& archive, const std::string& image);

    /// Host pid of crane-init; 0 when the domain does not run.
    pid_t init_pid() const;

    /// SIGKILLs everything in the domain and waits for it to be gone. True when nothing is left. A domain
    /// whose files are kept can be started on them again.
    bool kill_all(Files files = Files::kFresh);

    /// The files under the next server: a base image, or this host's ("").
    void set_image(const std::string& file, const std::string& sum) {
        spec_.image = file;
        spec_.image_sum = sum;
    }

    /// What the next server inherits.
    void hand_down(std::vector<DomainSpec::Inherited> inherited) { spec_.inherited = std::move(inherited); }

    /// How the server ended, once everything in the domain is gone; before that nothing.
    std::optional<ExitReport> poll_exit();

    /// A pidfd that becomes readable when the domain is gone (then call poll_exit()); -1 when not running.
    int exit_fd() const;

    /// What this host could not do to confine the server that runs, for the operator.
    const std::vector<std::string>& weaknesses() const { return weaknesses_; }

    /// SIGTERM to the server, through crane-init: a polite stop. False when the domain does not run.
    bool terminate();

    /// Forgets the beginnings of standard output and error when they have become long. To be called now and
    /// then.
    void trim_output() const;

    const DomainSpec& spec() const { return spec_; }

  private:
    struct Running;
    using BringServer = std::function<pid_t(pid_t init)>;
    void launch(Files files, const BringServer& bring_server);
    /// "", or why the server does not run.
    std::string launch_once(Files files, const BringServer& bring_server);
    void lay_out(const std::string& archive);

    DomainSpec spec_;
    Running* running_ = nullptr;  ///< owned; null when no domain runs
    std::optional<ExitReport> last_exit_;
    std::vector<std::string> weaknesses_;
};

}  // namespace crane::checkpoint
