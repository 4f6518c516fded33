"""Small optimizers of kinds that torch.optim lacks, written as in other libraries."""

from __future__ import annotations

import torch


class DAdaptation(torch.optim.Optimizer):
    """An optimizer that finds its learning rate d. Source: Defazio and Mishchenko,
    "Learning-rate-free learning by D-adaptation", ICML 2023, algorithm for Adam."""

    def __init__(self, params, d=1e-6, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, {"d": d, "numerator": 0.0, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self):
        (group,) = self.param_groups
        (beta1, beta2), d, eps = group["betas"], group["d"], group["eps"]
        root, numerator, size = beta2**0.5, 0.0, 0.0
        for p in group["params"]:
            state = self.state[p] or {
                name: torch.zeros_like(p) for name in ("s", "exp_avg", "exp_avg_sq")
            }
            self.state[p] = state
            numerator += d * (p.grad * state["s"] / (state["exp_avg_sq"].sqrt() + eps)).sum().item()
            state["exp_avg"].mul_(beta1).add_(p.grad, alpha=d * (1 - beta1))
            state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
            state["s"].mul_(root).add_(p.grad, alpha=d * (1 - root))
            size += state["s"].abs().sum().item()
        group["numerator"] = root * group["numerator"] + (1 - root) * numerator
        group["d"] = max(d, group["numerator"] / ((1 - root) * size))
        for p in group["params"]:
            p.addcdiv_(
                self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"].sqrt().add_(eps), value=-1
            )


class AdaHessian(torch.optim.Optimizer):
    """An optimizer that divides by estimates of the Hessian's diagonal, which it computes within a
    step. Source: Yao et al., "AdaHessian", AAAI 2021."""

    def __init__(self, params, lr=0.1, betas=(0.9, 0.999), eps=1e-16):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def step(self):
        (group,) = self.param_groups
        params, (beta1, beta2) = group["params"], group["betas"]
        directions = [torch.randint(0, 2, p.shape).to(p.dtype) * 2 - 1 for p in params]
        products = torch.autograd.grad([p.grad for p in params], params, directions)
        with torch.no_grad():
            for p, z, hz in zip(params, directions, products, strict=True):
                state = self.state[p] or {
                    "step": 0,
                    "exp_avg": torch.zeros_like(p),
                    "exp_hessian_diag_sq": torch.zeros_like(p),
                }
                self.state[p], state["step"] = state, state["step"] + 1
                state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["exp_hessian_diag_sq"].mul_(beta2).addcmul_(z * hz, z * hz, value=1 - beta2)
                root = (
                    (state["exp_hessian_diag_sq"] / (1 - beta2 ** state["step"]))
                    .sqrt()
                    .add_(group["eps"])
                )
                p.addcdiv_(
                    state["exp_avg"], root, value=-group["lr"] / (1 - beta1 ** state["step"])
                )
