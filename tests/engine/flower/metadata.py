"""What Flower notes about a message."""

from flwr.app import DEFAULT_TTL, Metadata


def about(number: str) -> Metadata:
    return Metadata(
        run_id=1,
        message_id="",
        src_node_id=1,
        dst_node_id=1,
        reply_to_message_id=number,
        group_id="",
        created_at=0.0,
        ttl=DEFAULT_TTL,
        message_type="query",
    )
