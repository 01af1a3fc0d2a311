//! Every setting that there is.

use super::value::Kind;

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// `section.name`, as in a file.
    pub(crate) key: &'static str,
    /// The variable, where it is not `BELFRY_SECTION__NAME`.
    short_variable: Option<&'static str>,
    /// What kind of value it has.
    pub(crate) kind: Kind,
    /// Its default as text; empty for none, `{data}` for the user's data folder.
    pub(crate) default: &'static str,
    /// Whether it is never shown, and refused in a file.
    pub(crate) secret: bool,
    /// What it means.
    pub(crate) help: &'static str,
}

impl Setting {
    /// The setting with this key.
    pub(crate) fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The variable that sets it.
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

/// Every setting, in the order in which they are shown.
pub(crate) const SETTINGS: &[Setting] = &[
    named("client.url", "BELFRY_URL", Kind::Text, "", "the server's address"),
    Setting {
        key: "client.token",
        short_variable: Some("BELFRY_TOKEN"),
        kind: Kind::Text,
        default: "",
        secret: true,
        help: "the token itself; never in a file",
    },
    named("client.token_file", "BELFRY_TOKEN_FILE", Kind::Path, "", "a file with the token"),
    named(
        "client.namespace",
        "BELFRY_NAMESPACE",
        Kind::Text,
        "default",
        "the namespace of jobs and artifacts",
    ),
    named("client.retry_for", "BELFRY_RETRY_FOR", Kind::Duration, "10s", "how long a request is tried again"),
    named(
        "log.level",
        "BELFRY_LOG",
        Kind::Text,
        "",
        "what is logged: `info`, `debug`, or filters as `server=debug`",
    ),
    named(
        "log.format",
        "BELFRY_LOG_FORMAT",
        Kind::OneOf(&["text", "json"]),
        "text",
        "how it is logged: lines for people, or JSON for programs",
    ),
    named("dev.data_dir", "BELFRY_DEV_DATA", Kind::Path, "{data}", "the data of `belfry dev`"),
    plain("server.data_dir", Kind::Path, "/var/lib/belfry", "where all of a server's data is"),
    plain(
        "server.store",
        Kind::Text,
        "",
        "`postgres://USER@HOST:PORT/DATABASE` for several servers; a file in the data where absent",
    ),
    plain(
        "server.store_password_file",
        Kind::Path,
        "",
        "a file with the database's password; $PGPASSWORD is read as well",
    ),
    plain("server.store_sessions", Kind::Count, "4", "how many queries run in the database at a time"),
    plain(
        "server.store_allow_unsafe",
        Kind::Flag,
        "false",
        "take a database whose settings may lose what it has acknowledged",
    ),
    plain(
        "server.store_require_sync_standby",
        Kind::Flag,
        "false",
        "refuse a database whose commits wait for no standby",
    ),
    plain("server.listen", Kind::Address, "127.0.0.1:7070", "where it listens; port 0 takes a free one"),
    plain(
        "server.behind_proxy",
        Kind::Flag,
        "false",
        "a proxy in front ends TLS, so any address may be listened on",
    ),
    plain(
        "server.insecure",
        Kind::Flag,
        "false",
        "listen on any address without TLS; tokens can be read on the way",
    ),
    plain("server.host_names", Kind::List, "", "names beside loopback's under which it may be asked"),
    plain(
        "server.objects_dir",
        Kind::Path,
        "",
        "the folder of logs and artifacts; `objects` in the data where absent",
    ),
    plain(
        "server.objects_url",
        Kind::Text,
        "",
        "`s3://BUCKET/PREFIX` for logs and artifacts instead of a folder",
    ),
    plain("server.s3_endpoint", Kind::Text, "", "a service other than Amazon's that speaks S3"),
    plain("server.s3_region", Kind::Text, "", "the bucket's region, where AWS_REGION does not say it"),
    plain("server.name", Kind::Text, "server", "what it is called, for people"),
    plain(
        "server.advertise_url",
        Kind::Text,
        "",
        "where other servers and workers reach it; the address that it listens on where absent",
    ),
    plain("server.shards", Kind::Count, "16", "into how many shards a new store divides the job space"),
    plain(
        "server.shard_lease",
        Kind::Duration,
        "",
        "how long the ownership of a shard lasts without renewal; 2.5s in a database, 10s in a file",
    ),
    plain(
        "server.warm_standby",
        Kind::Flag,
        "true",
        "keep ready to take over at once while another server decides; takes as much memory as that one",
    ),
    plain("server.heartbeat_interval", Kind::Duration, "2s", "how often workers beat"),
    plain("server.lease", Kind::Duration, "6s", "how long a worker may go on after a beat"),
    plain(
        "server.result_wait",
        Kind::Duration,
        "1m",
        "how long an `at_most_once` job waits for its lost worker to come back with the outcome",
    ),
    plain(
        "server.retention",
        Kind::Duration,
        "30d",
        "how long ended jobs are kept, where their spec says nothing",
    ),
    plain("server.key_retention", Kind::Duration, "7d", "how long an idempotency key is remembered"),
    plain("server.event_retention", Kind::Duration, "7d", "how long events are kept for watchers to resume"),
    plain(
        "server.ledger_retention",
        Kind::Duration,
        "90d",
        "how long it is kept what became of each instant of a schedule",
    ),
    plain(
        "server.artifact_retention",
        Kind::Duration,
        "",
        "retention of superseded artifact versions [default: unlimited]",
    ),
    plain("server.artifact_size_max", Kind::Bytes, "1GiB", "the largest artifact"),
    plain(
        "server.requests_max",
        Kind::Count,
        "4096",
        "maximum of concurrent requests, for reads, changes, slow bodies and forwarded requests each",
    ),
    plain(
        "server.client_requests_max",
        Kind::Count,
        "",
        "maximum concurrent requests of one client (a token at an address) [default: half of all]",
    ),
    plain("server.streams_max", Kind::Count, "4096", "maximum of open event streams and followed logs"),
    plain(
        "server.client_streams_max",
        Kind::Count,
        "",
        "maximum open streams of one client [default: half of all]",
    ),
    plain(
        "server.request_bytes_max",
        Kind::Bytes,
        "256MiB",
        "maximum memory for request bodies, in sum; uploads of artifacts do not count",
    ),
    plain(
        "server.client_job_rate",
        Kind::Count,
        "",
        "maximum jobs that one client may submit per second [default: unlimited]",
    ),
    plain("server.shutdown_grace", Kind::Duration, "5s", "how long a shutdown waits for open requests"),
    plain("server.housekeeping_interval", Kind::Duration, "30s", "how often retention is carried out"),
    plain(
        "worker.dir",
        Kind::Path,
        "/var/lib/belfry-worker",
        "the worker's folder; a wiped one is a new worker",
    ),
    plain("worker.servers", Kind::List, "", "the servers' addresses; one is used at a time"),
    plain("worker.token_file", Kind::Path, "", "a file with the worker's token"),
    plain("worker.ca_file", Kind::Path, "", "PEM of the authority that signed the servers' certificates"),
    plain("worker.name", Kind::Text, "", "what people call it; the host's name where absent"),
    plain("worker.labels", Kind::Map, "", "what constraints are matched against"),
    plain("worker.cpu", Kind::Cpu, "", "CPU for executions; all of the machine's where absent"),
    plain("worker.memory", Kind::Bytes, "", "memory for executions; all of the machine's where absent"),
    plain("worker.resources", Kind::Counts, "", "custom resources such as `gpu=2`"),
    plain("worker.slots", Kind::Count, "", "the most executions at a time; 16 a core where absent"),
    plain(
        "worker.task_user",
        Kind::Text,
        "",
        "the user that tasks run as, where the worker is root; `nobody` where absent",
    ),
    plain(
        "worker.allow_root_tasks",
        Kind::Flag,
        "false",
        "tasks of a root worker run as root, for want of a task user",
    ),
    plain(
        "worker.orphan_limit",
        Kind::Duration,
        "1h",
        "how long executions stay frozen without a lease before they are killed",
    ),
    plain(
        "worker.idle_exit",
        Kind::Duration,
        "1m",
        "after how long without an agent an idle supervisor ends",
    ),
    plain("worker.cache_size_max", Kind::Bytes, "4GiB", "disk for fetched artifacts beyond those in use"),
];
