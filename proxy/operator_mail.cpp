#include "proxy/operator_mail.hpp"

#include <string.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace crane::proxy {

namespace {

constexpr size_t kAnswersKept = 64;
constexpr size_t kMaxAnswerBytes = 1 << 20;

std::string letter(char kind, uint64_t number, const std::string& text) {
    std::string out(1, kind);
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return out + text;
}

/// Takes the number off the front; false where there is none.
bool take_number(std::string_view& body, uint64_t& number) {
    if (body.size() < sizeof(number)) return false;
    memcpy(&number, body.data(), sizeof(number));
    body.remove_prefix(sizeof(number));
    return true;
}

}  // namespace

uint64_t OperatorMail::ask(uint32_t replica, const nlohmann::json& request) {
    const uint64_t number = last_number_ + 1;
    if (!send_(replica, letter('O', number, request.dump()))) return 0;
    return last_number_ = number;
}

std::string OperatorMail::answer(uint64_t number) const {
    const auto found = std::find_if(answers_.begin(), answers_.end(),
                                    [number](const auto& one) { return one.first == number; });
    return found == answers_.end() ? std::string() : found->second;
}

void OperatorMail::on_request(uint32_t from, std::string_view body) {
    uint64_t number = 0;
    if (!take_number(body, number)) return;
    const nlohmann::json request = nlohmann::json::parse(body, nullptr, false);
    if (!request.is_object()) return;
    try {
        // This may be gone when the reply is there.
        handler_(request, [self = std::weak_ptr(self_), from, number](const nlohmann::json& reply) {
            if (const auto still = self.lock()) (*still)->answer_to(from, number, reply);
        });
    } catch (const std::exception& error) {
        answer_to(from, number, {{"error", error.what()}});
    }
}

void OperatorMail::answer_to(uint32_t to, uint64_t number, const nlohmann::json& reply) {
    std::string text = reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (text.size() > kMaxAnswerBytes) text = R"({"error":"the answer is too long to be sent"})";
    send_(to, letter('A', number, text));
}

void OperatorMail::on_answer(std::string_view body) {
    uint64_t number = 0;
    if (!take_number(body, number) || number == 0 || number > last_number_ || body.size() > kMaxAnswerBytes)
        return;
    answers_.emplace_back(number, std::string(body));
    if (answers_.size() > kAnswersKept) answers_.pop_front();
}

}  // namespace crane::proxy
