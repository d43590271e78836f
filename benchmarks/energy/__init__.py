"""Programs chosen for energy on simulated boards whose true joules are known."""
