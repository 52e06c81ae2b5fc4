"""Shampoo (Gupta, Koren & Singer 2018, arXiv 1802.09568, algorithm 1) for matrices, AdamW for the rest.

    g' = clipScale · g        m = β₁·m + (1-β₁)·g'        m̂ = m / (1-β₁ᵗ)
    L = β₂·L + (1-β₂)·G'G'ᵀ        R = β₂·R + (1-β₂)·G'ᵀG'        of each block of a matrix
    X = (L/(1-β₂ᵗ) + ridge)^(-1/4)        Y = (R/(1-β₂ᵗ) + ridge)^(-1/4)        in some steps
    v = X · m̂ · Y        w = w - lr·( v + λ·w )

As Meta's Distributed Shampoo has it (Shi et al. 2023, arXiv 2309.06497): the factors are exponential averages with β₂,
corrected for their start at 0, the gradient is averaged with β₁ before the roots act on it, corrected likewise, and the
decay is decoupled. Without grafting: the update keeps the size that the roots give it. With `factors` "sum" they are
the paper's sums, L = L + G'G'ᵀ and uncorrected; β₁ = 0 is then its algorithm 1 but for the ridge.

Matrices are all params of two or more dimensions, flattened to the first by all others, and are split in blocks of at
most `root_block` by `root_block`, each with factors of its own (Anil et al. 2020, arXiv 2002.09018, §5). Those
implementations cut off whole blocks and leave the rest; here the parts of a side are of one size, so that 300 is twice
150 and not 256 and 44. Roots are worked out anew in the first `root_every` steps and in each such step from there on.
They come of a coupled Newton iteration (Anil et al., §5; Guo & Higham 2006, doi 10.1137/050643374) in float32. The
ridge is 1e-3 of the factor's largest eigenvalue, estimated by 20 power iterations. Anil et al. have 1e-6, in float64:
a factor that is kept in float32 has its smallest eigenvalues moved by some 1e-8 of the largest, which a root of what
gradients have not shown yet (a block of few rows, of tokens that are rare) divides by four times the ridge.

A vector takes AdamW's step, which is the diagonal form of the same average: v̂^(-1/2) in place of the roots. ε is its
alone. v's place of a matrix holds what is subtracted; it is made anew in each step and need not be kept. Gradients are
clipped, elements that are not finite count as 0, and an update that is not finite leaves w as it is.
"""

from inspector.optimizers.adamw import ADAMW
from inspector.optimizers.definition import Optimizer
from inspector.optimizers.shampoo.blocks import STATES, billed, keeps_roots, takes
from inspector.optimizers.shampoo.oracle import update
from inspector.optimizers.shampoo.plan import plan_shampoo, plan_without_roots

SHAMPOO = Optimizer(
    name="shampoo",
    title="Shampoo",
    state=("m", "v"),
    plan=plan_shampoo,
    uniforms=ADAMW.uniforms,
    update=update,
    rule=("common", "optimizers/shampoo/shampoo"),
    kernels=("f32",),
    rest=ADAMW,
    takes=takes,
    taken="matrix",
    in_place={"v": "the preconditioned update"},
    param_states=STATES,
    billed=billed,
    form=("root_block", "root_every", "factors"),
    between=keeps_roots,
    plan_between=plan_without_roots,
)
