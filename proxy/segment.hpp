// The segment shared with the domain, and the pipe that the domain rings: made at start, gone with their
// users.
//
// Neither has a name. The segment is a memfd, sealed so that nobody can change its size (who maps a file that
// shrinks is ended by SIGBUS), and both reach the server as inherited descriptors: so who runs under another
// user inside the domain has them, and nobody else on the machine can open what clients say.
//
// The directory holds the shim alone. It lies on tmpfs where there is one; STATE/rN/shared is then a symlink.
// Without a container the server's processes walk its path, so it can be entered then, but not listed. It is
// named by cluster and replica: of a second craned for these, with a state directory of its own (a copy),
// each would take the other's away. So its owner holds a lock beside it, as long as that process lives.
#pragma once

#include <string>

#include "timebubble/transport.hpp"

namespace crane::proxy {

class Segment {
  public:
    /// `enterable`: without a container the server walks the host's path, so the outer directory must let it
    /// through. Throws std::runtime_error, also where another process is that replica of that cluster.
    Segment(const std::string& state_dir, const std::string& cluster_id, uint32_t replica, bool enterable);
    ~Segment();
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    /// Another segment and another pipe, for another server; the directory stays. Throws std::runtime_error.
    void renew();

    const timebubble::TransportView& view() const { return view_; }
    /// Becomes readable when the domain rings.
    int doorbell_fd() const { return doorbell_; }
    /// What the server inherits: the segment, and the end of the pipe that is rung.
    int inherited_transport() const { return transport_; }
    int inherited_doorbell() const { return bell_; }
    const std::string& directory() const { return directory_; }

  private:
    void make_directory(const std::string& name, bool enterable);
    /// Of the directory on tmpfs: refuses another process's, and is this one's from here on.
    void refuse_anothers(const std::string& outer) const;
    void own();
    void make_transport();
    void make_doorbell();
    /// What a server traced its schedule to outlives the folder, which is memory.
    void keep_trace() const;
    void discard();
    void discard_transport();

    std::string outer_;      ///< directory on tmpfs, or empty
    std::string link_;       ///< STATE/rN/shared
    std::string directory_;  ///< where the shim is
    timebubble::TransportView view_{};
    int lock_ = -1;  ///< on a file in outer_
    int transport_ = -1;
    int doorbell_ = -1;
    int bell_ = -1;
};

}  // namespace crane::proxy
