"""A generator and a discriminator that are trained jointly, and the sharing of embeddings."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DisentangledEmbedding(nn.Module):
    """Gradient-disentangled embedding: the detached table of another module plus a difference."""

    # He, Gao and Chen 2021, arXiv:2111.09543, section 3.3: E_D = sg(E_G) + E_delta, and E_delta
    # starts at zero. Only the rows of a batch are added, not whole tables.

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self.base = (base,)  # in a tuple, so that it is not registered as a submodule
        self.delta = nn.Parameter(torch.zeros_like(base.weight))

    @property
    def weight(self) -> Tensor:
        """The sum of both tables, without gradient to the other one."""
        return self.base[0].weight.detach() + self.delta

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings of token ids or positions: (...) to (..., embedding)."""
        return F.embedding(ids, self.base[0].weight.detach()) + F.embedding(ids, self.delta)

    def merged(self) -> nn.Embedding:
        """Return the sum as an independent table."""
        rows, width = self.delta.shape
        return nn.Embedding(rows, width, _weight=self.weight.detach())


class GeneratorDiscriminator(nn.Module):
    """A generator and a discriminator with shared embeddings."""

    # With ``tied``, both share the embedding tables and the layer norm of the embeddings, as in the
    # code released with Clark et al. 2020 (arXiv:2003.10555, model/modeling.py). A projection of
    # embeddings to another hidden size is not shared. With ``gradient-disentangled``, each
    # embedding table of the discriminator is a ``DisentangledEmbedding``.

    def __init__(self, generator: nn.Module, discriminator: nn.Module, sharing: str) -> None:
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator
        source = _embeddings(generator)
        target = _embeddings(discriminator)
        for name, child in list(source.named_children()):
            if sharing == "tied" and isinstance(child, nn.Embedding | nn.LayerNorm):
                target.add_module(name, child)
            elif sharing == "gradient-disentangled" and isinstance(child, nn.Embedding):
                target.add_module(name, DisentangledEmbedding(child))

    def plain_discriminator(self) -> nn.Module:
        """Return the discriminator with merged embedding tables; all other modules are shared."""
        embeddings = _embeddings(self.discriminator)
        tables = {
            name: child.merged()
            for name, child in embeddings.named_children()
            if isinstance(child, DisentangledEmbedding)
        }
        return _with(self.discriminator, {"embeddings": _with(embeddings, tables)})

    @torch.no_grad()
    def copy_generator(self) -> None:
        """Copy the generator's weights to the discriminator, except for its head."""
        source = self.generator.state_dict()
        for name, parameter in self.discriminator.named_parameters():
            if name.endswith(".delta"):
                parameter.zero_()  # the sum of both tables is then the generator's
            elif not name.startswith("head."):
                parameter.copy_(source[name])

    @torch.no_grad()
    def after_load(self, plain: nn.Module, *, both: bool) -> list[Tensor]:
        """Set the difference tables so that the sums equal the tables of a plain discriminator."""
        tables = []
        for name, child in _embeddings(self.discriminator).named_children():
            if isinstance(child, DisentangledEmbedding):
                table = _embeddings(plain).get_parameter(f"{name}.weight")
                if both:
                    tables.append(child.base[0].weight.copy_(table))
                tables.append(child.delta.copy_(table - child.base[0].weight))
        return tables


def _embeddings(model: nn.Module) -> nn.Module:
    return model.get_submodule("embeddings")


def _with(module: nn.Module, children: Mapping[str, nn.Module]) -> nn.Module:
    """Return a module that shares everything with another one, except for some children."""
    copied = copy.copy(module)
    copied._modules = {**module._modules, **children}
    return copied
