//! Commands about workflows and their runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::{BackfillId, Duration, RunId, RunStatus, ScheduleId, StepStatus};

use super::examples;
use super::job::Many;
use super::schedule::ApplyArgs;
use super::spec::{Pair, parse_pair};

/// `belfry workflow …`
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Create or change the workflows that files define
    Apply(ApplyArgs),
    /// List workflows, the newest first
    #[command(visible_alias = "ls")]
    List(WorkflowListArgs),
    /// Show workflows in detail
    Get(WorkflowGetArgs),
    /// Start a run of a workflow
    Start(Box<StartArgs>),
    /// Show what a run would do, without starting it: its steps in an order in which they may begin
    Plan(PlanArgs),
    /// Forget workflows; their runs go on
    Delete(WorkflowsArgs),
}

/// Workflows by name or id.
#[derive(Debug, Args)]
pub(crate) struct WorkflowsArgs {
    /// The workflows, by name or id
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
    /// Of this owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// With this in the name
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// With this label; repeatable, all must be there
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) labels: Vec<Pair>,
    #[command(flatten)]
    pub(crate) many: Many,
}

/// `belfry workflow get`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry workflow get nightly"
    "belfry workflow get nightly --generation 3 --definition > nightly.yaml"
})]
pub(crate) struct WorkflowGetArgs {
    /// The workflows, by name or id
    #[arg(value_name = "WORKFLOW", required = true)]
    pub(crate) workflows: Vec<String>,
    /// As it was in this generation [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) generation: Option<u64>,
    /// Its definition alone, as a file that `belfry apply` takes
    #[arg(long)]
    pub(crate) definition: bool,
}

/// What a run is started with.
#[derive(Debug, Default, Args)]
pub(crate) struct ParameterArgs {
    /// A parameter; a text as it is, all else as JSON; repeatable
    #[arg(short, long = "param", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) parameters: Vec<Pair>,
    /// A file with parameters in YAML or JSON, `-` for stdin; `-p` goes before it
    #[arg(long = "parameters", id = "parameters-file", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Waiting for a run.
#[derive(Debug, Default, Args)]
pub(crate) struct WaitingArgs {
    /// Wait until it ended; exit with 0 if it succeeded, else with 1
    #[arg(long)]
    pub(crate) wait: bool,
    /// Show its steps as they change, until it ended; exit as with --wait
    #[arg(long)]
    pub(crate) follow: bool,
    /// Give up waiting after so long, with exit code 124; the run goes on [default: never]
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
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: String,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    /// Why, for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// The priority of its jobs, first to last [default: what their specs say]
    #[arg(long, value_name = "0-100")]
    pub(crate) priority: Option<u8>,
    /// A second start with the same key answers with the first one's run
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
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: String,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
}

/// `belfry run …`
#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// List runs, the newest first
    #[command(visible_alias = "ls")]
    List(RunListArgs),
    /// Show runs in detail, with their steps; or what goes on of a step
    Get(RunGetArgs),
    /// List the steps of a run
    Steps(StepsArgs),
    /// List the elements of a step that have ended
    Items(ItemsArgs),
    /// Say why a step stands where it stands; without a step, why a run does
    Why(StepArgs),
    /// Show the steps of a run each time that one changes, until it has ended
    Watch(RunWatchArgs),
    /// Wait until runs have ended; exits with 1 if one did not succeed
    Wait(RunWaitArgs),
    /// Stop runs; what is to be done `finally` is done all the same
    Cancel(RunCancelArgs),
    /// Let no further step of runs begin until they are resumed
    Pause(RunPauseArgs),
    /// Let paused runs go on
    Resume(RunsArgs),
    /// Try an ended run again, as a new one that takes over what ended well
    Retry(RunRetryArgs),
    /// Decide what becomes of a step that has not ended
    Mark(MarkArgs),
    /// Approve what a step waits for
    Approve(DecideArgs),
    /// Reject what a step waits for: it fails
    Reject(DecideArgs),
    /// Send an event to the steps of a run that wait, or will wait, for it
    Event(RunEventArgs),
}

