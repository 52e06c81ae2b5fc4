"""Where gradients come from: the live model, synthetic data, state files."""
