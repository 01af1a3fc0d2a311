//! Arguments of `workflow` and `run`.
//!
//! A workflow is named by its name or id, a run by its id, a step by its name within the run. Groups of
//! options that several commands share are structs of their own: [`ParameterArgs`] (`start`, `plan`) and
//! [`WaitingArgs`] (`start`, `retry`, and `submit` with several jobs). Values of parameters stay text here:
//! the command parses them with the types that the workflow declares.
//!
//! `run get --step` lists the running elements of a step, and `run elements` the ended ones, because only ended
//! elements are stored.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::{BackfillId, Duration, RunId, RunStatus, ScheduleId, StepStatus, Timestamp};

use super::examples;
use super::job::ListLimit;
use super::reference::Reference;
use super::schedule::ApplyArgs;
use super::spec::{Pair, parse_pair, past};

/// `belfry workflow …`
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Create or update workflows from files
    #[command(before_help = examples! {
        "belfry workflow apply -f etl.yaml"
        "belfry workflow apply -f workflows/ --dry-run"
    })]
    Apply(ApplyArgs),
    /// List workflows, newest first
    #[command(visible_alias = "ls")]
    List(WorkflowListArgs),
    /// Show the details of workflows
    Get(WorkflowGetArgs),
    /// Start a run of a workflow
    Start(Box<StartArgs>),
    /// Show the steps of a run in a possible order, without starting the run
    Plan(PlanArgs),
    /// Delete workflows; their runs continue
    #[command(before_help = examples! { "belfry workflow delete nightly" })]
    Delete(WorkflowsArgs),
}

/// Workflows by name or id.
#[derive(Debug, Args)]
pub(crate) struct WorkflowsArgs {
    /// Names or IDs of the workflows
    #[arg(value_name = "WORKFLOW", required = true)]
    pub(crate) workflows: Vec<String>,
}

/// `belfry workflow list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry workflow list --label team=pay"
    "belfry workflow list -n '*' --text report -o wide"
})]
pub(crate) struct WorkflowListArgs {
    /// Filter by owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Filter by part of the name
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Filter by label; repeat to require all labels
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) labels: Vec<Pair>,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// `belfry workflow get`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry workflow get nightly"
    "belfry workflow get nightly --generation 3 --definition > nightly.yaml"
})]
pub(crate) struct WorkflowGetArgs {
    /// Names or IDs of the workflows
    #[arg(value_name = "WORKFLOW", required = true)]
    pub(crate) workflows: Vec<String>,
    /// Generation of the definition [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u64>,
    /// Print only the definition, as a file for `belfry apply`
    #[arg(long)]
    pub(crate) definition: bool,
}

/// Options for the parameters of a run.
#[derive(Debug, Default, Args)]
pub(crate) struct ParameterArgs {
    /// Parameter of the run: the text itself for a string, JSON for any other type; repeatable
    #[arg(short, long = "param", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) parameters: Vec<Pair>,
    /// File with parameters in YAML or JSON, `-` for standard input; -p overrides single parameters
    #[arg(long = "parameters", id = "parameters-file", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Options for waiting for a run.
#[derive(Debug, Default, Args)]
pub(crate) struct WaitingArgs {
    /// Wait until the run has ended, and exit with code 1 if it did not succeed
    #[arg(long)]
    pub(crate) wait: bool,
    /// Show each change of a step until the run has ended, and exit with code 1 if it did not succeed
    #[arg(long)]
    pub(crate) follow: bool,
    /// Maximum time to wait, for example 1h; then exit with code 124 while the run continues [default: unlimited]
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// `belfry workflow start`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry workflow start nightly"
    "belfry workflow start nightly -p day=2026-11-21 -p 'regions=[\"eu\", \"cn\"]' --follow"
    "belfry workflow start release --parameters release.yaml --note 'the fix of today' --wait"
})]
pub(crate) struct StartArgs {
    /// Name or ID of the workflow
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: String,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    /// Reason for the start, shown to users
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Priority of all jobs of the run, from 0 (last) to 100 (first) [default: the priority of each job spec]
    #[arg(long, value_name = "0-100")]
    pub(crate) priority: Option<u8>,
    /// Idempotency key: a repeated start with the same key returns the first run
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    #[command(flatten)]
    pub(crate) waiting: WaitingArgs,
}

