"""What optimizers that work on whole matrices share: kernels for products, and how a plan lays them out."""
