#include "interpose/core/process_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "interpose/core/deaths.hpp"
#include "interpose/core/machine.hpp"
#include "interpose/core/memory_file.hpp"
#include "interpose/core/own_addresses.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {
namespace {

constexpr uint64_t kShownPages = 16384;  ///< resident; of a size nobody will take for an alarm
constexpr uint64_t kShownKilobytes = kShownPages * 4;
constexpr uint64_t kTickNs = 10'000'000;

/// Not a mapping of its own, which a program would be told of, and which would be gone when it looks. Who has
/// the turn, or alone runs, uses it.
constexpr size_t kRoomBytes = 4 << 20;
char room[kRoomBytes];

/// A file of the kernel's, whole.
class Content {
  public:
    explicit Content(const char* path) {
        const long fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            error_ = fd;
            return;
        }
        while (used_ < kRoomBytes) {
            const long n = raw(SYS_read, fd, room + used_, kRoomBytes - used_);
            if (n == -EINTR) continue;
            if (n < 0) error_ = n;
            if (n <= 0) break;
            used_ += static_cast<size_t>(n);
        }
        raw(SYS_close, fd);
    }

    long error() const { return error_; }
    std::string_view text() const { return {room, used_}; }

  private:
    size_t used_ = 0;
    long error_ = 0;
};

/// What comes before `end`, which is skipped.
std::string_view take(std::string_view& text, char end) {
    const size_t n = text.find(end);
    const std::string_view first = text.substr(0, n);
    text.remove_prefix(n == std::string_view::npos ? text.size() : n + 1);
    return first;
}

struct Subject {
    uint32_t process;  ///< kNone: none of the domain's
    bool own;
};

uint32_t process_with(int pid) {
    return pid == runtime.process->pid ? runtime.process_index : find_process(pid);
}

/// kNone, a process that is none of the domain's, has one.
uint64_t count_threads_of(uint32_t process) {
    const dmt::State& s = domain().scheduler;
    uint64_t count = 0;
    for (dmt::SlotId slot = 0; slot < s.high_water; ++slot)
        count += s.slots[slot].process == process && s.slots[slot].state != dmt::SlotState::kFree;
    return count ? count : 1;
}

/// As the schedule has it: who asks runs, and who could run does, too. Of a process that asks about itself
/// the main thread's counts.
char state_of(const Subject& subject) {
    if (subject.own) {
        const dmt::SlotId first = runtime.process->main_slot;
        const bool waits = first != self.slot && first < domain().scheduler.high_water &&
                           domain().scheduler.slots[first].state == dmt::SlotState::kWaiting;
        return waits ? 'S' : 'R';
    }
    if (subject.process == kNone) return 'S';
    const Process& p = domain().processes[subject.process];
    if (p.state == ProcessState::kExited) return 'Z';
    if (p.stop_signal != 0) return 'T';
    const dmt::State& s = domain().scheduler;
    for (dmt::SlotId slot = 0; slot < s.high_water; ++slot) {
        const dmt::Slot& one = s.slots[slot];
        if (one.process == subject.process && one.state == dmt::SlotState::kRunnable) return 'R';
    }
    return 'S';
}

uint64_t born_ns(uint32_t process) {
    const uint64_t born = process == kNone ? 0 : domain().processes[process].born_ns;
    return born ? born : domain_start_ns();
}

/// proc(5), fields from the third on; a number of -1 is shown as it is.
void write_stat(Text& out, std::string_view text, const Subject& subject) {
    const size_t name_end = text.rfind(')');
    if (name_end == std::string_view::npos) return;
    out << text.substr(0, name_end + 1);
    text.remove_prefix(std::min(name_end + 2, text.size()));
    const uint64_t born = born_ns(subject.process);
    const uint64_t ticks = (now_realtime_ns() - born) / kTickNs;
    for (int field = 3; !text.empty(); ++field) {
        std::string_view value = take(text, ' ');
        if (!value.empty() && value.back() == '\n') value.remove_suffix(1);
        out << " ";
        if (field == 3) {
            const char state[] = {state_of(subject), 0};
            out << state;
        } else if ((field >= 4 && field <= 8) || field == 18 || field == 19 || field == 25 || field == 38) {
            out << value;  // parent, group, session, terminal; priorities; limit; signal at its end
        } else if (field == 14) {
            out << ticks;
        } else if (field == 20) {
            out << count_threads_of(subject.process);
        } else if (field == 22) {
            out << (born - domain().monotonic_offset_ns) / kTickNs;
        } else if (field == 23) {
            out << kShownPages * 4 * 4096;
        } else if (field == 24) {
            out << kShownPages;
        } else {
            out << "0";
        }
    }
    out << "\n";
}

