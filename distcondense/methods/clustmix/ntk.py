"""The neural tangent kernel of a fully connected ReLU network of infinite width, and its gradient, in closed form.

With weights of variance 2 and biases of variance b² (Jacot 2018; the setting of Nguyen 2021), from S = x·x′/d + b²:

    u = S/√(P Q),   S ← √(P Q)·κ₁(u) + b²,   Θ ← S + Θ·κ₀(u),   P ← P + b²,   Q ← Q + b²      for each hidden layer,
    κ₀(u) = (π − arccos u)/π,   κ₁(u) = (u(π − arccos u) + √(1 − u²))/π,   κ₁′ = κ₀,   κ₀′ = 1/(π√(1 − u²)),

P, Q the same of x with x and x′ with x′. Θ depends on x through a = x·x′ and p = x·x alone, so ∇_x Θ = Θ_a x′ + 2Θ_p x.
"""

from __future__ import annotations

import numpy as np

from distcondense.arrays import Floats

BIAS = 0.1  # b, standard deviation of biases
FLAT = 1e-6  # √(1 − u²) is at least this in κ₀′: between equal rows the angle does not move


def own(rows: Floats, layers: int) -> Floats:
    """(n,) Θ(x, x): u is 1 in every layer, where the arc cosine would round."""
    P = (rows**2).sum(1) / rows.shape[1] + BIAS**2
    return np.asarray((layers + 1) * P + BIAS**2 * layers * (layers + 1) / 2, np.float64)


def own_slope(columns: int, layers: int) -> float:
    """Of Θ(x, x) by x·x: the angle of a row with itself does not change, so only lengths count."""
    return (layers + 1) / columns


def pulled(weights: Floats, by_product: Floats, by_length: Floats, left: Floats, right: Floats) -> Floats:
    """(n, d) gradient of Σ weights·Θ by the rows of `left`, from the two slopes."""
    return np.asarray(
        (weights * by_product) @ right + 2 * (weights * by_length).sum(axis=1)[:, None] * left, np.float64
    )


def kernel_and_slopes(left: Floats, right: Floats, layers: int) -> tuple[Floats, Floats, Floats]:
    """Θ (n, m), and its derivatives by x·x′ and by x·x, x the rows of `left`."""
    d = left.shape[1]
    step = 1.0 / d  # of P by p, and of S by a
    P, Q = (left**2).sum(1)[:, None] / d + BIAS**2, (right**2).sum(1)[None, :] / d + BIAS**2
    S = left @ right.T / d + BIAS**2
    S_a, S_p = np.full_like(S, step), np.zeros_like(S)
    T, T_a, T_p = S.copy(), S_a.copy(), S_p.copy()
    for _ in range(layers):
        c = np.sqrt(P * Q)
        u = np.clip(S / c, -1.0, 1.0)
        u_a, u_p = S_a / c, S_p / c - u * step / (2 * P)
        root, angle = np.sqrt(1 - u**2), np.pi - np.arccos(u)
        k0, k1, bend = angle / np.pi, (u * angle + root) / np.pi, 1 / (np.pi * np.maximum(root, FLAT))
        S, S_a, S_p = c * k1 + BIAS**2, c * k0 * u_a, c * k1 * step / (2 * P) + c * k0 * u_p
        T, T_a, T_p = S + T * k0, S_a + T_a * k0 + T * bend * u_a, S_p + T_p * k0 + T * bend * u_p
        P, Q = P + BIAS**2, Q + BIAS**2
    return T, T_a, T_p
