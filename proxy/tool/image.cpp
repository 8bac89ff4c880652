// crane image: base images, which are what is under a server, made and kept on this host.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "checkpoint/file_sum.hpp"
#include "checkpoint/hidden_paths.hpp"
#include "checkpoint/image_store.hpp"
#include "checkpoint/mounts.hpp"
#include "proxy/tool/progress.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using checkpoint::ImageStore;
using checkpoint::kImagePrefix;
using nlohmann::json;

namespace {

constexpr char kMakeSquashfs[] = "/usr/bin/mksquashfs";
/// The /tmp of services that run (PrivateTmp=), which come and go meanwhile. For mksquashfs -wildcards.
constexpr char kServicesOwn[] = "var/tmp/systemd-private-*\n";

/// A file that goes with this, unless it was renamed.
struct Unfinished {
    std::string path;
    ~Unfinished() { ::unlink(path.c_str()); }
};

/// For mksquashfs -wildcards.
std::string escaped(const std::string& path) {
    std::string out;
    for (const char c : path) {
        if (std::string_view("*?[]\\!").find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

bool any_below(const std::vector<std::string>& paths, const std::string& folder) {
    return std::ranges::any_of(paths,
                               [&](const std::string& path) { return checkpoint::is_below(path, folder); });
}

bool below_any(const std::string& path, const std::vector<std::string>& folders) {
    return std::ranges::any_of(folders,
                               [&](const std::string& one) { return checkpoint::is_below(path, one); });
}

/// What an image is made without. Paths as in the image.
struct LeftOut {
    std::vector<std::string> paths;    ///< with all that is below them
    std::vector<std::string> emptied;  ///< folders that are there, with nothing in them
};

/// Leaves `path` out, but for what of it is to be kept.
void leave_out(const std::string& from, const std::string& path, const std::vector<std::string>& kept,
               std::vector<std::string>* out) {
    if (below_any(path, kept)) return;
    if (!any_below(kept, path)) {
        out->push_back(path);
        return;
    }
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(from + path, ignored))
        leave_out(from, path + "/" + entry.path().filename().string(), kept, out);
}

/// What is left out of an image of `from` (without a slash at its end): what belongs to one host or is made
/// anew in each container.
LeftOut left_out(const std::string& from, const ImageRequest& request) {
    LeftOut out;
    const auto contents = [&](const std::string& folder) {
        std::error_code ignored;
        // Not looked into where nothing in it is kept: in /proc processes come and go meanwhile.
        if (!any_below(request.keep, folder)) {
            if (fs::is_directory(fs::symlink_status(from + folder, ignored))) out.emptied.push_back(folder);
            return;
        }
        for (const auto& entry : fs::directory_iterator(from + folder, ignored))
            leave_out(from, folder + "/" + entry.path().filename().string(), request.keep, &out.paths);
    };
    for (const char* folder : {"/proc", "/sys", "/dev", "/run", "/tmp"}) contents(folder);
    for (const std::string& secret : checkpoint::usual_secrets())
        leave_out(from, secret, request.keep, &out.paths);
    if (from.empty()) {
        contents("/home");
        contents("/root");
    }
    for (const std::string& path : request.exclude) leave_out(from, path, request.keep, &out.paths);
    // Mounts of this host that are no disk's.
    const std::vector<checkpoint::Mount> mounts = checkpoint::read_mounts();
    const auto disks = checkpoint::disk_mounts_below_root(mounts);
    for (const checkpoint::Mount& mount : mounts) {
        if (mount.point == "/" || !checkpoint::is_below(mount.point, from.empty() ? "/" : from)) continue;
        const bool disk = std::ranges::any_of(
            disks, [&](const checkpoint::Mount& one) { return one.point == mount.point; });
        if (!disk && mount.point != from) contents(mount.point.substr(from.size()));
    }
    std::erase_if(out.emptied, [&](const std::string& folder) { return below_any(folder, out.paths); });
    return out;
}

/// For mksquashfs -pf: a folder as it is here, empty.
std::string emptied_line(const std::string& from, const std::string& folder) {
    struct stat info {};
    if (::lstat((from + folder).c_str(), &info) != 0)
        throw checkpoint::file_error("look at", from + folder, errno);
    std::ostringstream line;
    line << '"';
    for (const char c : folder.substr(1)) line << (c == '"' || c == '\\' ? "\\" : "") << c;
    line << "\" D " << info.st_mtime << ' ' << std::oct << (info.st_mode & 07777) << std::dec << ' '
         << info.st_uid << ' ' << info.st_gid << "\n";
    return line.str();
}

void write_lines(const std::string& path, const std::string& text) {
    std::ofstream lines(path, std::ios::trunc);
    lines << text;
    lines.close();
    if (!lines) throw std::runtime_error("cannot write " + path);
}

/// Into the two files that mksquashfs reads; `own` are files that are no part of the image.
void write_left_out(const LeftOut& out, const std::string& from, const std::vector<std::string>& own,
                    const std::string& list, const std::string& emptied) {
    std::string paths = kServicesOwn, folders;
    for (const std::string& path : out.paths) paths += escaped(path.substr(1)) + "\n";
    // One below another is not there.
    for (const std::string& folder : out.emptied) {
        const bool inner = std::ranges::any_of(out.emptied, [&](const std::string& one) {
            return one != folder && checkpoint::is_below(folder, one);
        });
        if (inner || folders.find(emptied_line(from, folder)) != std::string::npos) continue;
        paths += escaped(folder.substr(1)) + "\n";
        folders += emptied_line(from, folder);
    }
    for (const std::string& one : own) {
        const std::string path = fs::absolute(one).lexically_normal().string();
        if (checkpoint::is_below(path, from.empty() ? "/" : from))
            paths += escaped(path.substr(from.size() + 1)) + "\n";
    }
    write_lines(list, paths);
    write_lines(emptied, folders);
}

void check_request(const ImageRequest& request) {
    for (const auto* paths : {&request.exclude, &request.keep})
        for (const std::string& path : *paths)
            if (path.empty() || path[0] != '/' || path.find('\n') != std::string::npos || path.ends_with('/'))
                throw std::runtime_error("\"" + path +
                                         "\" is to be a path in the image: absolute, without / at its end");
    if (fs::exists(request.file)) throw std::runtime_error(request.file + " is there already");
    if (!fs::is_directory(request.from)) throw std::runtime_error(request.from + " is no directory");
    if (fs::is_empty(request.from))
        throw std::runtime_error(request.from + " is empty: no server could be started on it");
    if (::access(kMakeSquashfs, X_OK) != 0)
        throw std::runtime_error("mksquashfs is not installed: apt-get install squashfs-tools");
}

void print(const json& answer, const std::string& text, bool as_json) {
    std::cout << (as_json ? answer.dump() : text) << "\n";
}

uint64_t size_of(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

int make(const ImageRequest& request, bool as_json) {
    check_request(request);
    ::umask(0077);  // mksquashfs', too: what is in the image may be for nobody but who makes it
    const std::string whole = fs::canonical(request.from).string();
    const std::string from = whole == "/" ? "" : whole;
    const Unfinished list{request.file + ".left-out"}, emptied{request.file + ".emptied"},
        image{request.file + ".partial"};
    write_left_out(left_out(from, request), from, {list.path, emptied.path, image.path}, list.path,
                   emptied.path);
    ::unlink(image.path.c_str());
    // The same files make the same image: no time of its making is in it.
    checkpoint::run_command({kMakeSquashfs, whole, image.path, "-noappend", "-exit-on-error", "-quiet",
                             "-no-progress", "-mkfs-time", "0", "-comp", "zstd", "-Xcompression-level", "3",
                             "-wildcards", "-ef", list.path, "-pf", emptied.path},
                            "making a base image of " + whole);
    std::string sum;
    {
        const checkpoint::File file(image.path, O_RDWR);
        Progress progress("sum of " + request.file, file.bytes());
        sum = checkpoint::sha256_of_file(file, progress.counting());
        file.sync();
    }
    // Not over what somebody else has put there.
    if (::link(image.path.c_str(), request.file.c_str()) != 0)
        throw checkpoint::file_error("make", request.file, errno);
    const uint64_t bytes = size_of(request.file);
    print({{"image", kImagePrefix + sum}, {"file", request.file}, {"bytes", bytes}},
          kImagePrefix + sum + "  " + request.file + "  " + size_text(bytes), as_json);
    return kExitOk;
}

int add(const ImageRequest& request, bool as_json) {
    const std::string sum = add_image(request.file, request.store);
    print({{"image", kImagePrefix + sum}, {"file", ImageStore(request.store).path_of(sum)}},
          kImagePrefix + sum, as_json);
    return kExitOk;
}

int list(const ImageRequest& request, bool as_json) {
    json rows = json::array();
    for (const ImageStore::Entry& one : ImageStore(request.store).list()) {
        rows.push_back({{"image", kImagePrefix + one.sum}, {"bytes", one.bytes}, {"added_s", one.added_s}});
        if (!as_json) std::cout << kImagePrefix << one.sum << "  " << size_text(one.bytes) << "\n";
    }
    if (as_json) std::cout << rows.dump() << "\n";
    if (!as_json && rows.empty()) std::cerr << "there are no images in " << request.store << "\n";
    return kExitOk;
}

std::string sum_in(const ImageRequest& request) {
    const auto sum = checkpoint::image_sum_in(request.file);
    if (!sum)
        throw std::runtime_error("\"" + request.file + "\" is no base image's name: sha256: and 64 digits");
    return *sum;
}

int verify(const ImageRequest& request, bool as_json) {
    const ImageStore store(request.store);
    std::vector<std::string> sums;
    if (!request.file.empty()) {
        sums.push_back(sum_in(request));
    } else {
        for (const ImageStore::Entry& one : store.list()) sums.push_back(one.sum);
    }
    json rows = json::array();
    bool right = true;
    for (const std::string& sum : sums) {
        const checkpoint::File file(store.path_of(sum), O_RDONLY);
        Progress progress("sum of " + sum.substr(0, 12), file.bytes());
        const bool same = checkpoint::sha256_of_file(file, progress.counting()) == sum;
        right = right && same;
        rows.push_back({{"image", kImagePrefix + sum}, {"right", same}});
        if (!as_json)
            std::cout << kImagePrefix << sum
                      << (same ? "  as it was" : "  DAMAGED: remove it, and add it again") << "\n";
    }
    if (as_json) std::cout << rows.dump() << "\n";
    return right ? kExitOk : kExitNo;
}

int remove(const ImageRequest& request, bool as_json) {
    const bool was_there = ImageStore(request.store).remove(sum_in(request));
    print({{"removed", was_there}}, was_there ? "removed" : "it is not in " + request.store, as_json);
    return was_there ? kExitOk : kExitNo;
}

}  // namespace

std::string add_image(const std::string& file, const std::string& store) {
    Progress progress("adding " + file, size_of(file));
    return ImageStore(store).add(file, [&](uint64_t done) { progress.at(done); });
}

int tool_image(const ImageRequest& request, bool as_json) {
    if (request.what == "make") return make(request, as_json);
    if (request.what == "add") return add(request, as_json);
    if (request.what == "verify") return verify(request, as_json);
    if (request.what == "remove") return remove(request, as_json);
    return list(request, as_json);
}

}  // namespace crane::proxy
