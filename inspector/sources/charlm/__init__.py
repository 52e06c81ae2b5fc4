"""The built-in live model: a small Llama-shaped character model that trains on Python's own source files.

Read text, config, operations, model, source, in this order.

The architecture is that of LLaMA (Touvron et al. 2023): pre-norm blocks of attention and feed-forward with
RMSNorm (Zhang & Sennrich 2019), rotary positions (RoPE, Su et al. 2021) and SwiGLU (Shazeer 2020), no biases,
the head tied to the embedding (Press & Wolf 2017). `autograd` chains the operations; each is fused and brings
its own gradient, because a step has to take a few milliseconds on a laptop's CPU.
"""
