"""Who has which board until when: leases in the database of the records, which several hosts share."""

from host.leases.heartbeats import Heartbeats
from host.leases.lease import Lease, leased
from host.leases.table import LEASE_S, RENEW_S, BoardStatus, LeaseTable, Request, Waiting

__all__ = [
    "LEASE_S",
    "RENEW_S",
    "BoardStatus",
    "Heartbeats",
    "Lease",
    "LeaseTable",
    "Request",
    "Waiting",
    "leased",
]
