//! Error codes of the API.
//!
//! Each code stands in one table with its HTTP status, its title and its hint. The server sends them in
//! problem documents (RFC 9457), the page on errors lists them, the dashboard translates them by their
//! words, and a test compares all of these. Clients decide by the code; titles and hints may change.

macro_rules! codes {
    ($($variant:ident = $status:literal, $word:literal, $title:literal, $hint:literal;)*) => {
        /// The kind of an error, as a stable word for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $(#[doc = $title] $variant,)* }

        impl Code {
            /// All codes, ordered by HTTP status.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the word in the field `code`, such as `job_not_found`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Returns the code of a word; `None` for one that this version does not know.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.as_str() == word)
            }

            /// Returns the HTTP status, from 400 to 599.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Returns the sentence that all errors of this code share, with its full stop.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// Returns what the caller can do next; an error may have a more exact hint of its own.
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint,)* }
            }
        }
    };
}

codes! {
    MalformedBody = 400, "malformed_body", "The request body cannot be parsed.", "send a body in the declared content type, encoded in UTF-8";
    InvalidParameter = 400, "invalid_parameter", "A parameter is invalid.", "see /docs for the parameters of this route";
    InvalidHeader = 400, "invalid_header", "A request header is invalid.", "see /docs for the headers of this route";
    InvalidCursor = 400, "invalid_cursor", "The cursor does not belong to this list.", "read the list again from the start, without `cursor`; use the same filter for every page";
    TlsRequired = 400, "tls_required", "The server accepts requests from other machines only with TLS.", "use the address of the server with `https://`";
    Unauthenticated = 401, "unauthenticated", "Authentication is required.", "send `Authorization: Bearer TOKEN`; the first admin token is in the file `admin-token` in the server's data directory";
    LoginFailed = 401, "login_failed", "The account or the password is wrong.", "check the name of the account and the password; an administrator can create a link for a new password (`belfry account invite`)";
    SecondFactorRequired = 401, "second_factor_required", "The login needs a code of the second factor.", "send `code`: that of your authenticator app, or a recovery code; an administrator can delete the second factor (`belfry account reset-totp`)";
    OidcLoginFailed = 401, "oidc_login_failed", "The login at the OpenID provider failed.", "start the login again; the log of the server has the cause";
    Forbidden = 403, "forbidden", "You do not have the right to do this.", "ask an administrator for a role; `belfry auth can-i` shows what you may do";
    Escalation = 403, "escalation", "You cannot give rights that you do not have.", "ask an administrator who has these rights";
    NotApprover = 403, "not_approver", "You are not an approver of this step.", "ask one of the approvers that the step lists";
    CrossSite = 403, "cross_site", "The request may come from another site.", "open the dashboard at this server's own address; programs send `Authorization: Bearer TOKEN` and no cookie; pages of this server send `X-Belfry-Csrf: 1` with every change";
    HostNotAllowed = 403, "host_not_allowed", "The server does not accept this host name.", "use `localhost` or an IP address, or add the name to the setting `server.host_names`";
    AccountNotFound = 404, "account_not_found", "The account does not exist.", "GET /api/v1/accounts lists all accounts";
    InvitationNotFound = 404, "invitation_not_found", "The invitation is not valid.", "an invitation is valid for one use until it expires; ask an administrator for a new link (`belfry account invite`)";
    OidcNotConfigured = 404, "oidc_not_configured", "The server has no OpenID provider.", "log in with a password; an administrator connects a provider with the settings `server.oidc_*`";
    RoleNotFound = 404, "role_not_found", "The role does not exist.", "GET /api/v1/roles lists all roles";
    BindingNotFound = 404, "binding_not_found", "The role binding does not exist.", "GET /api/v1/bindings lists all bindings";
    TokenNotFound = 404, "token_not_found", "The token does not exist.", "GET /api/v1/tokens lists the tokens; a token is deleted 30 days after its end";
    AuditEntryNotFound = 404, "audit_entry_not_found", "The entry of the audit log does not exist.", "GET /api/v1/audit lists the entries; an entry is deleted when its retention ends";
    AlertNotFound = 404, "alert_not_found", "The alert does not exist.", "GET /api/v1/alerts lists the alerts; a resolved alert is deleted after 30 days";
    AlertRuleNotFound = 404, "alert_rule_not_found", "The alert rule does not exist.", "GET /api/v1/alert-rules lists all rules; check the namespace";
    ChannelNotFound = 404, "channel_not_found", "The channel does not exist.", "GET /api/v1/channels lists all channels; check the namespace";
    SecretNotFound = 404, "secret_not_found", "The secret does not exist.", "GET /api/v1/secrets lists all secrets; check the namespace";
    MonitorNotFound = 404, "monitor_not_found", "The monitor does not exist.", "GET /api/v1/monitors lists all monitors; check the namespace, or the ping URL";
    SilenceNotFound = 404, "silence_not_found", "The silence does not exist.", "GET /api/v1/silences lists all silences; a silence is deleted when it ends";
    NotFound = 404, "not_found", "There is no resource at this address.", "see /docs for all routes";
    JobNotFound = 404, "job_not_found", "The job does not exist.", "check the job id; a job is deleted when its retention ends";
    CheckpointNotFound = 404, "checkpoint_not_found", "The job has no checkpoint.", "a task saves a checkpoint through its socket or by the file $BELFRY_CHECKPOINT; see /docs";
    ExecutionNotFound = 404, "execution_not_found", "The execution does not exist.", "check the execution id; executions are deleted together with their job";
    FailureGroupNotFound = 404, "failure_group_not_found", "The failure group does not exist.", "GET /api/v1/failures lists all groups; a group is deleted 90 days after its newest failure";
    WorkerNotFound = 404, "worker_not_found", "The worker does not exist.", "GET /api/v1/workers lists all workers";
    MemberNotFound = 404, "member_not_found", "The cluster has no such member.", "GET /api/v1/cluster/members lists all members; only servers with `server.store = raft` have them";
    ServerNotFound = 404, "server_not_found", "The server does not exist.", "GET /api/v1/servers lists all running servers; a server has a new id after each start";
    NamespaceNotFound = 404, "namespace_not_found", "The namespace has no settings.", "list the namespaces; to create settings, use PUT";
    QueueNotFound = 404, "queue_not_found", "The queue does not exist.", "create the queue with PUT, or submit a job to it";
    ArtifactNotFound = 404, "artifact_not_found", "The artifact does not exist.", "GET /api/v1/artifacts lists all artifacts; check the namespace";
    ScheduleNotFound = 404, "schedule_not_found", "The schedule does not exist.", "GET /api/v1/schedules lists all schedules; check the namespace";
    BackfillNotFound = 404, "backfill_not_found", "The backfill does not exist.", "GET /api/v1/backfills lists all backfills that are kept";
    CalendarNotFound = 404, "calendar_not_found", "The calendar does not exist.", "GET /api/v1/calendars lists all calendars; check the namespace";
    ServiceNotFound = 404, "service_not_found", "The service does not exist.", "GET /api/v1/services lists all services; check the namespace";
    WorkflowNotFound = 404, "workflow_not_found", "The workflow does not exist.", "GET /api/v1/workflows lists all workflows; check the namespace";
    RunNotFound = 404, "run_not_found", "The run does not exist.", "check the run id; a run is deleted when its retention ends";
    StepNotFound = 404, "step_not_found", "The run has no such step.", "GET /api/v1/runs/ID/steps lists all steps of the run";
    MethodNotAllowed = 405, "method_not_allowed", "The address does not accept this method.", "use a method that the `Allow` header lists";
    RequestTimeout = 408, "request_timeout", "The client sent the request too slowly.", "send the body without long pauses";
    AccountExists = 409, "account_exists", "An account with this name already exists.", "choose another name, or change the account with PATCH";
    NoPasswordLogin = 409, "no_password_login", "The account cannot have a password.", "use an enabled account of a person; programs use tokens";
    RoleBuiltIn = 409, "role_built_in", "Built-in roles cannot be changed.", "create a custom role with another name";
    RoleInUse = 409, "role_in_use", "The role is in use.", "remove its bindings and the tokens that it limits first";
    TokenLimit = 409, "token_limit", "The account has too many tokens.", "revoke tokens of the account that are not used any more";
    LastAdmin = 409, "last_admin", "This is the last way to administrate everything.", "create another admin token, or bind `admin` in `*` to an account with a password or a token, and repeat the request";
    AlertResolved = 409, "alert_resolved", "The alert is already resolved.", "GET /api/v1/alerts lists the open alerts";
    AlertLasting = 409, "alert_lasting", "The condition of the alert is still met.", "acknowledge the alert, or create a silence; it is resolved when its condition is no longer met";
    SecretLimit = 409, "secret_limit", "The namespace has reached its limit of secrets.", "delete secrets that are not used any more, or store several values in one secret";
    AlertLimit = 409, "alert_limit", "The namespace has reached a limit of alerts.", "delete rules, channels, silences or monitors that are not used any more";
    ChannelInUse = 409, "channel_in_use", "The channel is in use.", "remove the channel from the rules that notify it first";
    JobStarted = 409, "job_started", "The job has already started.", "only a job that has not started can be changed; cancel this job and submit a new one";
    JobEnded = 409, "job_ended", "The job has already ended.", "to run the job again, POST to its /retry";
    JobNotEnded = 409, "job_not_ended", "The job has not ended yet.", "wait until the job ends, or cancel it";
    WorkerConnected = 409, "worker_connected", "The worker is connected.", "stop the worker's agent first, and wait until the worker's status is `lost`";
    QueueInUse = 409, "queue_in_use", "The queue has jobs.", "wait until its jobs end, or cancel them";
    ArtifactInUse = 409, "artifact_in_use", "A run that has not ended needs the artifact.", "wait until the run ends, or cancel it";
    ScheduleExists = 409, "schedule_exists", "A schedule with this name already exists.", "replace the schedule with PUT, or choose another name";
    ServicePerWorker = 409, "service_per_worker", "The service has one replica on each matching worker, so it has no number of replicas.", "change the constraints of its job, or remove `per_worker`";
    ServiceAutoscaled = 409, "service_autoscaled", "The service is scaled automatically.", "change `min` or `max` of its `scaling`, or remove `scaling`";
    ServiceDeleting = 409, "service_deleting", "The service is being deleted.", "wait until its replicas have stopped, then create it again";
    RevisionUnavailable = 409, "revision_unavailable", "The service cannot return to this revision.", "GET the service's /revisions lists the revisions that are kept";
    RolloutStatus = 409, "rollout_status", "The rollout is not in the status that the request needs.", "GET the service shows the status of its rollout";
    JobOfService = 409, "job_of_service", "The job is a replica of a service.", "change the service instead; to restart the replica, cancel its job";
    RunEnded = 409, "run_ended", "The run has ended or is stopping.", "to run it again, POST to its /retry once it has ended";
    RunNotEnded = 409, "run_not_ended", "The run has not ended yet.", "wait until the run ends, or cancel it";
    RepeatForbidden = 409, "repeat_forbidden", "The retry would start an `at_most_once` job a second time.", "check what the job did; to start it again anyway, name its step in `repeat` (`belfry run retry --repeat STEP`)";
    StepEnded = 409, "step_ended", "The step has already ended.", "to run the step again, POST to /retry of its run once the run has ended";
    ApprovalNotPending = 409, "approval_not_pending", "The step is not waiting for approval.", "GET the step's /why explains what the step is waiting for";
    EventNotAwaited = 409, "event_not_awaited", "No step is waiting for this event, and none will.", "check the name of the event; each step accepts the first event of its name only";
    RunsWaiting = 409, "runs_waiting", "The workflow has runs that wait to start.", "cancel these runs first, or wait until they have started";
    NamespaceJobLimit = 409, "namespace_job_limit", "The quota of the namespace allows no further jobs.", "submit again after jobs of the namespace have ended, or ask an administrator for a higher quota";
    PriorityClassNotAllowed = 409, "priority_class_not_allowed", "The namespace does not allow the priority class.", "use a lower priority class, or ask an administrator to allow this one";
    DownstreamJobLimit = 409, "downstream_job_limit", "Too many jobs wait for the end of one job.", "submit the job after the other one has ended, or let a workflow create the jobs";
    WaitingRunLimit = 409, "waiting_run_limit", "The workflow has reached its limit of waiting runs.", "wait until some runs end, or raise `max_parallel_runs`";
    ScheduleRunLimit = 409, "schedule_run_limit", "The schedule has reached its limit of concurrent runs.", "wait until these runs end, cancel them, or send another `overlap` policy";
    NothingToBackfill = 409, "nothing_to_backfill", "The range has no scheduled times left to backfill.", "see the running backfills, or choose another range";
    BackfillLimit = 409, "backfill_limit", "The limit of running backfills is reached.", "wait until a backfill ends, or cancel one";
    BackfillEnded = 409, "backfill_ended", "The backfill has already ended.", "start a new backfill";
    CalendarInUse = 409, "calendar_in_use", "The calendar is in use.", "remove the calendar from the objects that refer to it first";
    CalendarBuiltIn = 409, "calendar_built_in", "Built-in calendars cannot be changed.", "create your own calendar that includes or excludes the days of the built-in one, and refer to it";
    MemberNotRemovable = 409, "member_not_removable", "The member cannot be removed now.", "stop its server first; a majority of the voters must run and have the newest entries";
    NoOtherServer = 409, "no_other_server", "No other server can take over.", "start another server on the same store first, or stop this one";
    VersionMismatch = 412, "version_mismatch", "The object was changed in the meantime.", "read the object again and repeat the change with its new ETag";
    BodyTooLarge = 413, "body_too_large", "The request body is too large.", "split the request; store large files as artifacts";
    UriTooLong = 414, "uri_too_long", "The address is too long.", "filter by fewer labels and statuses";
    UnsupportedMediaType = 415, "unsupported_media_type", "The content type is not supported.", "send `Content-Type: application/json`";
    TooManyEndpoints = 422, "too_many_endpoints", "There are too many endpoints for one response.", "select a namespace, or read the endpoints of one service";
    InvalidSpec = 422, "invalid_spec", "The request is invalid.", "correct the fields that `errors` lists";
    IdempotencyKeyReused = 422, "idempotency_key_reused", "The idempotency key belongs to another request.", "use a new key, or repeat exactly the first request";
    LoginThrottled = 429, "login_throttled", "There were too many failed logins.", "retry after `Retry-After` seconds; a token works all the time";
    SubmitRate = 429, "submit_rate", "The account has reached its submission rate.", "retry after `Retry-After` seconds; an administrator can raise the limit of the account (`submit_rate`)";
    ClientLimit = 429, "client_limit", "The client has reached its limit.", "retry after `Retry-After` seconds with fewer concurrent requests; the settings `server.client_*` are the limits";
    Busy = 429, "busy", "The server is overloaded.", "retry after `Retry-After` seconds with fewer concurrent requests";
    Internal = 500, "internal", "The server failed.", "this is a defect of Belfry: report it with the request id and the server's log";
    OutcomeUnknown = 503, "outcome_unknown", "The outcome of the request is unknown.", "repeat the request with the same idempotency key: nothing is done twice";
    Loading = 503, "loading", "The server is not ready yet.", "retry in a moment; see /readyz for the reason";
    Stopping = 503, "stopping", "The server is stopping.", "retry when the server is running again";
    StoreUnavailable = 503, "store_unavailable", "The store does not answer.", "retry in a moment; see /readyz?verbose for details";
    OidcUnavailable = 503, "oidc_unavailable", "The OpenID provider does not answer.", "retry in a moment, or log in with a password; the log of the server has the cause";
    QueryTooSlow = 503, "query_too_slow", "The query took too long.", "narrow the filter: add a namespace, a status or a time range";
    StorageFull = 507, "storage_full", "The storage is full: new work is refused.", "free space on the volume of the store; the server then resumes without a restart";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_words_in_the_order_of_their_statuses() {
        let words: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        assert!(Code::ALL.is_sorted_by_key(|code| code.status()));
        for code in Code::ALL {
            assert!(code.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code:?}");
            assert!(code.title().ends_with('.') && !code.hint().ends_with('.'), "{code:?}");
            assert!((400..600).contains(&code.status()), "{code:?}");
            assert_eq!(Code::from_word(code.as_str()), Some(*code));
        }
    }
}
