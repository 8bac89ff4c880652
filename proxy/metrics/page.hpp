// The page at /: one file without anything from elsewhere, which asks for /status.json every two seconds.
#pragma once

namespace crane::proxy {

extern const char kPage[];

}  // namespace crane::proxy
