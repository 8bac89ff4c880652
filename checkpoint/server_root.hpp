// The files under a server: this host's, or those of a base image that is mounted in a folder. Paths are the
// server's; symbolic links are followed as the server would, so that none leads out of the image.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace crane::checkpoint {

class ServerRoot {
  public:
    ServerRoot() = default;  ///< this host's
    explicit ServerRoot(std::string folder) : folder_(std::move(folder)) {}

    bool is_image() const { return !folder_.empty(); }
    /// "/" or the folder.
    std::string folder() const { return folder_.empty() ? "/" : folder_; }
    /// The path without symbolic links; nothing when there is no such file.
    std::optional<std::string> resolve(const std::string& path) const;
    /// Where this host finds what the server sees as `path`, which need not be there.
    std::string on_host(const std::string& path) const;
    bool has(const std::string& path) const { return resolve(path).has_value(); }

    struct User {
        uid_t uid;
        gid_t gid;
        std::string home;
        std::string shell;
    };
    std::optional<User> user(const std::string& name) const;
    std::optional<gid_t> group(const std::string& name) const;
    /// All groups of a user, his own too. Throws std::runtime_error: more than kMaxGroups.
    static constexpr int kMaxGroups = 256;
    std::vector<gid_t> groups_of(const std::string& name, gid_t own) const;

  private:
    struct Walked {
        std::string path;  ///< without links, as far as there is anything
        bool there;
    };
    Walked walk(const std::string& path) const;

    std::string folder_;
};

}  // namespace crane::checkpoint
