#include "interpose/core/process_files.hpp"

#include <linux/memfd.h>

#include <cstring>
#include <string_view>

#include "interpose/core/machine.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/text.hpp"

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

uint64_t count_threads_of(uint32_t process) {
    const dmt::State& s = domain().scheduler;
    uint64_t count = 0;
    for (dmt::SlotId slot = 0; slot < s.high_water; ++slot)
        count += s.slots[slot].process == process && s.slots[slot].state != dmt::SlotState::kFree;
    return count ? count : 1;
}

/// As the schedule has it: who asks runs, and who could run does, too.
char state_of(const Subject& subject) {
    if (subject.own) return 'R';
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
            out << (subject.process == kNone ? uint64_t{1} : count_threads_of(subject.process));
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

void write_status_line(Text& out, std::string_view line, const Subject& subject) {
    std::string_view rest = line;
    const std::string_view key = take(rest, ':');
    // What the processor and the kernel's version make of it.
    if (starts_with_any(key, {"Speculation", "x86_", "untag_", "THP_", "Cpus_allowed", "Mems_allowed"}))
        return;
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
        out << "\t" << (subject.process == kNone ? uint64_t{1} : count_threads_of(subject.process));
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

bool is_kernels_own(std::string_view type) {
    for (const std::string_view known :
         {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "overlay", "devtmpfs", "squashfs"})
        if (type == known) return true;
    return false;
}

/// Where what is mounted, in the order of their coming: numbers, sources and options are the host's.
void write_mounts(Text& out, std::string_view text, bool with_numbers) {
    for (uint64_t number = 1; !text.empty(); ++number) {
        std::string_view line = take(text, '\n');
        for (int i = 0; i < 4; ++i) take(line, ' ');
        const std::string_view place = take(line, ' ');
        const size_t separator = line.find(" - ");
        if (separator == std::string_view::npos) continue;
        std::string_view rest = line.substr(separator + 3);
        std::string_view type = take(rest, ' ');
        if (type == "cgroup" || type == "cgroup2") continue;  // whose limits are the host's
        if (!is_kernels_own(type)) type = "ext4";
        if (with_numbers) {
            out << number << " " << (number == 1 ? uint64_t{0} : uint64_t{1}) << " 0:" << number << " / "
                << place << " rw,relatime - " << type << " none rw\n";
        } else {
            out << "none " << place << " " << type << " rw,relatime 0 0\n";
        }
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
    kSchedule,
    kScheduleTimes,
    kMountInfo,
    kMounts,
    kGroups
};

struct Known {
    const char* name;
    Kind kind;
    const char* source;  ///< what it is made of; nullptr: of nothing
};
constexpr Known kKnown[] = {
    {"stat", Kind::kStat, "stat"},
    {"statm", Kind::kStatm, nullptr},
    {"status", Kind::kStatus, "status"},
    {"maps", Kind::kMaps, "maps"},
    {"smaps", Kind::kSmaps, "maps"},
    {"smaps_rollup", Kind::kRollup, nullptr},
    {"io", Kind::kIo, nullptr},
    {"sched", Kind::kSchedule, nullptr},
    {"schedstat", Kind::kScheduleTimes, nullptr},
    {"mountinfo", Kind::kMountInfo, "mountinfo"},
    {"mounts", Kind::kMounts, "mountinfo"},
    {"cgroup", Kind::kGroups, nullptr},
};

void write(Text& out, Kind kind, std::string_view text, const Subject& subject) {
    switch (kind) {
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
        case Kind::kSchedule:
            out << "se.exec_start : 0.000000\nnr_switches : 0\n";
            return;
        case Kind::kScheduleTimes:
            out << "0 0 0\n";
            return;
        case Kind::kMountInfo:
            return write_mounts(out, text, true);
        case Kind::kMounts:
            return write_mounts(out, text, false);
        case Kind::kGroups:
            out << "0::/\n";
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

long open_known(const Known& known, std::string_view folder, int id, bool close_on_exec) {
    char source[128];
    const std::string_view name = known.source ? known.source : known.name;
    if (folder.size() + name.size() + 2 > sizeof(source)) return -ENOENT;
    std::memcpy(source, folder.data(), folder.size());
    source[folder.size()] = '/';
    std::memcpy(source + folder.size() + 1, name.data(), name.size());
    source[folder.size() + 1 + name.size()] = 0;
    if (!known.source) {
        const long there = raw(SYS_faccessat, AT_FDCWD, source, R_OK);
        if (there < 0) return there;
    }
    const Content content(known.source ? source : "/dev/null");
    if (content.error() != 0) return content.error();
    const uint32_t process = id == runtime.process->pid ? runtime.process_index : find_process(id);
    const Subject subject{process, process == runtime.process_index};
    const long fd = raw(SYS_memfd_create, known.name, close_on_exec ? MFD_CLOEXEC : 0);
    if (fd < 0) return fd == -1 ? -ENFILE : fd;
    {
        Text out(static_cast<int>(fd));
        write(out, known.kind, content.text(), subject);
    }
    raw(SYS_lseek, fd, 0, SEEK_SET);
    return fd;
}

}  // namespace

long open_process_file(const char* path, bool close_on_exec) {
    std::string_view whole(path);
    if (whole == "/proc/mounts" || whole == "/etc/mtab") whole = "/proc/self/mounts";
    if (whole.substr(0, 6) != "/proc/") return -1;
    int id = 0;
    const size_t folder = folder_of(whole, id);
    if (folder == 0) return -1;
    const std::string_view name = whole.substr(folder + 1);
    for (const Known& known : kKnown)
        if (name == known.name) return open_known(known, whole.substr(0, folder), id, close_on_exec);
    return -1;
}

}  // namespace crane::interpose
