//! Table of all settings.
//!
//! The order is that of `belfry config show` and of the configuration reference in the docs, which is generated from
//! this table. Sections are `client`, `log`, `dev`, `server` and `worker`. A setting without a default has no value
//! unless it is set. Defaults of servers and workers must equal those of their configuration types; a test in `convert`
//! compares them.

use super::value::Kind;

/// Definition of a setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Key, `section.name`, as in a file.
    pub(crate) key: &'static str,
    /// Environment variable, if it is not `BELFRY_SECTION__NAME`.
    short_variable: Option<&'static str>,
    /// Kind of its value.
    pub(crate) kind: Kind,
    /// Default as text; empty for none, `{data}` for the user's data directory.
    pub(crate) default: &'static str,
    /// Whether the value is never shown, and rejected in files.
    pub(crate) secret: bool,
    /// Description, for `belfry config show` and the docs.
    pub(crate) help: &'static str,
}

impl Setting {
    /// Returns the setting with this key.
    pub(crate) fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Returns the environment variable of the setting.
    pub(crate) fn variable(&self) -> String {
        match self.short_variable {
            Some(name) => name.to_owned(),
            None => format!("BELFRY_{}", self.key.to_uppercase().replace('.', "__")),
        }
    }
}

const fn named(
    key: &'static str,
    variable: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { key, short_variable: Some(variable), kind, default, secret: false, help }
}

