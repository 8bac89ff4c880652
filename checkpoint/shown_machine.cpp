#include "checkpoint/shown_machine.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/shown_files.hpp"
#include "checkpoint/shown_processors.hpp"

namespace crane::checkpoint {
namespace {

// Not a tmpfs, which knows when its files were made.
constexpr char kFileSystem[] = "ramfs";
constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
constexpr timespec kTimes[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};  // long before any server's own
// Where files are made that are then bound elsewhere: it is covered itself when they are.
constexpr char kWorkshop[] = "/sys";
constexpr char kUuid[] = "/kernel/random/uuid";

using Missing = std::vector<std::string>;

void tell(Missing* missing, const std::string& what) {
    missing->push_back(what + " is the host's own: " + std::strerror(errno));
}

void make_folders(const std::string& path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
        ::mkdir(path.substr(0, at).c_str(), 0755);
}

void settle(const std::string& path) {
    ::utimensat(AT_FDCWD, path.c_str(), kTimes, AT_SYMLINK_NOFOLLOW);
}

bool write_file(const std::string& path, std::string_view text) {
    make_folders(path);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    const bool done =
        ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fchmod(fd, 0444) == 0;
    ::close(fd);
    settle(path);
    return done;
}

std::vector<FileText> all_files(const ShownMachine& machine) {
    std::vector<FileText> files;
    for (const ShownFile& one : kShownFiles) files.push_back({std::string(one.path), std::string(one.text)});
    for (const auto& one : kSizedFiles<std::ostream>) {
        std::ostringstream text;
        one.write(text, machine);
        files.push_back({std::string(one.path), text.str()});
    }
    for (FileText& one : processor_files(machine)) files.push_back(std::move(one));
    return files;
}

/// Of the file system itself: what is bound from it is so, too.
bool make_read_only(const char* point) {
    return ::mount(nullptr, point, nullptr, MS_REMOUNT | MS_RDONLY | kFlags, nullptr) == 0;
}

/// The folders get their times last, since what is made in them changes these.
void settle_folders(const std::string& folder) {
    if (DIR* open = ::opendir(folder.c_str())) {
        while (const dirent* entry = ::readdir(open))
            if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
                settle_folders(folder + "/" + entry->d_name);
        ::closedir(open);
    }
    settle(folder);
}

bool cover(const std::string& point, const std::vector<FileText>& files) {
    if (::mount(kFileSystem, point.c_str(), kFileSystem, kFlags, "mode=755") != 0) return false;
    bool done = true;
    for (const FileText& file : files)
        if (file.path.starts_with(point + "/")) done = write_file(file.path, file.text) && done;
    return done;
}

bool is_folder(const std::string& path) {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

/// Processes, and what is of the container's own namespaces.
bool stays(const std::string& name) {
    constexpr std::string_view kStaying[] = {".",   "..",     "self",    "thread-self",
                                             "net", "mounts", "sysvipc", "sys"};
    return std::ranges::count(kStaying, name) != 0 ||
           name.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> names_in_proc() {
    std::vector<std::string> names;
    DIR* proc = ::opendir("/proc");
    if (proc == nullptr) return names;
    while (const dirent* entry = ::readdir(proc))
        if (!stays(entry->d_name)) names.emplace_back(entry->d_name);
    ::closedir(proc);
    return names;
}

/// Each file and folder for itself, since processes come and go among them. What is known is shown, the rest
/// empty.
void cover_proc(const std::vector<FileText>& files, Missing* missing) {
    if (::mount(kFileSystem, kWorkshop, kFileSystem, kFlags, "mode=755") != 0) return tell(missing, "/proc");
    const std::string nothing = std::string(kWorkshop) + "/nothing",
                      folder = std::string(kWorkshop) + "/folder";
    ::mkdir(folder.c_str(), 0555);
    write_file(nothing, "");
    for (const FileText& file : files)
        if (file.path.starts_with("/proc/") && !file.path.starts_with("/proc/sys/"))
            write_file(kWorkshop + file.path, file.text);
    settle_folders(kWorkshop);
    if (!make_read_only(kWorkshop)) tell(missing, "what stands in /proc can be written, and");
    for (const std::string& name : names_in_proc()) {
        const std::string path = "/proc/" + name;
        std::string source = kWorkshop + path;
        if (::access(source.c_str(), F_OK) != 0) source = is_folder(path) ? folder : nothing;
        if (::mount(source.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) tell(missing, path);
    }
    ::umount2(kWorkshop, MNT_DETACH);
}

void cover_settings(std::vector<FileText> files, Missing* missing) {
    const std::string point = "/proc/sys";
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    files.push_back({point + "/kernel/hostname", std::string(name) + "\n"});
    // One that draws a new number each time, for programs without the shim.
    const int random = ::open((point + kUuid).c_str(), O_PATH | O_CLOEXEC);
    if (!cover(point, files)) return tell(missing, point);
    if (random >= 0) {
        write_file(point + kUuid, "");
        const std::string source = "/proc/self/fd/" + std::to_string(random);
        ::mount(source.c_str(), (point + kUuid).c_str(), nullptr, MS_BIND, nullptr);
        ::close(random);
    }
    settle_folders(point);
    if (!make_read_only(point.c_str())) tell(missing, point);
}

void cover_sys(const std::vector<FileText>& files, Missing* missing) {
    if (!cover("/sys", files)) return tell(missing, "/sys");
    for (const std::string_view folder : kShownFolders) {
        make_folders(std::string(folder) + "/");
    }
    settle_folders("/sys");
    if (!make_read_only("/sys")) tell(missing, "/sys");
}

/// What LXC has just made in /dev has the host's time. Not devices, which may be the host's own.
void settle_devices(const std::string& folder, dev_t device) {
    struct stat info {};
    if (::lstat(folder.c_str(), &info) != 0 || info.st_dev != device) return;
    if (DIR* open = ::opendir(folder.c_str())) {
        while (const dirent* entry = ::readdir(open)) {
            const std::string_view name = entry->d_name;
            const std::string path = folder + "/" + entry->d_name;
            if (name == "." || name == "..") continue;
            if (entry->d_type == DT_DIR) settle_devices(path, device);
            const bool own = ::lstat(path.c_str(), &info) == 0 && info.st_dev == device;
            if (own && (entry->d_type == DT_LNK || entry->d_type == DT_REG)) settle(path);
        }
        ::closedir(open);
    }
    settle(folder);
}

void settle_devices() {
    struct stat info {};
    for (const char* point : {"/dev/pts", "/dev/shm", "/dev/mqueue"})
        if (::lstat(point, &info) == 0) settle(point);
    if (::lstat("/dev", &info) == 0) settle_devices("/dev", info.st_dev);
}

}  // namespace

std::vector<std::string> show_machine(const ShownMachine& machine) {
    Missing missing;
    const std::vector<FileText> files = all_files(machine);
    cover_proc(files, &missing);
    cover_settings(files, &missing);
    cover_sys(files, &missing);
    settle_devices();
    return missing;
}

}  // namespace crane::checkpoint
