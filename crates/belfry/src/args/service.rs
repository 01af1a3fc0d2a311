//! Arguments of `service`.
//!
//! A service is named by its name or id, so these arguments are strings; the command resolves them. The job of a created
//! service has the same options as `submit`: [`SpecArgs`] and [`ProcessArgs`]. Options that a service cannot have, such
//! as `--retries`, are hidden in [`CreateArgs`]; the server explains why it rejects the field.

use clap::{Arg, Args, Subcommand};
use model::service::UpdatePolicy;
use model::spec::{CheckedPort, HttpCheck, Port, TcpCheck};
use model::{Duration, Timestamp};

use super::examples;
use super::job::ListLimit;
use super::schedule::ApplyArgs;
use super::spec::{Pair, ProcessArgs, SpecArgs, parse_pair, past};

/// `belfry service …`
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Create a service from options
    Create(Box<CreateArgs>),
    /// Create or update services from files
    #[command(before_help = examples! {
        "belfry service apply -f web.yaml"
        "belfry service apply -f services/ --dry-run"
    })]
    Apply(ApplyArgs),
    /// List services, newest first
    #[command(visible_alias = "ls")]
    List(ServiceListArgs),
    /// Show the details of services, with the replicas
    Get(ServiceGetArgs),
    /// Change the number of replicas of a service
    #[command(before_help = examples! { "belfry service scale web 5" })]
    Scale(ScaleArgs),
    /// Restart a service: replace all replicas within the limits of the update policy
    #[command(before_help = examples! { "belfry service restart web --wait" })]
    Restart(RestartArgs),
    /// Roll back a service to an earlier revision
    Rollback(RollbackArgs),
    /// Show or control the rollout of a service: the replacement of the replicas of older revisions
    #[command(subcommand, before_help = examples! {
        "belfry service rollout status web --watch"
        "belfry service rollout promote web"
    })]
    Rollout(RolloutCommand),
    /// List the replicas of a service
    #[command(before_help = examples! { "belfry service replicas web" })]
    Replicas(ServiceArgs),
    /// List the endpoints of a service: the ports of the healthy replicas
    #[command(before_help = examples! {
        "belfry service endpoints web"
        "belfry service endpoints web -o name        one HOST:PORT on each line"
    })]
    Endpoints(ServiceArgs),
    /// List the revisions of a service, newest first
    Revisions(RevisionsArgs),
    /// Show the logs of the replicas of a service
    Logs(ServiceLogsArgs),
    /// Stop the replicas of services, and delete the services
    Delete(DeleteArgs),
}

/// One service.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// Name or ID of the service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
}

/// Options for waiting for a rollout.
#[derive(Debug, Default, Args)]
pub(crate) struct RolloutWaitArgs {
    /// Wait until the rollout has completed, and exit with code 1 if it failed
    #[arg(long)]
    pub(crate) wait: bool,
    /// Maximum time to wait, for example 10m; then exit with code 124 while the rollout continues [default: unlimited]
    #[arg(long, value_name = "DURATION", requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// Parses a port of a job: `NAME` or `NAME=NUMBER`.
fn port(text: &str) -> Result<Port, String> {
    let (name, number) = match text.split_once('=') {
        Some((name, number)) => {
            (name, Some(number.parse().map_err(|_| format!("expected a port number but got `{number}`"))?))
        }
        None => (text, None),
    };
    if name.is_empty() {
        return Err("expected NAME or NAME=NUMBER".to_owned());
    }
    Ok(Port { name: name.to_owned(), port: number })
}

/// Parses the port of a check: a number, or the name of a port of the job.
fn checked_port(text: &str) -> Result<CheckedPort, String> {
    match text.parse() {
        Ok(number) => Ok(CheckedPort::Number(number)),
        Err(_) if text.is_empty() || text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(format!("expected the name of a port or a port number but got `{text}`"))
        }
        Err(_) => Ok(CheckedPort::Name(text.to_owned())),
    }
}

