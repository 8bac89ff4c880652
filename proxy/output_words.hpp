// A record of an output log in words, for people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "proxy/output_log_reader.hpp"

namespace crane::proxy {

/// One record in words: "send conn 1000001 clock 77 12 bytes "HTTP/1.1…"".
std::string describe_record(const OutputLogReader& log, size_t excerpt_from = 0);

/// Printable text, with escapes for the rest.
std::string printable(std::string_view bytes);

}  // namespace crane::proxy
