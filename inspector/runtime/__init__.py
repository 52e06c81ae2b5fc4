"""The worker thread, the commands sent to it and the snapshots it sends back."""