/// Parses an HTTP check: `PORT` or `PORT/PATH`.
fn http_check(text: &str) -> Result<HttpCheck, String> {
    let (port, path) = text.find('/').map_or((text, "/"), |at| text.split_at(at));
    Ok(HttpCheck { port: checked_port(port)?, path: path.to_owned(), headers: Default::default() })
}

/// Parses a TCP check: `PORT`.
fn tcp_check(text: &str) -> Result<TcpCheck, String> {
    Ok(TcpCheck { port: checked_port(text)? })
}

/// Adapts an option of [`SpecArgs`] to services: hides the options that a service cannot have, and changes the help of
/// options with another meaning or default.
fn of_service(argument: Arg) -> Arg {
    let help = match argument.get_id().as_str() {
        "deadline" | "finish_by" | "finish_action" | "timeout" | "retries" | "start_retries" | "max_lost"
        | "retry_on" | "no_retry_on" | "delivery" | "stores" | "optional_stores" => {
            return argument.hide(true);
        }
        "name" => "Name of the jobs [default: the name of the service]",
        "owner" => "Owner of the service and of its jobs",
        "labels" => "Label of the service and of its jobs; repeatable",
        "priority_class" => "Priority class of the replicas: normal or high [default: high]",
        "grace" => {
            "Grace period between the stop signal and SIGKILL when a replica is stopped [default: 10s]"
        }
        "log_keep" => "Part of a larger log that is kept: first_and_last, newest [default: newest]",
        "backoff" => "Delay before the first restart of a replica that exited [default: 1s]",
        "backoff_factor" => "Factor by which the delay grows with each restart [default: 2]",
        "backoff_max" => "Maximum delay between restarts [default: 5m]",
        "backoff_delays" => {
            "Delays before the first, second, … restart, for example 1s,10s,1m, instead of a growing delay"
        }
        _ => return argument,
    };
    argument.help(help)
}

/// `belfry service create`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry service create web --replicas 3 --port http --http-check http/healthz -- ./web"
    "belfry service create web --port http=8080 --wait -- ./web --port 8080"
    "belfry service create worker --replicas 2 --cpu 1 --memory 512MiB -- ./consume"
    "belfry service create log-shipper --per-worker --constraint os=linux -- ./ship-logs"
    "belfry service create web --replicas 3 --dry-run -- ./web > web.yaml"
})]
#[command(
    after_help = "The task finds the number of the port `http` in the environment variable BELFRY_PORT_HTTP. To change \
    the service later, run `belfry service apply -f FILE`; --dry-run prints the file."
)]
#[command(override_usage = "belfry service create [OPTIONS] NAME -- COMMAND [ARGS]...")]
#[command(mut_args(of_service))]
pub(crate) struct CreateArgs {
    /// Name of the service, unique in its namespace
    #[arg(value_name = "NAME")]
    pub(crate) service: String,
    /// Number of replicas [default: 1]
    #[arg(long, value_name = "N", help_heading = "Service")]
    pub(crate) replicas: Option<u32>,
    /// Run one replica on each worker that satisfies the constraints
    #[arg(long, conflicts_with = "replicas", help_heading = "Service")]
    pub(crate) per_worker: bool,
    /// Port of each replica; without a number, the worker selects a free port; repeatable
    #[arg(long = "port", value_name = "NAME[=NUMBER]", value_parser = port, help_heading = "Service")]
    pub(crate) ports: Vec<Port>,
    /// HTTP readiness check: a replica is healthy while the check succeeds; PORT is the name of a port, or a number
    #[arg(long, value_name = "PORT[/PATH]", value_parser = http_check, group = "check", help_heading = "Service")]
    pub(crate) http_check: Option<HttpCheck>,
    /// TCP readiness check: a replica is healthy while it accepts connections
    #[arg(long, value_name = "PORT", value_parser = tcp_check, group = "check", help_heading = "Service")]
    pub(crate) tcp_check: Option<TcpCheck>,
    /// Interval of the readiness check [default: 10s]
    #[arg(long, value_name = "DURATION", requires = "check", help_heading = "Service")]
    pub(crate) check_interval: Option<Duration>,
    /// Time for which a replica must be healthy before it counts as available [default: 10s]
    #[arg(long, value_name = "DURATION", help_heading = "Service")]
    pub(crate) min_healthy: Option<Duration>,
    /// Maximum number of replicas beyond the desired number while replicas are replaced [default: 1]
    #[arg(long, value_name = "N", help_heading = "Service")]
    pub(crate) max_surge: Option<u32>,
    /// Maximum number of desired replicas that may be unavailable while replicas are replaced [default: 0]
    #[arg(long, value_name = "N", help_heading = "Service")]
    pub(crate) max_unavailable: Option<u32>,
    /// Number of canaries: replicas of a new revision that run beside the others until the rollout is promoted
    /// [default: 0]
    #[arg(long, value_name = "N", help_heading = "Service")]
    pub(crate) canaries: Option<u32>,
    /// Promote canaries when all of them are available
    #[arg(long, help_heading = "Service")]
    pub(crate) auto_promote: bool,
    /// Maximum time between two replicas of a new revision that become available; then the rollout fails
    /// [default: 10m]
    #[arg(long, value_name = "DURATION", help_heading = "Service")]
    pub(crate) progress_deadline: Option<Duration>,
    /// Do not roll back a rollout that failed
    #[arg(long, help_heading = "Service")]
    pub(crate) no_auto_rollback: bool,
    /// Description of the service
    #[arg(long, value_name = "TEXT", help_heading = "Service")]
    pub(crate) description: Option<String>,
    /// Check the service and print it with all defaults, without creating it
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) waiting: RolloutWaitArgs,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

