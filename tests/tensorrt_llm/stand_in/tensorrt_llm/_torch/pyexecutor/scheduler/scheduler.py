"""One iteration's batch."""


class ScheduledRequests:
    def __init__(self):
        self.context_requests_chunking = []
        self.context_requests_last_chunk = []
        self.generation_requests = []
        self.paused_requests = []

    def append_context_request(self, request):
        last = request.is_last_context_chunk
        (self.context_requests_last_chunk if last else self.context_requests_chunking).append(
            request
        )

    def append_generation_request(self, request):
        self.generation_requests.append(request)

    def reset_context_requests(self):
        """Sort prompts anew into whole and partial ones, after a chunk has changed its size."""
        requests = self.context_requests
        self.context_requests_chunking, self.context_requests_last_chunk = [], []
        for request in requests:
            self.append_context_request(request)

    @property
    def context_requests(self):
        return self.context_requests_chunking + self.context_requests_last_chunk

    @property
    def batch_size(self):
        return len(self.context_requests) + len(self.generation_requests)

    @property
    def can_run_cuda_graph(self):
        return not self.context_requests

    def all_requests(self):
        return self.context_requests + self.generation_requests
