#include "driver/bnxt_reasons.h"

#include <iterator>

#include "driver/reasons.h"
#include "host/text.h"
#include "hw/bnxt.h"

namespace userdma::driver {

using host::hex;

namespace {

namespace hw = userdma::hw::bnxt;

// By the names of roce_hsi.h, CREQ_QP_ERROR_NOTIFICATION_REQ_ERR_STATE_REASON_*, as the NIC has no other words for
// them.
const char* of_requester(uint8_t reason) {
  namespace r = hw::req_reason;
  switch (reason) {
    case r::kOpcodeError:
      return "an opcode that it cannot send";
    case r::kTimeoutRetryLimit:
      return "the peer acknowledged nothing within the retries";
    case r::kRnrTimeoutRetryLimit:
      return "the peer posted no receive within the retries";
    case r::kNakArrival1:
    case r::kNakArrival2:
    case r::kNakArrival3:
    case r::kNakArrival4:
      return "the peer refused a request";
    case r::kRxMemoryError:
      return "local memory that a response was for could not be written";
    case r::kTxMemoryError:
      return "local memory to send could not be read";
    case r::kReadRespLength:
      return "a read response of the wrong length";
    case r::kInvalidReadResp:
      return "a read response that was not expected";
    case r::kIllegalBind:
      return "an illegal bind of a memory window";
    case r::kIllegalFastReg:
      return "an illegal fast registration";
    case r::kIllegalInvalidate:
      return "an illegal invalidation of a key";
    case r::kCmpError:
      return "its completion could not be written";
    case r::kRetranLocalError:
      return "a local error while it sent again";
    case r::kWqeFormatError:
      return "a malformed work queue entry";
    case r::kOrrqFormatError:
      return "a malformed entry of its queue of reads under way";
    case r::kInvalidAvidError:
      return "an address handle that does not exist";
    case r::kAvDomainError:
      return "an address handle of another protection domain";
    case r::kCqLoadError:
      return "its completion queue could not be loaded";
    case r::kServTypeError:
      return "an operation that its type of service does not have";
    case r::kInvalidOpError:
      return "an invalid operation";
    case r::kTxPciError:
    case r::kRxPciError:
      return "an error on the PCI bus";
    case r::kProdWqeMsmtchError:
      return "a doorbell that does not match the send ring";
    case r::kPsnRangeCheckError:
      return "an acknowledgement of a packet that was not sent";
    case r::kRetxSetupError:
      return "what to send again was not found in the MSN table";
    default:
      return nullptr;
  }
}

// CREQ_QP_ERROR_NOTIFICATION_RES_ERR_STATE_REASON_*
const char* of_responder(uint8_t reason) {
  namespace r = hw::res_reason;
  switch (reason) {
    case r::kExceedMax:
      return "a message longer than the NIC takes";
    case r::kPayloadLengthMismatch:
      return "a packet whose length is not the one it must have (the mtu must be the same at both ends)";
    case r::kExceedsWqe:
      return "a message longer than its receive";
    case r::kOpcodeError:
    case r::kUnsupportedOpcode:
      return reason::kNotTaken;
    case r::kPsnSeqErrorRetryLimit:
      return "packets out of sequence beyond the retries";
    case r::kRxInvalidRKey:
    case r::kTxInvalidRKey:
      return "a key that does not exist, or whose region was deregistered";
    case r::kRxDomainError:
    case r::kTxDomainError:
      return "a key of another protection domain";
    case r::kRxNoPermission:
    case r::kTxNoPermission:
      return reason::kNoRights;
    case r::kRxRangeError:
    case r::kTxRangeError:
      return "memory outside its region";
    case r::kIrrqOflow:
      return "more reads at once than it takes";
    case r::kUnalignAtomic:
      return "an atomic operation on memory that is not aligned to 8 bytes";
    case r::kRemInvalidate:
      return "an invalidation of a key that it may not have";
    case r::kMemoryError:
      return "local memory that could not be reached";
    case r::kSrqError:
      return "an error of its shared receive queue";
    case r::kCmpError:
      return "its completion could not be written";
    case r::kInvalidDupRkey:
      return "a repeated request with another key";
    case r::kWqeFormatError:
      return "a malformed receive";
    case r::kIrrqFormatError:
      return "a malformed entry of its queue of reads";
    case r::kCqLoadError:
      return "its completion queue could not be loaded";
    case r::kSrqLoadError:
      return "its shared receive queue could not be loaded";
    case r::kTxPciError:
    case r::kRxPciError:
      return "an error on the PCI bus";
    case r::kPsnNotFound:
      return "a repeated request that it does not know";
    default:
      return nullptr;
  }
}

std::string words(const char* known, const char* whose, uint8_t reason) {
  const std::string number = std::string(whose) + " reason " + hex(reason);
  return known == nullptr ? number : std::string(known) + " (" + number + ")";
}

}  // namespace

std::string describe_qp_error(uint8_t requester, uint8_t responder) {
  std::string text = reason::kFailure;
  if (requester != 0) text += reason::kRequester + words(of_requester(requester), "requester", requester);
  if (responder != 0) text += reason::kResponder + words(of_responder(responder), "responder", responder);
  return requester == 0 && responder == 0 ? text + ", without a reason" : text;
}

std::string describe_cq_error(uint32_t queue, uint8_t reason) {
  // CREQ_CQ_ERROR_NOTIFICATION_CQ_ERR_REASON_*: of what a requester writes, then the same of a responder.
  static constexpr const char* known[] = {
      nullptr,      "it is not valid",       "it is full", "it could not be loaded", "it is not valid",
      "it is full", "it could not be loaded"};
  const char* found = reason < std::size(known) ? known[reason] : nullptr;
  return "the NIC reported the failure of completion queue " + hex(queue) + ": " + words(found, "its", reason);
}

}  // namespace userdma::driver
