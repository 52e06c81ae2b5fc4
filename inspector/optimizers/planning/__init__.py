"""How the dispatches of a step are laid out, in parts that the plans of all optimizers share."""
