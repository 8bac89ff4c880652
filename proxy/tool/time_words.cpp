#include "proxy/tool/time_words.hpp"

#include <algorithm>
#include <ctime>

namespace crane::proxy {

std::string utc_text(int64_t since_1970_s) {
    const time_t time = since_1970_s;
    tm parts{};
    char text[64];
    if (!gmtime_r(&time, &parts) || strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        return "?";
    return text;
}

std::string span_text(int64_t seconds) {
    struct Unit {
        int64_t seconds;
        const char* name;
    };
    for (const Unit& unit : {Unit{86400, " d"}, Unit{3600, " h"}, Unit{60, " min"}})
        if (seconds >= 2 * unit.seconds) return std::to_string(seconds / unit.seconds) + unit.name;
    return std::to_string(std::max<int64_t>(0, seconds)) + " s";
}

}  // namespace crane::proxy
