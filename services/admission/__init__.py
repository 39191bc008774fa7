"""Which request may start when: a bounded queue in fair order, before the replicas' KV is overcommitted."""
