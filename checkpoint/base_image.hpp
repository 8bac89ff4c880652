// The base image under a server (image_store.hpp), mounted while its container is being made. The container's
// own mount of it lasts as long as the container; this one is taken away again, so that nothing is left of a
// craned that is killed later.
#pragma once

#include <string>

#include "checkpoint/domain_host.hpp"
#include "checkpoint/server_root.hpp"

namespace crane::checkpoint {

/// Of spec.image while a BaseMount of it lives, or this host's files.
ServerRoot root_of(const DomainSpec& spec);

class BaseMount {
  public:
    /// Nothing without an image. Throws std::runtime_error.
    explicit BaseMount(const DomainSpec& spec);
    ~BaseMount();
    BaseMount(const BaseMount&) = delete;
    BaseMount& operator=(const BaseMount&) = delete;

  private:
    std::string point_;
};

}  // namespace crane::checkpoint
