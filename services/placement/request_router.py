"""How Serve picks the replica of a handle call: for a lease, in the order that comes with it."""

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from services.placement.load import Wish


class WishedOrder(RequestRouter):  # type: ignore[misc]  # Ray is not typed
    """The first replica of the wish that takes the call; unknown ones and calls without a wish: the least busy first.

    Serve indexes pending calls by the id of the request that they belong to, so that all but one of a request's
    concurrent calls would wait for ever. Here a call is found by its own metadata.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Each candidate alone, from the best on."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # else full replicas are asked in a hot loop
        order = _order(pending_request.args)
        last = len(order)

        def place(replica: RunningReplica) -> tuple[int, int]:
            queued = self.replica_queue_len_cache.get(replica.replica_id)
            return order.get(replica.replica_id.unique_id, last), queued or 0

        return [[replica] for replica in sorted(candidate_replicas, key=place)]

    def _fulfill_next_pending_request(self, replica: RunningReplica, request_metadata: Any = None) -> None:
        for pending in self._pending_requests_to_fulfill:
            if pending.metadata is request_metadata and not pending.future.done():
                self._record_queue_wait_time(pending)
                pending.future.set_result(replica)
                self._remove_pending_request_from_indices(pending)
                return


def _order(args: list[Any]) -> dict[str, int]:
    wishes = [arg for arg in args if isinstance(arg, Wish)]
    return {name: index for index, name in enumerate(wishes[0].order)} if wishes else {}
