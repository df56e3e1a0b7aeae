"""What the data path counts, as the RoCE firmware reports it (QUERY_ROCE_STATS, QUERY_ROCE_STATS_EXT).

A counter that the soft NIC has nothing for is 0.
"""

from __future__ import annotations

from collections.abc import Mapping

# By the field's name in creq_query_roce_stats_resp_sb and in creq_query_roce_stats_ext_resp_sb: the counter of the data
# path (SoftBnxt.stats).
_ERRORS = {
    "to_retransmits": "timeouts",
    "seq_err_naks_rcvd": "sequence_naks_received",
    "max_retry_exceeded": "retries_exceeded",
    "rnr_naks_rcvd": "rnr_naks_received",
    "missing_resp": "implied_naks",
    "dup_req": "duplicates",
    "res_oos_drop_count": "dropped_sequence",
}
_EXTENDED = {
    "tx_atomic_req_pkts": "atomics_sent",
    "tx_read_req_pkts": "read_requests_sent",
    "tx_read_res_pkts": "read_responses_sent",
    "tx_write_req_pkts": "writes_sent",
    "tx_send_req_pkts": "sends_sent",
    "tx_roce_pkts": "mtu_packets_sent",
    "tx_roce_bytes": "bytes_sent",
    "rx_atomic_req_pkts": "atomics_received",
    "rx_read_req_pkts": "read_requests_received",
    "rx_read_res_pkts": "read_responses_received",
    "rx_write_req_pkts": "writes_received",
    "rx_send_req_pkts": "sends_received",
    "rx_roce_pkts": "mtu_packets_received",
    "rx_roce_bytes": "bytes_received",
    "rx_roce_good_pkts": "mtu_packets_received",
    "rx_roce_good_bytes": "bytes_received",
    "rx_out_of_buffer_pkts": "dropped_no_receive",
    "rx_out_of_sequence_pkts": "dropped_sequence",
    "seq_err_naks_rcvd": "sequence_naks_received",
    "rnr_naks_rcvd": "rnr_naks_received",
    "missing_resp": "implied_naks",
    "to_retransmit": "timeouts",
    "dup_req": "duplicates",
}


def errors(stats: Mapping[str, int], queue_pairs: int) -> dict[str, int]:
    """The fields of QUERY_ROCE_STATS's answer."""
    counted = {field: stats[name] for field, name in _ERRORS.items()}
    return {"num_counters": 44, "active_qp_count_p0": queue_pairs, **counted}


def extended(stats: Mapping[str, int]) -> dict[str, int]:
    """The fields of QUERY_ROCE_STATS_EXT's answer."""
    return {field: stats[name] for field, name in _EXTENDED.items()}
