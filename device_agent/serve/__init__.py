"""The resident daemon: clients, sessions, tickets, power modes of clients, and the systemd unit."""
