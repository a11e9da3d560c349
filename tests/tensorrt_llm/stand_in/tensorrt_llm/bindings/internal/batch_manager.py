"""In place of the compiled bindings: the set of requests under way."""


class ReqIdsSet(set):
    insert = set.add
    erase = set.discard