/// `belfry workflow plan`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry workflow plan nightly"
    "belfry workflow plan nightly -p day=2026-11-21 -o wide"
})]
pub(crate) struct PlanArgs {
    /// Name or ID of the workflow
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: String,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
}

/// `belfry run …`
#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// List runs, newest first
    #[command(visible_alias = "ls")]
    List(RunListArgs),
    /// Show the details of runs with their steps, or the running elements of a step
    Get(RunGetArgs),
    /// List the steps of a run
    Steps(StepsArgs),
    /// List the ended elements of a mapped step: a step that runs once for each element of a list
    Elements(ElementsArgs),
    /// Explain why a run or a step is waiting, or why it ended as it did
    Why(StepArgs),
    /// Show each change of a step of a run, until the run has ended
    #[command(before_help = examples! { "belfry run watch RUN" })]
    Watch(RunWatchArgs),
    /// Wait until all runs have ended, and exit with code 1 if a run did not succeed
    #[command(before_help = examples! { "belfry run wait RUN --wait-timeout 1h" })]
    Wait(RunWaitArgs),
    /// Cancel runs; their `finally` steps still run
    Cancel(RunCancelArgs),
    /// Pause runs: no further step starts until you resume the runs
    Pause(RunPauseArgs),
    /// Resume paused runs
    #[command(before_help = examples! { "belfry run resume RUN" })]
    Resume(RunsArgs),
    /// Retry an ended run, as a new run that keeps the results of succeeded and skipped steps
    Retry(RunRetryArgs),
    /// Set the final status of a step that has not ended
    Mark(MarkArgs),
    /// Approve a step that waits for approval
    Approve(DecideArgs),
    /// Reject a step that waits for approval; the step fails
    Reject(DecideArgs),
    /// Send an event to a run, for steps that wait for it now or later
    Event(RunEventArgs),
}

/// Runs by their ids.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// IDs of the runs, or @last
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<Reference<RunId>>,
}

/// `belfry run get`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run get RUN"
    "belfry run get RUN --step load      running elements of a mapped step"
})]
pub(crate) struct RunGetArgs {
    /// IDs of the runs, or @last
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<Reference<RunId>>,
    /// Name of a mapped step whose running elements are listed; `belfry run elements` lists the ended elements
    #[arg(long, value_name = "STEP")]
    pub(crate) step: Option<String>,
}

/// `belfry run list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run list --status failed"
    "belfry run list --workflow nightly --limit 5"
    "belfry run list --caller RUN             runs that the steps of a run started"
})]
pub(crate) struct RunListArgs {
    /// Filter by status: waiting, running, retrying, paused, stopping, succeeded, failed, cancelled
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<RunStatus>,
    /// Filter by workflow name or ID; a name also selects runs that other workflows called
    #[arg(long, value_name = "WORKFLOW")]
    pub(crate) workflow: Option<String>,
    /// Filter by a part of the workflow name; letter case is ignored
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Filter by the ID of the calling run: the run with a step that started these runs
    #[arg(long, value_name = "RUN")]
    pub(crate) caller: Option<Reference<RunId>>,
    /// Filter by schedule ID
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<ScheduleId>,
    /// Filter by backfill ID
    #[arg(long, value_name = "BACKFILL")]
    pub(crate) backfill: Option<Reference<BackfillId>>,
    /// Start of the range of start times: 1h (ago), 08:00 (most recent), yesterday, 2026-11-21T08:00 (local)
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) after: Option<Timestamp>,
    /// End of the range of start times, exclusive, in the same formats
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) before: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// `belfry run steps`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run steps RUN"
    "belfry run steps RUN --status failed,upstream_failed -o wide"
})]
pub(crate) struct StepsArgs {
    /// ID of the run, or @last
    #[arg(value_name = "RUN")]
    pub(crate) id: Reference<RunId>,
    /// Filter by status: pending, running, waiting, succeeded, failed, upstream_failed, skipped, cancelled
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<StepStatus>,
}

/// `belfry run elements`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run elements RUN load --status failed"
    "belfry run elements RUN load --all -o json"
})]
pub(crate) struct ElementsArgs {
    /// ID of the run, or @last
    #[arg(value_name = "RUN")]
    pub(crate) id: Reference<RunId>,
    /// Name of the step
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
    /// Filter by status: succeeded, failed, skipped, cancelled
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<StepStatus>,
    #[command(flatten)]
    pub(crate) many: ListLimit,
}

