"""Device, pipelines, stepper, statistics, map images and timing on wgpu."""