impl CreateArgs {
    /// Builds the update policy from the options.
    pub(crate) fn update_policy(&self) -> UpdatePolicy {
        let defaults = UpdatePolicy::default();
        UpdatePolicy {
            max_surge: self.max_surge.unwrap_or(defaults.max_surge),
            max_unavailable: self.max_unavailable.unwrap_or(defaults.max_unavailable),
            canaries: self.canaries.unwrap_or(defaults.canaries),
            auto_promote: self.auto_promote,
            progress_deadline: self.progress_deadline.unwrap_or(defaults.progress_deadline),
            auto_rollback: !self.no_auto_rollback,
        }
    }
}

/// `belfry service list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry service list --label team=pay"
    "belfry service list -n '*' --text web -o wide"
})]
pub(crate) struct ServiceListArgs {
    /// Filter by owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Filter by a part of the name; letter case is ignored
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Filter by label; repeat to require all labels
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) labels: Vec<Pair>,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// `belfry service get`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry service get web"
    "belfry service get web --definition > web.yaml"
})]
pub(crate) struct ServiceGetArgs {
    /// Names or IDs of the services
    #[arg(value_name = "SERVICE", required = true)]
    pub(crate) services: Vec<String>,
    /// Print only the definition, as a file for `belfry apply`
    #[arg(long)]
    pub(crate) definition: bool,
}

/// `belfry service scale`
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Name or ID of the service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// Number of replicas, from 0 to 1000
    #[arg(value_name = "N")]
    pub(crate) replicas: u32,
}

/// `belfry service restart`
#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// Name or ID of the service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    #[command(flatten)]
    pub(crate) waiting: RolloutWaitArgs,
}

/// `belfry service rollback`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry service rollback web"
    "belfry service rollback web --revision 3 --wait"
})]
pub(crate) struct RollbackArgs {
    /// Name or ID of the service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// Number of the revision [default: the last revision that was rolled out completely, before the current one]
    #[arg(long, value_name = "N")]
    pub(crate) revision: Option<u64>,
    #[command(flatten)]
    pub(crate) waiting: RolloutWaitArgs,
}

