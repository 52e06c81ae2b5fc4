"""One function a command: its options, and the module that it calls, which is imported when it runs."""