void write_statm(Text& out) {
    out << kShownPages * 4 << " " << kShownPages << " " << kShownPages / 4 << " 1 0 " << kShownPages
        << " 0\n";
}

bool starts_with_any(std::string_view line, std::initializer_list<std::string_view> starts) {
    for (const std::string_view start : starts)
        if (line.substr(0, start.size()) == start) return true;
    return false;
}

constexpr std::string_view kStatusKeys[] = {"Name",
                                            "Umask",
                                            "State",
                                            "Tgid",
                                            "Ngid",
                                            "Pid",
                                            "PPid",
                                            "TracerPid",
                                            "Uid",
                                            "Gid",
                                            "FDSize",
                                            "Groups",
                                            "NStgid",
                                            "NSpid",
                                            "NSpgid",
                                            "NSsid",
                                            "VmPeak",
                                            "VmSize",
                                            "VmLck",
                                            "VmPin",
                                            "VmHWM",
                                            "VmRSS",
                                            "RssAnon",
                                            "RssFile",
                                            "RssShmem",
                                            "VmData",
                                            "VmStk",
                                            "VmExe",
                                            "VmLib",
                                            "VmPTE",
                                            "VmSwap",
                                            "HugetlbPages",
                                            "CoreDumping",
                                            "Threads",
                                            "SigQ",
                                            "SigPnd",
                                            "ShdPnd",
                                            "SigBlk",
                                            "SigIgn",
                                            "SigCgt",
                                            "CapInh",
                                            "CapPrm",
                                            "CapEff",
                                            "CapBnd",
                                            "CapAmb",
                                            "NoNewPrivs",
                                            "Seccomp",
                                            "voluntary_ctxt_switches",
                                            "nonvoluntary_ctxt_switches"};

void write_status_line(Text& out, std::string_view line, const Subject& subject) {
    std::string_view rest = line;
    const std::string_view key = take(rest, ':');
    // Others come from the processor, or from a later version of the kernel.
    if (std::ranges::count(kStatusKeys, key) == 0) return;
    out << key << ":";
    if (key == "State") {
        const char state = state_of(subject);
        out << (state == 'Z'   ? "\tZ (zombie)"
                : state == 'T' ? "\tT (stopped)"
                : state == 'R' ? "\tR (running)"
                               : "\tS (sleeping)");
    } else if (key == "VmPeak" || key == "VmSize") {
        out << "\t" << kShownKilobytes * 4 << " kB";
    } else if (key == "VmSwap" || key == "VmLck" || key == "VmPin" || key == "RssShmem" ||
               key == "HugetlbPages") {
        out << "\t0 kB";
    } else if (starts_with_any(key, {"Vm", "Rss"})) {
        out << "\t" << kShownKilobytes << " kB";
    } else if (key == "Threads") {
        out << "\t" << count_threads_of(subject.process);
    } else if (key == "FDSize") {
        out << "\t256";
    } else if (key == "SigQ") {
        out << "\t0/65536";
    } else if (starts_with_any(key, {"SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"})) {
        out << "\t0000000000000000";
    } else if (key == "voluntary_ctxt_switches" || key == "nonvoluntary_ctxt_switches" ||
               key == "TracerPid") {
        out << "\t0";
    } else {
        out << rest;
    }
    out << "\n";
}

void write_status(Text& out, std::string_view text, const Subject& subject) {
    while (!text.empty()) write_status_line(out, take(text, '\n'), subject);
}

/// Addresses are the same everywhere; the file system's numbers are not, nor where the shim lies.
void write_map_line(Text& out, std::string_view line) {
    const std::string_view range = take(line, ' '), rights = take(line, ' '), offset = take(line, ' ');
    take(line, ' ');
    const std::string_view inode = take(line, ' ');
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    out << range << " " << rights << " " << offset << (inode == "0" ? " 00:00 0" : " 00:01 1");
    if (line.find("libcrane.so") != std::string_view::npos) line = "/usr/lib/libcrane.so";
    if (!line.empty()) out << " " << line;
    out << "\n";
}

