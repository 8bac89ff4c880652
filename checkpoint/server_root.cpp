#include "checkpoint/server_root.hpp"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <stdexcept>

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's own bound
constexpr char kNowhere[] = "/.crane-no-such-file";

std::optional<std::string> link_at(const std::string& path) {
    std::error_code error;
    const fs::path target = fs::read_symlink(path, error);
    if (error) return std::nullopt;
    return target.string();
}

void push_front(std::deque<std::string>& parts, const std::string& path) {
    std::vector<std::string> more;
    for (const fs::path& part : fs::path(path).relative_path())
        if (!part.empty() && part != ".") more.push_back(part.string());
    parts.insert(parts.begin(), more.begin(), more.end());
}

struct Close {
    void operator()(FILE* file) const { ::fclose(file); }
};

/// Calls `use` for each entry that `next` reads from the file of accounts, until it says that it is enough.
template <typename Next, typename Use>
void each_account(const std::string& path, Next next, Use use) {
    const std::unique_ptr<FILE, Close> file(::fopen(path.c_str(), "re"));
    if (!file) return;
    while (auto* entry = next(file.get()))
        if (use(*entry)) return;
}

}  // namespace

ServerRoot::Walked ServerRoot::walk(const std::string& path) const {
    std::deque<std::string> parts;
    push_front(parts, path);
    std::string done;
    for (int links = 0; !parts.empty();) {
        const std::string part = parts.front();
        parts.pop_front();
        if (part == "..") {
            done.resize(done.empty() ? 0 : done.rfind('/'));
            continue;
        }
        const std::string next = done + "/" + part;
        struct stat info {};
        if (::lstat((folder_ + next).c_str(), &info) != 0) {
            // Nothing is below it, so no link either.
            std::string missing = next;
            for (const std::string& rest : parts) missing += "/" + rest;
            return {fs::path(missing).lexically_normal().string(), false};
        }
        if (!S_ISLNK(info.st_mode)) {
            done = next;
            continue;
        }
        const std::optional<std::string> target = link_at(folder_ + next);
        if (!target || ++links > kMaxLinks) return {kNowhere, false};
        if (target->starts_with('/')) done.clear();
        push_front(parts, *target);
    }
    return {done.empty() ? "/" : done, true};
}

std::optional<std::string> ServerRoot::resolve(const std::string& path) const {
    if (is_image()) {
        const Walked walked = walk(path);
        return walked.there ? std::optional(walked.path) : std::nullopt;
    }
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    return error ? std::nullopt : std::optional(real.string());
}

std::string ServerRoot::on_host(const std::string& path) const {
    return is_image() ? folder_ + walk(path).path : path;
}

std::optional<ServerRoot::User> ServerRoot::user(const std::string& name) const {
    std::optional<User> found;
    const auto take = [&](const passwd& entry) {
        if (name != entry.pw_name) return false;
        found = {entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell};
        return true;
    };
    if (is_image()) {
        each_account(on_host("/etc/passwd"), ::fgetpwent, take);
    } else if (const passwd* entry = ::getpwnam(name.c_str())) {
        take(*entry);
    }
    return found;
}

std::optional<gid_t> ServerRoot::group(const std::string& name) const {
    std::optional<gid_t> found;
    const auto take = [&](const ::group& entry) {
        if (name == entry.gr_name) found = entry.gr_gid;
        return found.has_value();
    };
    if (is_image()) {
        each_account(on_host("/etc/group"), ::fgetgrent, take);
    } else if (const ::group* entry = ::getgrnam(name.c_str())) {
        take(*entry);
    }
    return found;
}

std::vector<gid_t> ServerRoot::groups_of(const std::string& name, gid_t own) const {
    std::vector<gid_t> groups{own};
    if (is_image()) {
        each_account(on_host("/etc/group"), ::fgetgrent, [&](const ::group& entry) {
            for (char** member = entry.gr_mem; *member; ++member)
                if (name == *member && entry.gr_gid != own) groups.push_back(entry.gr_gid);
            return groups.size() > kMaxGroups;
        });
    } else {
        int count = kMaxGroups;
        groups.resize(kMaxGroups);
        groups.resize(::getgrouplist(name.c_str(), own, groups.data(), &count) < 0
                          ? kMaxGroups + 1
                          : static_cast<size_t>(count));
    }
    if (groups.size() > kMaxGroups)
        throw std::runtime_error("user " + name + " is in more than " + std::to_string(kMaxGroups) +
                                 " groups");
    return groups;
}

}  // namespace crane::checkpoint
