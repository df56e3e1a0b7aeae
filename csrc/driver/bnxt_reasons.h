// The reasons that a bnxt gives in its events for the failure of a queue pair or a completion queue, in words.
#pragma once

#include <cstdint>
#include <string>

namespace userdma::driver {

// Of creq_qp_error_notification: the reasons of the pair's requester and of its responder, 0 for none.
std::string describe_qp_error(uint8_t requester, uint8_t responder);

// Of creq_cq_error_notification.
std::string describe_cq_error(uint32_t queue, uint8_t reason);

}  // namespace userdma::driver