const fn plain(key: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Setting {
    Setting { key, short_variable: None, kind, default, secret: false, help }
}

/// All settings.
pub(crate) const SETTINGS: &[Setting] = &[
    named("client.url", "BELFRY_URL", Kind::Text, "", "server URL"),
    Setting {
        key: "client.token",
        short_variable: Some("BELFRY_TOKEN"),
        kind: Kind::Text,
        default: "",
        secret: true,
        help: "API token; use `client.token_file` in files",
    },
    named("client.token_file", "BELFRY_TOKEN_FILE", Kind::Path, "", "file with the API token"),
    named(
        "client.ca_file",
        "BELFRY_CA_FILE",
        Kind::Path,
        "",
        "certificate authority (PEM) of an `https` server [default: the authorities of the system]",
    ),
    named(
        "client.namespace",
        "BELFRY_NAMESPACE",
        Kind::Text,
        "default",
        "namespace of jobs, schedules, workflows and artifacts",
    ),
    named(
        "client.retry_for",
        "BELFRY_RETRY_FOR",
        Kind::Duration,
        "10s",
        "time to retry requests that fail temporarily",
    ),
    named(
        "log.level",
        "BELFRY_LOG",
        Kind::Text,
        "",
        "log filter: `info`, `debug`, or by module, for example `server=debug`",
    ),
    named(
        "log.format",
        "BELFRY_LOG_FORMAT",
        Kind::OneOf(&["text", "json"]),
        "text",
        "log format: `text` or `json`",
    ),
    named("dev.data_dir", "BELFRY_DEV_DATA", Kind::Path, "{data}", "data directory of `belfry dev`"),
    plain("server.data_dir", Kind::Path, "/var/lib/belfry", "data directory of the server"),
    plain(
        "server.store",
        Kind::Text,
        "",
        "store for several servers: `raft`, or `postgres://USER@HOST:PORT/DATABASE` [default: a file in the data directory]",
    ),
    plain(
        "server.raft_join",
        Kind::List,
        "",
        "with `raft`: `HOST:PORT` of servers of the cluster, for the first start of another one",
    ),
    plain(
        "server.raft_join_token_file",
        Kind::Path,
        "",
        "with `raft`: file with the token that the first server of the cluster wrote to `join-token`",
    ),
    plain(
        "server.store_password_file",
        Kind::Path,
        "",
        "file with the database password; $PGPASSWORD is used too",
    ),
    plain("server.store_sessions", Kind::Count, "4", "database sessions for queries; a server uses 4 more"),
    plain(
        "server.store_allow_unsafe",
        Kind::Flag,
        "false",
        "accept a database whose settings may lose acknowledged commits",
    ),
    plain(
        "server.store_require_sync_standby",
        Kind::Flag,
        "false",
        "refuse a database whose commits do not wait for a standby",
    ),
    plain("server.listen", Kind::Address, "127.0.0.1:7070", "listening address; port 0 selects a free port"),
    plain(
        "server.tls_cert_file",
        Kind::Path,
        "",
        "TLS certificate of the server, followed by those of intermediate authorities (PEM); allows any listening address [default: no TLS]",
    ),
    plain("server.tls_key_file", Kind::Path, "", "private key of the TLS certificate (PEM)"),
    plain(
        "server.behind_proxy",
        Kind::Flag,
        "false",
        "a proxy in front terminates TLS; allows any listening address",
    ),
    plain(
        "server.insecure",
        Kind::Flag,
        "false",
        "allow any listening address without TLS, also beside TLS; tokens can be read on the network",
    ),
    plain("server.host_names", Kind::List, "", "additional host names that requests may use"),
    plain(
        "server.objects_dir",
        Kind::Path,
        "",
        "folder for logs and artifacts [default: `objects` in the data directory]",
    ),
    plain(
        "server.objects_url",
        Kind::Text,
        "",
        "bucket for logs and artifacts instead of a folder: `s3://BUCKET/PREFIX`",
    ),
    plain("server.s3_endpoint", Kind::Text, "", "URL of an S3-compatible service [default: Amazon S3]"),
    plain("server.s3_region", Kind::Text, "", "region of the bucket [default: AWS_REGION]"),
    plain("server.name", Kind::Text, "server", "name of the server, shown to users"),
    plain(
        "server.advertise_url",
        Kind::Text,
        "",
        "URL under which other servers and workers reach this server [default: the listening address; none for 0.0.0.0]",
    ),
    plain("server.shards", Kind::Count, "16", "number of shards of a new store"),
    plain(
        "server.shard_lease",
        Kind::Duration,
        "",
        "duration of the leadership lease without renewal [default: 2.5s with PostgreSQL, 10s with the embedded store]",
    ),
    plain(
        "server.warm_standby",
        Kind::Flag,
        "true",
        "follow the leader, so that a takeover is immediate; takes as much memory as the leader",
    ),
    plain("server.heartbeat_interval", Kind::Duration, "2s", "interval of worker heartbeats"),
    plain("server.lease", Kind::Duration, "6s", "duration of a worker's lease after a heartbeat"),
    plain(
        "server.result_wait",
        Kind::Duration,
        "1m",
        "time that a job waits for the result of a lost worker before it fails, if it must not start again",
    ),
    plain("server.retention", Kind::Duration, "30d", "retention of ended jobs whose spec sets none"),
    plain("server.key_retention", Kind::Duration, "7d", "retention of idempotency keys"),
    plain(
        "server.audit_retention",
        Kind::Duration,
        "400d",
        "retention of entries of the audit log; the rest can still be verified",
    ),
    plain(
        "server.audit_submissions",
        Kind::Flag,
        "false",
        "record each submission of jobs and each start of a run in the audit log",
    ),
    plain(
        "server.event_retention",
        Kind::Duration,
        "7d",
        "retention of events; watchers can resume within this time",
    ),
    plain("server.ledger_retention", Kind::Duration, "90d", "retention of the ledger"),
    plain(
        "server.artifact_retention",
        Kind::Duration,
        "",
        "retention of superseded artifact versions [default: unlimited]",
    ),
    plain(
        "server.copy_rate",
        Kind::Bytes,
        "64MiB",
        "bytes per second of copies for another server: of the Raft store, of logs and artifacts",
    ),
    plain("server.artifact_size_max", Kind::Bytes, "1GiB", "maximum size of an artifact"),
    plain(
        "server.requests_max",
        Kind::Count,
        "4096",
        "maximum number of concurrent requests of each kind: reads, changes, slow bodies, forwarded requests",
    ),
    plain(
        "server.client_requests_max",
        Kind::Count,
        "",
        "maximum number of concurrent requests of one client (a token at an address) [default: half of all]",
    ),
    plain(
        "server.streams_max",
        Kind::Count,
        "4096",
        "maximum number of open event streams and followed logs",
    ),
    plain(
        "server.client_streams_max",
        Kind::Count,
        "",
        "maximum number of open streams of one client [default: half of all]",
    ),
    plain(
        "server.request_bytes_max",
        Kind::Bytes,
        "256MiB",
        "maximum memory for all request bodies together; uploads of artifacts do not count",
    ),
    plain(
        "server.client_job_rate",
        Kind::Count,
        "",
        "maximum number of jobs that one client may submit per second [default: unlimited]",
    ),
    plain(
        "server.submit_rate",
        Kind::Count,
        "1000",
        "jobs that the account of a person may submit per minute, if it has no limit of its own; 0: unlimited",
    ),
    plain(
        "server.public_url",
        Kind::Text,
        "",
        "URL of the dashboard, for links in notifications and logins at an OpenID provider [default: no links]",
    ),
    plain(
        "server.oidc_issuer",
        Kind::Text,
        "",
        "URL of the OpenID provider at which people log in, as its metadata names it [default: none, only passwords]",
    ),
    plain("server.oidc_client_id", Kind::Text, "", "client ID of Belfry at the OpenID provider"),
    plain(
        "server.oidc_client_secret_file",
        Kind::Path,
        "",
        "file with the client secret [default: none, for a public client]",
    ),
    plain("server.oidc_name", Kind::Text, "OpenID", "display name of the OpenID provider, on the login page"),
    plain(
        "server.oidc_scopes",
        Kind::List,
        "openid,profile,email",
        "scopes that a login requests; `openid` is required",
    ),
    plain(
        "server.oidc_user_claim",
        Kind::Text,
        "email",
        "claim with the name of a new account, for example `preferred_username`; `email` must be verified by the provider",
    ),
    plain(
        "server.oidc_groups_claim",
        Kind::Text,
        "groups",
        "claim with the groups of a person; dots lead into objects, for example `realm_access.roles`",
    ),
    plain(
        "server.oidc_create_accounts",
        Kind::Flag,
        "false",
        "create an account for an unknown person at the first login; without it, the person needs an invitation",
    ),
    plain(
        "server.oidc_allowed_groups",
        Kind::List,
        "",
        "groups that may log in at the OpenID provider [default: all persons]",
    ),
    plain(
        "server.private_networks",
        Kind::List,
        "",
        "private networks that the server may send requests to, such as notifications and logins, for example `10.0.0.0/8` [default: none, only public addresses]",
    ),
    plain(
        "server.secret_key_file",
        Kind::Path,
        "",
        "file with the key that encrypts secrets, the same for all servers [default: `secret.key` in the data directory]",
    ),
    plain("server.shutdown_grace", Kind::Duration, "5s", "time that a shutdown waits for open requests"),
    plain(
        "server.housekeeping_interval",
        Kind::Duration,
        "30s",
        "interval of housekeeping, which deletes expired data",
    ),
    plain(
        "worker.dir",
        Kind::Path,
        "/var/lib/belfry-worker",
        "worker directory; a worker with an empty directory is a new worker",
    ),
    plain("worker.servers", Kind::List, "", "server URLs; one is used at a time"),
    plain("worker.token_file", Kind::Path, "", "file with the worker token"),
    plain(
        "worker.ca_file",
        Kind::Path,
        "",
        "certificate authority (PEM) of the servers [default: the authorities of the system]",
    ),
    plain("worker.name", Kind::Text, "", "name of the worker, shown to users [default: the host name]"),
    plain("worker.labels", Kind::Map, "", "labels that constraints match"),
    plain("worker.cpu", Kind::Cpu, "", "CPU for executions [default: all CPUs of the machine]"),
    plain("worker.memory", Kind::Bytes, "", "memory for executions [default: all memory of the machine]"),
    plain("worker.resources", Kind::Counts, "", "custom resources, for example `gpu=2`"),
    plain("worker.slots", Kind::Count, "", "maximum number of parallel executions [default: 16 per core]"),
    plain(
        "worker.port_range",
        Kind::PortRange,
        "20000-31999",
        "ports for executions whose job names a port without a number",
    ),
    plain(
        "worker.volumes",
        Kind::Map,
        "",
        "volumes: directories that tasks can use, for example `data=/srv/data`",
    ),
    plain(
        "worker.container_engine",
        Kind::Text,
        "",
        "socket of Docker or Podman, as `unix:///PATH`, or `none` [default: the first one that is found]",
    ),
    plain(
        "worker.sandbox_paths",
        Kind::List,
        "",
        "further files and directories that jobs in a `strict` sandbox can read, as absolute paths",
    ),
    plain(
        "worker.address",
        Kind::Text,
        "",
        "host name or IP address under which tasks of the worker can be reached [default: the local address of its connection to the server]",
    ),
    plain(
        "worker.task_user",
        Kind::Text,
        "",
        "user that runs the tasks, if the worker runs as root [default: the user `nobody`]",
    ),
    plain(
        "worker.allow_root_tasks",
        Kind::Flag,
        "false",
        "run tasks as root, if the worker runs as root and has no task user",
    ),
    plain(
        "worker.orphan_limit",
        Kind::Duration,
        "1h",
        "time that executions stay frozen without a lease before they are killed",
    ),
    plain(
        "worker.idle_exit",
        Kind::Duration,
        "1m",
        "time without an agent after which an idle supervisor exits",
    ),
    plain(
        "worker.cache_size_max",
        Kind::Bytes,
        "4GiB",
        "disk space for cached artifacts, in addition to those in use",
    ),
];