void write_maps(Text& out, std::string_view text) {
    while (!text.empty()) write_map_line(out, take(text, '\n'));
}

void write_sizes(Text& out, uint64_t resident) {
    out << "Rss:            " << resident << " kB\nPss:            " << resident
        << " kB\nPss_Dirty:      " << resident << " kB\nPss_Anon:       " << resident << " kB\n";
    for (const char* name :
         {"Pss_File:       ", "Pss_Shmem:      ", "Shared_Clean:   ", "Shared_Dirty:   ", "Private_Clean:  "})
        out << name << "0 kB\n";
    out << "Private_Dirty:  " << resident << " kB\nReferenced:     " << resident
        << " kB\nAnonymous:      " << resident << " kB\n";
    for (const char* name :
         {"LazyFree:       ", "AnonHugePages:  ", "ShmemPmdMapped: ", "FilePmdMapped:  ", "Shared_Hugetlb: ",
          "Private_Hugetlb:", "Swap:           ", "SwapPss:        ", "Locked:         "})
        out << name << " 0 kB\n";
}

void write_smaps(Text& out, std::string_view text) {
    while (!text.empty()) {
        write_map_line(out, take(text, '\n'));
        out << "Size:           4 kB\nKernelPageSize: 4 kB\nMMUPageSize:    4 kB\n";
        write_sizes(out, 0);
        out << "THPeligible:    0\nVmFlags: rd\n";
    }
}

struct ShownMount {
    const char *place, *type, *options;
};
/// What every domain has. Which disks a host has mounted besides, and how, is its own.
constexpr ShownMount kShownMounts[] = {
    {"/", "overlay", "rw,relatime"},
    {"/proc", "proc", "rw,nosuid,nodev,noexec,relatime"},
    {"/sys", "sysfs", "ro,nosuid,nodev,noexec,relatime"},
    {"/dev", "tmpfs", "rw,nosuid,relatime"},
    {"/dev/pts", "devpts", "rw,nosuid,noexec,relatime"},
    {"/dev/shm", "tmpfs", "rw,nosuid,nodev"},
};

template <typename Write>
void write_each_mount(Write write) {
    uint64_t number = 0;
    for (const ShownMount& mount : kShownMounts) write(++number, mount);
}

void write_mount_info(Text& out) {
    write_each_mount([&](uint64_t number, const ShownMount& mount) {
        out << number << " " << (number == 1 ? uint64_t{0} : uint64_t{1}) << " 0:" << number << " / "
            << mount.place << " " << mount.options << " - " << mount.type << " none rw\n";
    });
}

void write_mounts(Text& out) {
    write_each_mount([&](uint64_t, const ShownMount& mount) {
        out << "none " << mount.place << " " << mount.type << " " << mount.options << " 0 0\n";
    });
}

void write_mount_statistics(Text& out) {
    write_each_mount([&](uint64_t, const ShownMount& mount) {
        out << "device none mounted on " << mount.place << " with fstype " << mount.type << "\n";
    });
}

/// Of an open file: how it was opened and where it stands, and of a pidfd the process. Numbers of mounts and
/// inodes are the kernel's.
void write_descriptor(Text& out, std::string_view text) {
    while (!text.empty()) {
        const std::string_view line = take(text, '\n');
        if (starts_with_any(line, {"pos:", "flags:", "eventfd-count:", "Pid:", "NSpid:"}))
            out << line << "\n";
        if (starts_with_any(line, {"flags:"})) out << "mnt_id:\t1\n";
    }
}

enum class Kind {
    kStat,
    kStatm,
    kStatus,
    kMaps,
    kSmaps,
    kRollup,
    kIo,
    kMountInfo,
    kMounts,
    kMountStatistics,
    kDescriptor,
    kRoutes,
    kInterfacesSix,
    kFixed,
    kRefused
};

