// What the operator asks of one craned for another, orders for the primary above all, and the answers that
// come back over the link between the daemons. An answer that is lost with its link is simply not there: who
// asked says so.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace crane::proxy {

class OperatorMail {
  public:
    /// False: no link there, or it is full.
    using Send = std::function<bool(uint32_t to, const std::string& message)>;
    using Reply = std::function<void(nlohmann::json)>;
    /// Does what is asked, and replies once, then or later.
    using Handler = std::function<void(const nlohmann::json& request, Reply reply)>;

    OperatorMail(Send send, Handler handler) : send_(std::move(send)), handler_(std::move(handler)) {}

    /// The number under which the answer will be; 0 when that replica cannot be reached.
    uint64_t ask(uint32_t replica, const nlohmann::json& request);
    /// Empty while there is none.
    std::string answer(uint64_t number) const;

    void on_request(uint32_t from, std::string_view body);
    void on_answer(std::string_view body);

  private:
    void answer_to(uint32_t to, uint64_t number, const nlohmann::json& reply);

    const std::shared_ptr<OperatorMail*> self_ = std::make_shared<OperatorMail*>(this);
    Send send_;
    Handler handler_;
    uint64_t last_number_ = 0;
    std::deque<std::pair<uint64_t, std::string>> answers_;
};

}  // namespace crane::proxy
