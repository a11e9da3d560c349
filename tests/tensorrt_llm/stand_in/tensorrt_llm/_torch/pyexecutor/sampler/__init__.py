"""Part of the stand-in."""

from tensorrt_llm._torch.pyexecutor.sampler.sampler import SampleState as SampleState
from tensorrt_llm._torch.pyexecutor.sampler.sampler import TorchSampler as TorchSampler