struct Known {
    std::string_view name;  ///< with a slash at its end: all files of this folder
    Kind kind;
    bool from_kernel;            ///< made of what the kernel says
    std::string_view text = {};  ///< kFixed
};
constexpr char kInternetHead[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
// The first name that fits counts.
constexpr Known kKnown[] = {
    {"stat", Kind::kStat, true},
    {"statm", Kind::kStatm, false},
    {"status", Kind::kStatus, true},
    {"maps", Kind::kMaps, true},
    {"smaps", Kind::kSmaps, true},
    {"smaps_rollup", Kind::kRollup, false},
    {"io", Kind::kIo, false},
    {"sched", Kind::kFixed, false, "se.exec_start : 0.000000\nnr_switches : 0\n"},
    {"schedstat", Kind::kFixed, false, "0 0 0\n"},
    {"mountinfo", Kind::kMountInfo, false},
    {"mounts", Kind::kMounts, false},
    {"mountstats", Kind::kMountStatistics, false},
    {"fdinfo/", Kind::kDescriptor, true},
    {"cgroup", Kind::kFixed, false, "0::/\n"},
    {"cpuset", Kind::kFixed, false, "/\n"},
    {"autogroup", Kind::kFixed, false, "/autogroup-1 nice 0\n"},
    {"loginuid", Kind::kFixed, false, "4294967295"},
    {"sessionid", Kind::kFixed, false, "4294967295"},
    {"oom_score", Kind::kFixed, false, "666\n"},
    {"wchan", Kind::kFixed, false, "0"},
    {"syscall", Kind::kFixed, false, "running\n"},
    {"stack", Kind::kFixed, false},
    {"timers", Kind::kFixed, false},
    {"numa_maps", Kind::kFixed, false},
    {"latency", Kind::kFixed, false},
    {"arch_status", Kind::kFixed, false},
    {"patch_state", Kind::kFixed, false, "-1\n"},
    {"ksm_stat", Kind::kFixed, false},
    {"ksm_merging_pages", Kind::kFixed, false, "0\n"},
    {"cpu_resctrl_groups", Kind::kFixed, false},
    {"pagemap", Kind::kRefused, false},
    {"attr/", Kind::kRefused, false},
    {"net/tcp", Kind::kFixed, false, kInternetHead},
    {"net/tcp6", Kind::kFixed, false, kInternetHead},
    {"net/udp", Kind::kFixed, false, kInternetHead},
    {"net/udp6", Kind::kFixed, false, kInternetHead},
    {"net/unix", Kind::kFixed, false, "Num       RefCount Protocol Flags    Type St Inode Path\n"},
    {"net/arp", Kind::kFixed, false,
     "IP address       HW type     Flags       HW address            Mask     Device\n"},
    {"net/route", Kind::kRoutes, false},
    {"net/if_inet6", Kind::kInterfacesSix, false},
    {"net/dev", Kind::kFixed, false,
     "Inter-|   Receive                                                |  Transmit\n"
     " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo "
     "colls "
     "carrier compressed\n"
     "    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     "
     "0  "
     "     0          0\n"
     "  eth0:       0       0    0    0    0     0          0         0        0       0    0    0    0     "
     "0  "
     "     0          0\n"},
    {"net/", Kind::kFixed, false},
};

void write(Text& out, const Known& known, std::string_view text, const Subject& subject) {
    switch (known.kind) {
        case Kind::kStat:
            return write_stat(out, text, subject);
        case Kind::kStatm:
            return write_statm(out);
        case Kind::kStatus:
            return write_status(out, text, subject);
        case Kind::kMaps:
            return write_maps(out, text);
        case Kind::kSmaps:
            return write_smaps(out, text);
        case Kind::kRollup:
            out << "00000000-ffffffff ---p 00000000 00:00 0 [rollup]\n";
            return write_sizes(out, kShownKilobytes);
        case Kind::kIo:
            out << "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: "
                   "0\ncancelled_write_bytes: 0\n";
            return;
        case Kind::kMountInfo:
            return write_mount_info(out);
        case Kind::kMounts:
            return write_mounts(out);
        case Kind::kMountStatistics:
            return write_mount_statistics(out);
        case Kind::kDescriptor:
            return write_descriptor(out, text);
        case Kind::kRoutes:
            return write_routes(out);
        case Kind::kInterfacesSix:
            return write_interfaces_six(out);
        case Kind::kFixed:
            out << known.text;
            return;
        case Kind::kRefused:
            return;
    }
}

/// "/proc/" and "self", "thread-self" or a number, and perhaps "/task/" and a number: the rest is the name of
/// a file. Length of the folder, 0 if it is none.
size_t folder_of(std::string_view path, int& id) {
    std::string_view rest = path.substr(6);
    const auto number = [&rest](int& value) {
        const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        if (end.ec != std::errc{}) return false;
        rest.remove_prefix(static_cast<size_t>(end.ptr - rest.data()));
        return true;
    };
    if (rest.substr(0, 4) == "self") {
        id = runtime.process->pid;
        rest.remove_prefix(4);
    } else if (rest.substr(0, 11) == "thread-self") {
        id = runtime.process->pid;
        rest.remove_prefix(11);
    } else if (!number(id)) {
        return 0;
    }
    if (rest.substr(0, 6) == "/task/") {
        int task = 0;
        rest.remove_prefix(6);
        if (!number(task)) return 0;
    }
    return !rest.empty() && rest.front() == '/' ? path.size() - rest.size() : 0;
}

long open_known(const Known& known, const char* path, int id, bool close_on_exec) {
    if (!known.from_kernel) {
        struct statx info;
        long there = raw(SYS_faccessat, AT_FDCWD, path, R_OK);
        if (there == 0) there = raw(SYS_statx, AT_FDCWD, path, 0, STATX_TYPE, &info);
        if (there < 0) return there;
        if (S_ISDIR(info.stx_mode)) return -1;
    }
    if (known.kind == Kind::kRefused) return -EACCES;
    // The kernel's smaps hold sizes that are each host's, and take long.
    char source[128] = "/dev/null";
    const size_t length = strlen(path), name = known.name.size();
    if (known.from_kernel) {
        if (length >= sizeof(source)) return -ENOENT;
        std::memcpy(source, path, length + 1);
        if (known.kind == Kind::kSmaps) std::memcpy(source + length - name, "maps", sizeof("maps"));
    }
    const Content content(source);
    if (content.error() != 0) return content.error();
    const uint32_t process = process_with(id);
    const Subject subject{process, process == runtime.process_index};
    return open_memory_file("proc", close_on_exec,
                            [&](Text& out) { write(out, known, content.text(), subject); });
}

bool fits(std::string_view known, std::string_view name) {
    if (!known.ends_with('/')) return known == name;
    // A folder itself is opened as it is.
    return name.starts_with(known) && name.find_first_not_of('/', known.size()) != std::string_view::npos;
}

}  // namespace