/// `belfry run why`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run why RUN            all running and waiting steps"
    "belfry run why RUN load       one step"
})]
pub(crate) struct StepArgs {
    /// ID of the run, or @last
    #[arg(value_name = "RUN")]
    pub(crate) id: Reference<RunId>,
    /// Name of the step [default: all running steps, or the next steps if none is running]
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
}

/// `belfry run watch`
#[derive(Debug, Args)]
pub(crate) struct RunWatchArgs {
    /// ID of the run, or @last
    #[arg(value_name = "RUN")]
    pub(crate) id: Reference<RunId>,
}

/// `belfry run wait`
#[derive(Debug, Args)]
pub(crate) struct RunWaitArgs {
    /// IDs of the runs, or @last
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<Reference<RunId>>,
    /// Maximum time to wait, for example 1h; then exit with code 124 [default: unlimited]
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// `belfry run cancel`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run cancel RUN --reason 'wrong day' --wait"
    "belfry run cancel $(belfry run list --status running -o name)"
})]
pub(crate) struct RunCancelArgs {
    /// IDs of the runs, or @last
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<Reference<RunId>>,
    /// Reason for the cancellation, shown to users
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Start no `finally` steps, and stop `finally` and `on_failure` steps that are running
    #[arg(long)]
    pub(crate) skip_finally: bool,
    /// Wait until all runs have ended
    #[arg(long)]
    pub(crate) wait: bool,
}

/// `belfry run pause`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry run pause RUN --note 'the disk is being replaced'" })]
pub(crate) struct RunPauseArgs {
    /// IDs of the runs, or @last
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<Reference<RunId>>,
    /// Reason for the pause, shown to users
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// `belfry run retry`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run retry RUN --follow"
    "belfry run retry RUN --from load --note 'the file is there now'"
    "belfry run retry RUN --repeat charge --note 'the bank has no payment of it'"
})]
pub(crate) struct RunRetryArgs {
    /// ID of the run, or @last
    #[arg(value_name = "RUN")]
    pub(crate) id: Reference<RunId>,
    /// Name of a step that runs again whatever its result, with all steps downstream [default: only steps
    /// that neither succeeded nor were skipped]
    #[arg(long, value_name = "STEP")]
    pub(crate) from: Option<String>,
    /// Reason for the retry, shown to users
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Name of a step that may run again although its `at_most_once` job has already started; repeatable
    #[arg(long, value_name = "STEP")]
    pub(crate) repeat: Vec<String>,
    #[command(flatten)]
    pub(crate) waiting: WaitingArgs,
}

fn mark(text: &str) -> Result<StepStatus, String> {
    let known = [StepStatus::Succeeded, StepStatus::Failed, StepStatus::Skipped];
    known
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| "expected one of succeeded, failed, skipped".into())
}

/// `belfry run mark`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry run mark RUN load succeeded --note 'loaded by hand'" })]
pub(crate) struct MarkArgs {
    /// ID of the run, or @last
    #[arg(value_name = "RUN")]
    pub(crate) id: Reference<RunId>,
    /// Name of the step
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
    /// Final status of the step: succeeded, failed, skipped; a running step is stopped first
    #[arg(value_name = "STATUS", value_parser = mark)]
    pub(crate) status: StepStatus,
    /// Reason for the status, shown to users
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// `belfry run approve` and `reject`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run approve RUN --note 'tested by ann'"
    "belfry run reject RUN gate --note 'not before Monday'"
})]
pub(crate) struct DecideArgs {
    /// ID of the run, or @last
    #[arg(value_name = "RUN")]
    pub(crate) id: Reference<RunId>,
    /// Name of the step [default: the only step that waits for approval]
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
    /// Comment, stored in the output of the step
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

/// `belfry run event`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run event RUN paid"
    "belfry run event RUN paid '{\"sum\": 12}'"
    "belfry run event RUN paid --file payment.json"
})]
pub(crate) struct RunEventArgs {
    /// ID of the run, or @last
    #[arg(value_name = "RUN")]
    pub(crate) id: Reference<RunId>,
    /// Name of the event
    #[arg(value_name = "EVENT")]
    pub(crate) event: String,
    /// Payload of the event: a JSON object, which becomes the output of the step [default: none]
    #[arg(value_name = "JSON", conflicts_with = "file")]
    pub(crate) payload: Option<String>,
    /// File with the payload, `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}
