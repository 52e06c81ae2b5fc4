"""A debugger and profiler for the optimizer step of language-model training."""

__version__ = "0.1.0"