/// `belfry service rollout …`
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Show the status of a rollout
    Status(RolloutStatusArgs),
    /// Pause a rollout: no further replica of an older revision is replaced
    #[command(before_help = examples! { "belfry service rollout pause web" })]
    Pause(ServiceArgs),
    /// Resume a paused rollout, or retry a failed one
    #[command(before_help = examples! { "belfry service rollout resume web" })]
    Resume(ServiceArgs),
    /// Promote the canaries of a rollout: replace the other replicas
    #[command(before_help = examples! { "belfry service rollout promote web" })]
    Promote(ServiceArgs),
}

/// `belfry service rollout status`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry service rollout status web"
    "belfry service rollout status web --watch --wait-timeout 10m"
})]
#[command(
    after_help = "With --watch, the exit code is 1 if the rollout failed, also if the service was then rolled back \
    automatically."
)]
pub(crate) struct RolloutStatusArgs {
    /// Name or ID of the service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// Show the progress until the rollout has completed or failed, and exit with code 1 if it failed
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// With --watch: maximum time, for example 10m; then exit with code 124 [default: unlimited]
    #[arg(long, value_name = "DURATION", requires = "watch")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// `belfry service revisions`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry service revisions web"
    "belfry service revisions web --diff        changes from each revision to the next"
})]
pub(crate) struct RevisionsArgs {
    /// Name or ID of the service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// Show the changes between consecutive revisions, as a unified diff
    #[arg(long)]
    pub(crate) diff: bool,
}

/// `belfry service logs`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry service logs web                    all replicas, since their last start"
    "belfry service logs web -f --tail 10       follow all replicas, also new ones"
    "belfry service logs web --replica 0 --all  one replica, also before its restarts"
})]
#[command(
    after_help = "Each line starts with the number of its replica. The lines of all replicas are in the order of time. \
    Run `belfry logs JOB` for the log of a replica without this prefix."
)]
pub(crate) struct ServiceLogsArgs {
    /// Name or ID of the service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// Follow the logs of all replicas, also of new ones, until the service is deleted
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Number of the replica [default: all replicas]
    #[arg(long, value_name = "N")]
    pub(crate) replica: Option<u32>,
    /// Show all executions of each replica: also those before its restarts
    #[arg(long)]
    pub(crate) all: bool,
    /// Stream to show: stdout, stderr, all
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = ["stdout", "stderr", "all"], hide_possible_values = true)]
    pub(crate) stream: String,
    /// Show only the last N lines of each replica
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub(crate) tail: Option<usize>,
    /// Show only output since this time: 10m (ago), 08:00 (most recent), yesterday, 2026-11-21T08:00 (local)
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) since: Option<Timestamp>,
    /// Show the time of each line
    #[arg(short, long)]
    pub(crate) timestamps: bool,
}

/// `belfry service delete`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry service delete web --wait" })]
pub(crate) struct DeleteArgs {
    /// Names or IDs of the services
    #[arg(value_name = "SERVICE", required = true)]
    pub(crate) services: Vec<String>,
    /// Wait until all replicas have stopped and the services are deleted
    #[arg(long)]
    pub(crate) wait: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_a_name_and_may_have_a_number() {
        assert_eq!(port("http"), Ok(Port { name: "http".into(), port: None }));
        assert_eq!(port("http=8080"), Ok(Port { name: "http".into(), port: Some(8080) }));
        for wrong in ["", "=80", "http=", "http=x", "http=70000"] {
            assert!(port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_check_names_a_port_and_may_have_a_path() {
        let check = |text| http_check(text).map(|check| (check.port, check.path));
        let name = |name: &str| CheckedPort::Name(name.into());
        assert_eq!(check("http"), Ok((name("http"), "/".into())));
        assert_eq!(check("http/healthz?full=1"), Ok((name("http"), "/healthz?full=1".into())));
        assert_eq!(check("8080/a/b"), Ok((CheckedPort::Number(8080), "/a/b".into())));
        for wrong in ["", "/healthz", "70000", "70000/x"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        assert_eq!(tcp_check("db").map(|check| check.port), Ok(name("db")));
    }
}
