"""Test only: the two collectives that vLLM's CPU build lacks for experts spread over ranks."""

from typing import Any


def install() -> None:
    """Give vLLM's CPU communicator both."""
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    CpuCommunicator.all_gatherv = all_gatherv
    CpuCommunicator.reduce_scatterv = reduce_scatterv


def all_gatherv(self: Any, input_: Any, dim: int = 0, sizes: Any = None) -> Any:
    """Rows of all ranks, one rank after the other; `sizes` has the rows of each."""
    import torch

    assert dim == 0
    if not isinstance(input_, torch.Tensor):
        return [all_gatherv(self, one, dim, sizes) for one in input_]
    sizes = sizes or [input_.shape[0]] * self.world_size
    padded = input_.new_zeros(max(sizes), *input_.shape[1:])
    padded[: input_.shape[0]] = input_
    parts = [torch.empty_like(padded) for _ in sizes]
    torch.distributed.all_gather(parts, padded, group=self.device_group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def reduce_scatterv(self: Any, input_: Any, dim: int = 0, sizes: Any = None) -> Any:
    """This rank's rows of the sum over all ranks."""
    import torch

    assert dim == 0
    sizes = sizes or [input_.shape[0] // self.world_size] * self.world_size
    total = input_.clone()
    torch.distributed.all_reduce(total, group=self.device_group)
    begin = sum(sizes[: self.rank_in_group])
    return total[begin : begin + sizes[self.rank_in_group]].clone()