/// Runs by their ids.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<RunId>,
}

/// `belfry run get`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run get RUN"
    "belfry run get RUN --step load      its elements that go on: on which worker, and for how long"
})]
pub(crate) struct RunGetArgs {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<RunId>,
    /// List the elements of this step that go on; `run items` has those that ended
    #[arg(long, value_name = "STEP")]
    pub(crate) step: Option<String>,
}

/// `belfry run list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run list --status failed"
    "belfry run list --workflow nightly --limit 5"
})]
pub(crate) struct RunListArgs {
    /// With one of these statuses: waiting, running, retrying, paused, stopping, succeeded, failed, cancelled
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<RunStatus>,
    /// Of this workflow, by name or id; with a name also those that other workflows called
    #[arg(long, value_name = "WORKFLOW")]
    pub(crate) workflow: Option<String>,
    /// That this run called
    #[arg(long, value_name = "RUN")]
    pub(crate) caller: Option<RunId>,
    /// Of this schedule, by its id
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<ScheduleId>,
    /// Of this backfill
    #[arg(long, value_name = "BACKFILL")]
    pub(crate) backfill: Option<BackfillId>,
    #[command(flatten)]
    pub(crate) many: Many,
}

/// `belfry run steps`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run steps RUN"
    "belfry run steps RUN --status failed,upstream_failed -o wide"
})]
pub(crate) struct StepsArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
    /// With one of these statuses: pending, running, waiting, succeeded, failed, upstream_failed, skipped, cancelled
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<StepStatus>,
}

/// `belfry run items`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run items RUN load --status failed"
    "belfry run items RUN load --all -o json"
})]
pub(crate) struct ItemsArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
    /// The step
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
    /// Only elements with one of these statuses: succeeded, failed, skipped, cancelled
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<StepStatus>,
    #[command(flatten)]
    pub(crate) many: Many,
}

/// `belfry run why`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry run why RUN            what goes on, or waits"
    "belfry run why RUN load"
})]
pub(crate) struct StepArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
    /// The step [default: those that go on; else those that begin next]
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
}

/// `belfry run watch`
#[derive(Debug, Args)]
pub(crate) struct RunWatchArgs {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
}

/// `belfry run wait`
#[derive(Debug, Args)]
pub(crate) struct RunWaitArgs {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<RunId>,
    /// Give up after so long, with exit code 124 [default: never]
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
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<RunId>,
    /// Why, for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Leave out `on_failure` and `finally`, or stop them if they go on
    #[arg(long)]
    pub(crate) skip_finally: bool,
    /// Wait until they have ended
    #[arg(long)]
    pub(crate) wait: bool,
}

/// `belfry run pause`
#[derive(Debug, Args)]
#[command(before_help = examples! { "belfry run pause RUN --note 'the disk is being replaced'" })]
pub(crate) struct RunPauseArgs {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    pub(crate) ids: Vec<RunId>,
    /// Why, for people
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
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
    /// From this step on, however it ended [default: what did not end well]
    #[arg(long, value_name = "STEP")]
    pub(crate) from: Option<String>,
    /// Why, for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Start this step again although its job runs at most once and has started; repeatable
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
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
    /// The step
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
    /// What becomes of it: succeeded, failed, skipped; what goes on of it is stopped first
    #[arg(value_name = "STATUS", value_parser = mark)]
    pub(crate) status: StepStatus,
    /// Why, for people
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
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
    /// The step [default: the one that waits for approval]
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
    /// What you say about it; the step's output has it
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
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
    /// The name of the event
    #[arg(value_name = "EVENT")]
    pub(crate) event: String,
    /// Its payload, an object in JSON; it becomes the step's output [default: none]
    #[arg(value_name = "JSON", conflicts_with = "file")]
    pub(crate) payload: Option<String>,
    /// A file with the payload, `-` for stdin
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}