long open_process_file(const char* path, bool close_on_exec) {
    std::string_view whole(path);
    if (whole == "/etc/mtab") whole = "/proc/self/mounts";
    if (whole == "/proc/mounts") whole = "/proc/self/mounts";
    char of_network[128] = "/proc/self";
    if (whole.starts_with("/proc/net/") && whole.size() < 100) {
        std::memcpy(of_network + 10, path + 5, whole.size() - 5 + 1);
        whole = of_network;
    }
    if (!whole.starts_with("/proc/")) return -1;
    if (is_of_ended_orphan(path)) return -ENOENT;
    int id = 0;
    const size_t folder = folder_of(whole, id);
    if (folder == 0) return -1;
    const std::string_view name = whole.substr(folder + 1);
    for (const Known& known : kKnown)
        if (fits(known.name, name)) return open_known(known, whole.data(), id, close_on_exec);
    return -1;
}

bool is_of_ended_orphan(const char* path) {
    if (domain().orphans == 0 || !path || !readable_text(path)) return false;
    const std::string_view whole(path);
    if (!whole.starts_with("/proc/")) return false;
    const std::string_view rest = whole.substr(6);
    int pid = 0;
    const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
    return end.ec == std::errc{} && (*end.ptr == 0 || *end.ptr == '/') && is_ended_orphan(pid);
}

uint64_t links_of_tasks(const char* path) {
    const std::string_view whole(path);
    if (!whole.starts_with("/proc/")) return 0;
    int id = 0;
    const size_t folder = folder_of(whole, id);
    if (folder == 0 || whole.substr(folder + 1) != "task") return 0;
    return 2 + count_threads_of(process_with(id));
}

}  // namespace crane::interpose
