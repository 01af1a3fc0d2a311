//! Workflows with a fake worker: steps per second through chains and diamonds, delay between steps, a list of
//! 100,000 elements, and validation of a large definition.
//!
//! Each public function is one benchmark and returns its figures with their goals. `WorkflowBench` is a
//! server process with an embedded store on a real disk, and one fake worker whose tasks succeed immediately
//! or never end.
//!
//! The tasks take no time, so the figures are the cost of the server: decisions, commits and messages.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use harness::{Server, until};
use model::api::{ApplyWorkflows, StartRun};
use model::workflow::{ElementSource, ForEach, StepSpec};
use model::{Bytes, JobSpec, Millicores, WorkflowSpec};
use server::testing::{FakeOptions, FakeWorker, Plan};

use crate::environment;
use crate::load::Load;
use crate::report::{Figure, Goal, percentile};

/// Number of diamonds in one run of `steps`, each of four steps, one after the other.
const DIAMONDS: usize = 5;
/// Number of steps of the chain whose delays are measured.
const CHAIN: usize = 200;
/// Number of elements of the large list.
const ELEMENTS: u32 = 100_000;
/// Number of lists whose elements are created in total.
const LISTS: u32 = 8;
/// Number of lists that are created before the memory is measured.
const LISTS_FIRST: u32 = 2;
/// Number of steps of the large definition.
const LARGE: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(600);

fn job() -> JobSpec {
    let mut spec = JobSpec::command(["true"]);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    spec
}

fn step(name: String, needs: &[String]) -> StepSpec {
    StepSpec::job(name, job()).needs(needs.iter().cloned())
}

/// Returns diamonds of four steps, one after the other.
fn diamonds(name: &str, count: usize) -> WorkflowSpec {
    let mut steps = Vec::with_capacity(4 * count);
    let mut before = Vec::new();
    for number in 0..count {
        let named = |part: &str| format!("{part}{number}");
        steps.push(step(named("top"), &before));
        steps.push(step(named("left"), &[named("top")]));
        steps.push(step(named("right"), &[named("top")]));
        steps.push(step(named("bottom"), &[named("left"), named("right")]));
        before = vec![named("bottom")];
    }
    WorkflowSpec::new(name, steps)
}

struct WorkflowBench {
    server: Server,
    worker: FakeWorker,
    load: Load,
    _folder: tempfile::TempDir,
}

impl WorkflowBench {
    async fn with(plan: Plan) -> anyhow::Result<Self> {
        let folder = environment::folder()?;
        let server = environment::server(folder.path()).await?;
        let token = std::fs::read_to_string(server.data().join("worker-token"))?;
        let options = FakeOptions::new(server.url(), token.trim()).plan(move |_| plan.clone());
        let worker = FakeWorker::start(options);
        worker.sessions(1).await;
        let load = Load::of(&server)?;
        Ok(Self { server, worker, load, _folder: folder })
    }

    async fn apply(&self, spec: WorkflowSpec) -> anyhow::Result<()> {
        let body = serde_json::to_string(&ApplyWorkflows { workflows: vec![spec] })?;
        self.load.post("workflows/apply", body).await
    }

    async fn start(&self, name: &str) -> anyhow::Result<()> {
        let body = serde_json::to_string(&StartRun::default())?;
        self.load.post(&format!("workflows/{name}/start"), body).await
    }

    /// Waits until every run has ended.
    async fn until_over(&self) {
        until("every run has ended", PATIENCE, async || {
            let live = self.load.get("runs?status=waiting,running,paused,stopping&limit=1").await.ok()?;
            live["items"].as_array()?.is_empty().then_some(())
        })
        .await;
    }
}

/// Measures steps per second through diamonds, with enough runs for about `time` at the goal rate.
pub(crate) async fn steps(time: Duration) -> anyhow::Result<Vec<Figure>> {
    const GOAL: f64 = 8_000.0;
    let place = WorkflowBench::with(Plan::Succeed).await?;
    place.apply(diamonds("diamonds", DIAMONDS)).await?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let runs = (GOAL * time.as_secs_f64()) as usize / (4 * DIAMONDS);
    let begun = Instant::now();
    let mut starting = Vec::new();
    for _ in 0..8 {
        let load = place.load.clone();
        starting.push(tokio::spawn(async move {
            let body = serde_json::to_string(&StartRun::default())?;
            for _ in 0..runs / 8 {
                load.post("workflows/diamonds/start", body.clone()).await?;
            }
            anyhow::Ok(())
        }));
    }
    for starter in starting {
        starter.await??;
    }
    place.until_over().await;
    let steps = runs / 8 * 8 * 4 * DIAMONDS;
    let rate = steps as f64 / begun.elapsed().as_secs_f64();
    Ok(vec![Figure::new("steps through diamonds, durable", rate, "steps/s", Goal::AtLeast(GOAL))])
}

