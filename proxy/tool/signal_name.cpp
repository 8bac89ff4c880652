#include "proxy/tool/signal_name.hpp"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>

namespace crane::proxy {
namespace {

struct Alias {
    std::string_view name;
    int number;
};
constexpr Alias kAliases[] = {{"IOT", SIGIOT}, {"CLD", SIGCLD}, {"POLL", SIGPOLL}};

std::optional<int> whole_number(std::string_view text) {
    int number = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || end.ec != std::errc{} || end.ptr != text.data() + text.size() || number < 0)
        return std::nullopt;
    return number;
}

std::optional<int> realtime(std::string_view name) {
    for (const auto& [base, first, sign] : {std::tuple{std::string_view("RTMIN"), SIGRTMIN, '+'},
                                            std::tuple{std::string_view("RTMAX"), SIGRTMAX, '-'}}) {
        if (!name.starts_with(base)) continue;
        const std::string_view rest = name.substr(base.size());
        if (rest.empty()) return first;
        const std::optional<int> away = rest.front() == sign ? whole_number(rest.substr(1)) : std::nullopt;
        if (!away || *away > SIGRTMAX - SIGRTMIN) return std::nullopt;
        return sign == '+' ? first + *away : first - *away;
    }
    return std::nullopt;
}

std::optional<int> by_name(std::string_view name) {
    for (int number = 1; number < SIGRTMIN; ++number) {
        const char* known = ::sigabbrev_np(number);
        if (known && name == known) return number;
    }
    for (const Alias& alias : kAliases)
        if (name == alias.name) return alias.number;
    return realtime(name);
}

std::string all_names() {
    std::string names;
    for (int number = 1; number < SIGRTMIN; ++number)
        if (const char* known = ::sigabbrev_np(number)) names += std::string(known) + ", ";
    return names + "RTMIN to RTMIN+" + std::to_string(SIGRTMAX - SIGRTMIN);
}

}  // namespace

uint32_t signal_number(const std::string& text) {
    std::optional<int> number = whole_number(text);
    if (number && (*number < 1 || *number > SIGRTMAX)) number.reset();
    if (!number) {
        std::string name = text;
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
        number = by_name(name.starts_with("SIG") ? name.substr(3) : name);
    }
    if (!number)
        throw std::runtime_error("there is no signal \"" + text + "\": give a number from 1 to " +
                                 std::to_string(SIGRTMAX) + ", or one of " + all_names());
    return static_cast<uint32_t>(*number);
}

}  // namespace crane::proxy
