"""Every metric, declared once. Dashboards, rules and docs/metrics.md are checked against `CATALOGUE`.

Tokens and decisions are counted in the Router, when they reach the user: what a stop cut off counts nowhere, and a
proposer or verifier that dies takes no count with it.
"""

from services.metrics.metric import (
    COUNTS,
    ENGINES,
    MILLISECONDS,
    PHASES,
    ROUTER,
    ROWS,
    SECONDS,
    Metric,
    counter,
    gauge,
    histogram,
)

REQUEST_OUTCOMES = counter(
    "request_outcomes_total",
    ROUTER,
    "Requests by how they ended: stop, length, cancelled, timeout, rejected, overloaded, failed.",
    "mode",
    "outcome",
)
REQUESTS_RUNNING = gauge("requests_running", ROUTER, "Requests that are being decoded.")
REQUESTS_WAITING = gauge("requests_waiting", ROUTER, "Requests that wait for admission.")
QUEUED_TOKENS = gauge("queued_tokens", ROUTER, "Tokens (prompt and expected completion) of the requests that wait.")
PROMPT_TOKENS = counter("prompt_tokens_total", ROUTER, "Prompt tokens of decoded requests, as in usage.", "mode")
GENERATION_TOKENS = counter("generation_tokens_total", ROUTER, "Tokens committed to users, as in usage.", "mode")
E2E_SECONDS = histogram(
    "e2e_request_latency_seconds", ROUTER, SECONDS, "From a request's arrival to its last token.", "mode"
)
FIRST_TOKEN_SECONDS = histogram(
    "time_to_first_token_seconds", ROUTER, MILLISECONDS, "From a request's arrival to its first token.", "mode"
)
INTER_TOKEN_SECONDS = histogram(
    "inter_token_latency_seconds",
    ROUTER,
    MILLISECONDS,
    "Time between commits over the tokens of the later one, once per token.",
    "mode",
)

CYCLES = counter("cycles_total", ROUTER, "Propose, verify, commit rounds.", "mode")
COMMITTED_TOKENS = counter("committed_tokens_total", ROUTER, "Tokens committed in those cycles.", "mode")
TOKENS_PER_CYCLE = histogram("tokens_per_cycle", ROUTER, COUNTS, "Tokens that a cycle committed.", "mode")
CYCLE_SECONDS = histogram(
    "cycle_time_seconds",
    ROUTER,
    PHASES,
    "What a cycle spent in each phase: propose and verify (forward passes), gate, channel, queue.",
    "mode",
    "phase",
)
DRAFTS = counter("spec_decode_num_drafts_total", ROUTER, "Rounds that had candidates.", "mode")
DRAFT_TOKENS = counter(
    "spec_decode_num_draft_tokens_total", ROUTER, "Candidates: tokens that could have been rejected.", "mode"
)
ACCEPTED_TOKENS = counter("spec_decode_num_accepted_tokens_total", ROUTER, "Candidates that users got.", "mode")
ACCEPTED_PER_POSITION = counter(
    "spec_decode_num_accepted_tokens_per_pos_total",
    ROUTER,
    "Candidates that users got, by their place among the candidates of a draft (from 0).",
    "mode",
    "position",
)

RECOVERIES = counter(
    "session_recoveries_total", ROUTER, "Sessions that had to be opened again.", "target_role", "reason"
)
RECOVERY_SECONDS = histogram(
    "recovery_seconds", ROUTER, SECONDS, "From the loss of a session to its place on another replica.", "target_role"
)
DEGRADED_REQUESTS = counter(
    "degraded_requests_total", ROUTER, "Requests that went on with the proposer alone for lack of a verifier."
)
DEGRADED = gauge("degraded", ROUTER, "1 while requests go on without a verifier, else 0.")
REPLICAS = gauge("replicas", ROUTER, "Running replicas, as this Router sees them.", "target_role")
PLACEMENT_GROUPS = gauge(
    "placement_groups", ROUTER, "Placement groups of replicas; more of them than replicas are left over.", "target_role"
)

PASSES = counter("passes_total", ENGINES, "Forward passes.")
ROWS_TOTAL = counter("rows_total", ENGINES, "Rows (tokens and placeholders) of the forward passes.")
PASS_SECONDS = histogram("pass_seconds", ENGINES, MILLISECONDS, "Time of a forward pass.")
ROWS_PER_PASS = histogram("rows_per_pass", ENGINES, ROWS, "Rows of a forward pass.")
PREFILL_SECONDS = histogram("prefill_seconds", ENGINES, SECONDS, "Time in passes of a call that had to read a prompt.")
QUEUE_WAIT_SECONDS = histogram(
    "queue_wait_seconds", ENGINES, MILLISECONDS, "From a call's arrival to the start of its first pass."
)
BUSY_SECONDS = counter("busy_seconds_total", ENGINES, "Time of the engine in passes and their packing.")
BUSY_FRACTION = gauge("busy_fraction", ENGINES, "Share of the last seconds in which the engine was busy, 0 to 1.")
KV_PAGES = gauge("kv_pages", ENGINES, "KV pages: free, held by sessions, or merely cached.", "state")
PREFIX_QUERIED = counter("prefix_cache_queried_tokens_total", ENGINES, "Tokens for which the prefix cache was asked.")
PREFIX_HITS = counter("prefix_cache_hit_tokens_total", ENGINES, "Tokens whose KV the prefix cache had.")
PREEMPTIONS = counter("preemptions_total", ENGINES, "Sessions that lost their KV to others; they are read again.")
KV_STARVED_SECONDS = counter(
    "kv_starved_seconds_total", ENGINES, "Time in which some call lacked KV pages: the pool is too small."
)
SESSIONS = gauge("sessions", ENGINES, "Sessions with a call in the engine: running in passes, or waiting.", "state")
SESSIONS_OPEN = gauge("sessions_open", ENGINES, "Sessions that the engine knows, idle ones included.")
CONTROLLER_CHOICES = counter(
    "controller_choices_total", ENGINES, "Mode auto: what the controller chose, per completion and pass.", "choice"
)
CONTROLLER_ROWS = gauge("controller_rows", ENGINES, "Mode auto: rows planned per completion and pass, on average.")

CATALOGUE: tuple[Metric, ...] = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