/// Measures the time from the recorded end of a step to the reported start of the next one's task, on an idle server.
pub(crate) async fn latency() -> anyhow::Result<Vec<Figure>> {
    let place = WorkflowBench::with(Plan::Succeed).await?;
    let names: Vec<String> = (0..CHAIN).map(|number| format!("s{number}")).collect();
    let chain = names.iter().enumerate().map(|(i, name)| {
        let before = if i == 0 { &[][..] } else { &names[i - 1..i] };
        step(name.clone(), before)
    });
    place.apply(WorkflowSpec::new("chain", chain.collect())).await?;
    place.start("chain").await?;
    place.until_over().await;
    let jobs = place.load.get("jobs?limit=1000").await?;
    let jobs = jobs["items"].as_array().context("a list has `items`")?;
    let micros = |job: &serde_json::Value, field: &str| {
        let text = job[field].as_str().with_context(|| format!("an ended job has `{field}`"))?;
        anyhow::Ok(text.parse::<model::Timestamp>()?.as_micros())
    };
    // The list is sorted by time, newest first: each job started after the next one in the list ended.
    let delays = jobs.windows(2).map(|pair| {
        let (next, before) = (&pair[0], &pair[1]);
        anyhow::Ok((micros(next, "started_at")? - micros(before, "finished_at")?) as f64 / 1_000.0)
    });
    let mut delays: Vec<f64> = delays.collect::<Result<_, _>>()?;
    delays.sort_by(f64::total_cmp);
    let figure = |what: &str, part, goal| Figure::new(what, percentile(&delays, part), "ms", goal);
    Ok(vec![
        figure("end of a step to start of the next, p50", 0.50, Goal::None),
        figure("the same, p99", 0.99, Goal::AtMost(20.0)),
    ])
}

/// Measures a list of 100,000 elements, none of which ends.
pub(crate) async fn map() -> anyhow::Result<Vec<Figure>> {
    let place = WorkflowBench::with(Plan::Run).await?;
    let mut each = StepSpec::job("each", job());
    each.for_each = Some(ForEach::new(ElementSource::Shards(ELEMENTS)));
    place.apply(WorkflowSpec::new("map", vec![each])).await?;
    let begun = Instant::now();
    place.start("map").await?;
    while place.worker.starts() == 0 {
        tokio::task::yield_now().await;
    }
    let first = begun.elapsed();
    let durable = async |elements: u32| {
        until("every element has its job", PATIENCE, async || {
            (place.load.count_jobs().await.ok()? >= elements as usize).then_some(())
        })
        .await;
        place.server.pid().memory().context("the server is running")
    };
    durable(ELEMENTS).await?;
    let whole = begun.elapsed();
    // Memory is measured on later lists, because the first ones also fill caches of a fixed size.
    let mut lists = 1;
    let mut with = async |wanted: u32| {
        while lists < wanted {
            place.start("map").await?;
            lists += 1;
        }
        durable(lists * ELEMENTS).await
    };
    let filled = with(LISTS_FIRST).await?;
    let memory = with(LISTS).await?.saturating_sub(filled) as f64;
    let each = memory / f64::from((LISTS - LISTS_FIRST) * ELEMENTS);
    let figure = |what: &str, value, unit, goal| Figure::new(what, value, unit, goal);
    Ok(vec![
        figure("first of 100,000 elements started", first.as_secs_f64() * 1e3, "ms", Goal::AtMost(200.0)),
        figure("every element durable", whole.as_secs_f64(), "s", Goal::AtMost(10.0)),
        figure("memory of an element", each, "bytes", Goal::AtMost(1_024.0)),
    ])
}

/// Measures the validation of a definition of 10,000 steps.
pub(crate) fn check() -> anyhow::Result<Vec<Figure>> {
    let mut spec = diamonds("large", LARGE / 4);
    spec.fill();
    let mut times = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        model::validate::workflow(&spec, model::Timestamp::from_micros(0))?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let median = percentile(&times, 0.5);
    Ok(vec![Figure::new(format!("check of {LARGE} steps"), median, "ms", Goal::AtMost(200.0))])
}
