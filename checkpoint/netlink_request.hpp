// Requests to the kernel's routing socket (rtnetlink(7)), and its answer.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace crane::checkpoint {

/// A message of fixed room: what does not fit is a mistake of the caller's.
class NetlinkRequest {
  public:
    /// `body`: ifinfomsg or ifaddrmsg.
    template <class Body>
    NetlinkRequest(uint16_t type, const Body& body) {
        header().nlmsg_type = type;
        header().nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        header().nlmsg_len = NLMSG_HDRLEN;
        raw(&body, sizeof(body));
    }
    void attribute(uint16_t type, const void* value, size_t bytes);
    void attribute(uint16_t type, std::string_view text);  ///< with the zero behind it
    void attribute(uint16_t type, uint32_t value) { attribute(type, &value, sizeof(value)); }
    /// Attributes up to end() are within this one. Returns its place.
    size_t begin(uint16_t type);
    void end(size_t place);
    /// Without a head of its own, as the body of a nested message has none.
    void raw(const void* value, size_t bytes);
    /// 0, or an errno.
    int ask() const;

  private:
    nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(bytes_); }

    alignas(nlmsghdr) uint8_t bytes_[512]{};
};

}  // namespace crane::checkpoint
