//! `belfry forecast`: simulates schedules, workers and limits over a future range.
//!
//! - `load`: builds a plan from the server.
//! - `overlay`: adds the definitions of files to the plan.
//!
//! The simulation is in the `forecast` crate, and the tables are in `output::forecast`. The server is only read. With
//! what-if changes, the range is simulated twice: without and with the changes.

mod load;
mod overlay;

use std::path::Path;

use forecast::{Answer, Plan, PlanError, Progress, RunHistory, WhatIf, WhatIfError, picture};
use jiff::tz::TimeZone;
use model::{Duration, Timestamp};
use tokio::sync::mpsc;

use super::Context;
use crate::args::forecast::ForecastArgs;
use crate::failure::{Exit, Failure};
use crate::output::forecast::ForecastOutput;
use crate::output::progress;
use load::Source;

pub(super) async fn run(context: &Context, args: ForecastArgs) -> Result<(), Failure> {
    let from = args.from.unwrap_or(context.out.look.now);
    let length = args.length.unwrap_or(Duration::from_hours(24));
    let until = args.to.unwrap_or(from + length);
    if until <= from {
        return Err(Failure::usage(format!("invalid range: the end {until} must be after the start {from}")));
    }
    let (now, tried) = plans(context, &args, from, until).await?;
    let before = match &tried {
        Some(_) => Some(simulate(context, now.clone(), "current").await?),
        None => None,
    };
    let answer = match tried {
        Some(tried) => simulate(context, tried, "what if").await?,
        None => simulate(context, now, "").await?,
    };
    let zone = args.time_zone.unwrap_or_else(TimeZone::system);
    for note in &answer.notes {
        context.out.note(format!("note: {}", crate::output::text::escape(&note.to_string())));
    }
    if let Some(path) = &args.svg {
        let drawn = picture(&answer, &zone);
        if path == Path::new("-") {
            return context.out.data(drawn);
        }
        std::fs::write(path, drawn).map_err(|error| {
            Failure::message(Exit::Failed, format!("cannot write `{}`: {error}", path.display()))
        })?;
        context.out.note(format!("wrote {}", path.display()));
    }
    context.out.forecast(&ForecastOutput::new(answer, before.map(|answer| answer.summary)), &zone)
}

/// Returns the current plan, and the plan with the what-if changes, if any.
async fn plans(
    context: &Context,
    args: &ForecastArgs,
    from: Timestamp,
    until: Timestamp,
) -> Result<(Plan, Option<Plan>), Failure> {
    let mut plan = Plan::new(from, until);
    plan.options.seed = args.seed;
    plan.options.late_after = args.late;
    plan.options.patience = args.patience;
    plan.options.runs_max = args.max_runs;
    plan.history.otherwise = RunHistory::steady(args.run_time);
    let (mut source, namespace) = match args.offline {
        true => (Source::Offline, context.namespace(&context.settings()?)),
        false => {
            let (client, namespace) = context.connect()?;
            (Source::Server(client), namespace)
        }
    };
    let only = namespace.filter().filter(|_| namespace.by_flag());
    source.fill(&mut plan, only.as_deref(), |line| context.out.note(line)).await?;
    source.complete(&mut plan).await?;
    let changes = changes(args);
    if args.files.is_empty() && changes.is_empty() {
        return Ok((plan, None));
    }
    let mut tried = plan.clone();
    if !args.files.is_empty() {
        overlay::apply(&mut tried, &args.files, &namespace)?;
        source.complete(&mut tried).await?;
    }
    for change in &changes {
        tried.change(change).map_err(refused)?;
    }
    if args.offline {
        return Ok((tried, None));
    }
    Ok((plan, Some(tried)))
}

/// Returns the what-if changes. Added workers come first, so that the other changes can refer to them.
fn changes(args: &ForecastArgs) -> Vec<WhatIf> {
    let added = args.add_worker.iter().map(|worker| WhatIf::AddWorker(Box::new(worker.clone())));
    let scaled = args
        .scale_worker
        .iter()
        .map(|scale| WhatIf::ScaleWorker { name: scale.name.clone(), factor: scale.factor });
    let without = args.without_worker.iter().cloned().map(WhatIf::WithoutWorker);
    let workers = args.workers.map(WhatIf::Workers);
    let slower = args.slower.map(WhatIf::Slower);
    added.chain(scaled).chain(without).chain(workers).chain(slower).collect()
}

fn refused(error: WhatIfError) -> Failure {
    let help = match &error {
        WhatIfError::NoWorker { .. } => "run `belfry worker list` to list all workers",
        WhatIfError::NothingToCopy { .. } => "add a worker with `--add-worker cpu=8,memory=32GiB`",
        _ => return Failure::usage(error.to_string()),
    };
    Failure::usage(error.to_string()).help(help)
}

/// Runs a forecast on its own thread, so that its progress can be shown and the command can be interrupted.
async fn simulate(context: &Context, plan: Plan, which: &str) -> Result<Answer, Failure> {
    let (tell, mut told) = mpsc::unbounded_channel::<Progress>();
    let thread = std::thread::Builder::new().name("forecast".into());
    let (answer, answered) = tokio::sync::oneshot::channel();
    thread.spawn(move || {
        // Sending fails only if the command has already ended.
        let _ = answer.send(forecast::forecast(&plan, &mut |progress| {
            let _ = tell.send(progress);
        }));
    })?;
    let line = progress::Progress::new(context.out);
    while let Some(progress) = told.recv().await {
        if line.is_redrawn() {
            line.set_message(sentence(progress, which));
        }
    }
    line.clear();
    let answer =
        answered.await.map_err(|_| Failure::message(Exit::Failed, "the forecast was interrupted"))?;
    answer.map_err(|error: PlanError| Failure::usage(error.to_string()))
}

fn sentence(Progress { now, part, firings }: Progress, which: &str) -> String {
    const WIDTH: usize = 24;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part from 0 to 1")]
    let full = ((part.clamp(0.0, 1.0) * WIDTH as f64) as usize).min(WIDTH);
    let bar = "█".repeat(full) + &"░".repeat(WIDTH - full);
    let which = if which.is_empty() { String::new() } else { format!("{which}: ") };
    format!("{which}{bar} {:>3.0} %  {now}  {firings} firings", part * 100.0)
}
