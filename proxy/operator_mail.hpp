// Orders of the operator that a backup's control socket takes for the primary, and the answers that come back
// over the link between the daemons. An answer that is lost with its link is simply not there: who asked says
// so.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace crane::proxy {

class OperatorMail {
  public:
    /// False: no link there, or it is full.
    using Send = std::function<bool(uint32_t to, const std::string& message)>;
    /// On the primary: does what is asked, and answers.
    using Handler = std::function<nlohmann::json(const nlohmann::json& request)>;

    OperatorMail(Send send, Handler handler) : send_(std::move(send)), handler_(std::move(handler)) {}

    /// The number under which the answer will be; 0 when the primary cannot be reached.
    uint64_t ask(uint32_t primary, const nlohmann::json& request);
    /// Empty while there is none.
    std::string answer(uint64_t number) const;

    void on_request(uint32_t from, std::string_view body);
    void on_answer(std::string_view body);

  private:
    Send send_;
    Handler handler_;
    uint64_t last_number_ = 0;
    std::deque<std::pair<uint64_t, std::string>> answers_;
};

}  // namespace crane::proxy
