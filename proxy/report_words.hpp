// What a replica says to the leader with its acknowledgements, whether it has a server or not.
#pragma once

#include <string>
#include <string_view>

#include "proxy/divergence.hpp"
#include "proxy/timekeeper.hpp"

namespace crane::proxy {

struct ReportHead {
    uint64_t settings = 0;   ///< settings_hash.hpp; 0: a witness, which has none
    Reading reading{};       ///< of its host's clocks
    uint64_t ended = 0;      ///< number of its server, if that has ended and the next one is not begun
    bool unstarted = false;  ///< that one has ended, as it could not be started
};

/// `last`: its server's last admission; null: there is none, or nothing to compare.
std::string encode_report(const ReportHead& head, const Admission* last);
/// False: it is too short. What follows the head is left in `report`.
bool decode_report(std::string_view& report, ReportHead& head);

}  // namespace crane::proxy
