// What is said to CRIU and what it answers: its RPC messages (criu's images/rpc.proto), as bytes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crane::checkpoint {

struct CriuRequest {
    bool restore = false;  ///< else a dump
    int images_fd = -1;    ///< the folder, as a descriptor of the process that asks
    int root_pid = 0;      ///< of a dump
    std::string log_file;  ///< a name in that folder
    struct Replacement {
        std::string key;  ///< how CRIU calls what the process had open: "pipe:[123]", "/memfd:name"
        int fd;           ///< of CRIU's process, what a restored process has in its place
    };
    std::vector<Replacement> replacements;  ///< of a restore
    std::vector<std::string> watched;       ///< of a dump: paths of what inotify watches
};

std::string encode(const CriuRequest& request);
std::string encode_criu_go_on(bool success);  ///< answers CriuAnswer::stage

struct CriuAnswer {
    bool success = false;
    std::string stage;  ///< not "": under way, and waits; "post-dump", "pre-resume", ...
    std::string error;
    int restored_pid = 0;
};
std::optional<CriuAnswer> decode_criu_answer(const std::string& bytes);

/// The time that the processes stood still, from the text of stats-dump; nothing when it is not one.
std::optional<uint64_t> frozen_us(const std::string& stats_image);

}  // namespace crane::checkpoint
