// The segment shared with the domain, and the fifo that the domain rings: made at start, removed at the end.
//
// The files lie on tmpfs where there is one, so that their pages are never written to disk; STATE/rN/shared
// is then a symlink. The outer directory can be entered by craned's user alone; inside, everybody may write,
// since a server that has dropped to another user still has to reach the segment through its container's
// /run/crane.
#pragma once

#include <string>

#include "timebubble/transport.hpp"

namespace crane::proxy {

class Segment {
  public:
    /// `enterable`: without a container the server walks the host's path, so the outer directory must let it
    /// through.
    Segment(const std::string& state_dir, const std::string& cluster_id, uint32_t replica, bool enterable);
    ~Segment();
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    const timebubble::TransportView& view() const { return view_; }
    int doorbell_fd() const { return doorbell_; }
    const std::string& directory() const { return directory_; }

  private:
    void make_files();

    std::string outer_;      ///< directory on tmpfs, or empty
    std::string link_;       ///< STATE/rN/shared
    std::string directory_;  ///< where the files are
    timebubble::TransportView view_{};
    int doorbell_ = -1;
};

}  // namespace crane::proxy
