#include "proxy/readings.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "proxy/output_marks.hpp"
#include "proxy/worker.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr size_t kAnswersKept = 64;

json read_output(OutputMarks& marks, const json& request) {
    std::optional<uint64_t> at;
    if (request.contains("at")) {
        if (!request["at"].is_number_unsigned()) return {{"error", "output: \"at\" is a number of records"}};
        at = request["at"];
    }
    try {
        return marks.mark(at, request.value("words", false));
    } catch (const std::exception& error) {
        return {{"error", error.what()}};
    }
}

}  // namespace

Readings::Readings(event_base* base, const std::string& state_dir)
    : base_(base), marks_(std::make_shared<OutputMarks>(state_dir)) {}

Readings::~Readings() = default;

bool Readings::knows(const std::string& command) {
    return command == "output";
}

void Readings::ask(const json& request, Reply reply) {
    if (waiting_ >= kMaxWaiting) {
        reply({{"error", "this replica reads its files for others already; try again"}});
        return;
    }
    if (!worker_) worker_ = std::make_unique<Worker>(base_, "crane-reads");
    ++waiting_;
    const auto result = std::make_shared<json>();
    worker_->post([marks = marks_, request, result] { *result = read_output(*marks, request); },
                  [this, result, reply = std::move(reply)] {
                      --waiting_;
                      reply(std::move(*result));
                  });
}

uint64_t Readings::begin(const json& request) {
    const uint64_t number = ++last_number_;
    ask(request, [this, number](const json& reply) {
        answers_.emplace_back(number, reply.dump(-1, ' ', false, json::error_handler_t::replace));
        if (answers_.size() > kAnswersKept) answers_.pop_front();
    });
    return number;
}

std::string Readings::answer(uint64_t number) const {
    const auto found = std::find_if(answers_.begin(), answers_.end(),
                                    [number](const auto& one) { return one.first == number; });
    return found == answers_.end() ? std::string() : found->second;
}

}  // namespace crane::proxy
