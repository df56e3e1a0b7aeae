"""The bytes that the two ends of a conversation expect of each other."""

PIECE = 100_000  # not a multiple of any MTU


def pattern(seed: int) -> bytes:
    """PIECE bytes that no other seed gives."""
    return bytes((i * (2 * seed + 1) + i // 251 + seed) & 0xFF for i in range(PIECE))
