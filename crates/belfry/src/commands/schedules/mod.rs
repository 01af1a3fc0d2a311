//! `belfry schedule` and `belfry backfill`.
//!
//! - `create`: builds a schedule from options.
//! - `carets`: points at the invalid column of a cron expression.
//!
//! [`run`] dispatches the subcommands of `schedule`, and [`run_backfills`] those of `backfill`.
//! `commands::apply` applies schedules from files, and uses [`warn`], [`expression`] and [`with_carets`] from
//! here.
//!
//! `schedule next` without a schedule name computes the preview locally ([`next_of_draft`]) and needs no
//! server. `trigger` prints only the id of the new job or run, so that scripts can capture it. If the overlap
//! policy buffers the firing, a note says so; if no run starts, the command fails.
//!
//! # Invariants
//! - A schedule is named by its id, or by its name in the selected namespace. `*` is accepted for lists only.
//! - A preview of a draft equals that of the server, except for `H` and `~`, which depend on the name of the
//!   schedule.

mod carets;
mod create;

use client::{Client, LedgerFilter, ScheduleFilter, ScheduleRef};
use model::ScheduleId;
use model::api::{Reprocess, StartBackfill, TriggerSchedule, Warning, WarningCode};
use model::firing::FiringOutcome;
use model::limits::PREVIEW_MAX;
use server::preview::{TimingContext, preview};
use timetable::{CalendarMap, Zones};

use super::{Context, Namespace, apply, for_each_item, note_truncated, read_items, runs, wait};
use crate::args::schedule::{
    BackfillArgs, BackfillCommand, LedgerArgs, NextArgs, ScheduleCommand, ScheduleListArgs, TriggerArgs,
    UpcomingArgs,
};
use crate::args::spec::Pair;
use crate::failure::{Exit, Failure};
use crate::output::schedules::OutcomeCount;
use crate::output::text::escape;
use crate::output::{Format, Output, schedules};

pub(super) use carets::{expression, with_carets};

pub(super) async fn run(context: &Context, command: ScheduleCommand) -> Result<(), Failure> {
    match command {
        ScheduleCommand::Create(args) => create::run(context, *args).await,
        ScheduleCommand::Apply(args) => apply::run_kind(context, args, "schedule").await,
        ScheduleCommand::List(args) => list(context, args).await,
        ScheduleCommand::Get(args) => {
            let (client, namespace) = context.connect()?;
            let all = named(&namespace, args.schedules)?;
            if let [one] = all.as_slice() {
                return context.out.one(&client.schedule(one).await?);
            }
            let (found, result) =
                for_each_item(context.out, all, async |s| Ok(client.schedule(&s).await?)).await;
            context.out.list(&found, "schedules").and(result)
        }
        ScheduleCommand::Next(args) => next(context, &args).await,
        ScheduleCommand::Upcoming(args) => upcoming(context, &args).await,
        ScheduleCommand::Pause(args) => {
            let (client, namespace) = context.connect()?;
            let note = args.note.as_deref();
            let all = named(&namespace, args.schedules)?;
            let (done, result) =
                for_each_item(context.out, all, async |s| Ok(client.pause_schedule(&s, note).await?)).await;
            show(context, &done).and(result)
        }
        ScheduleCommand::Resume(args) => {
            let (client, namespace) = context.connect()?;
            let all = named(&namespace, args.schedules)?;
            let (done, result) =
                for_each_item(context.out, all, async |s| Ok(client.resume_schedule(&s).await?)).await;
            show(context, &done).and(result)
        }
        ScheduleCommand::Trigger(args) => trigger(context, args).await,
        ScheduleCommand::Backfill(args) => backfill(context, args).await,
        ScheduleCommand::Ledger(args) => ledger(context, args).await,
        ScheduleCommand::Delete(args) => {
            let (client, namespace) = context.connect()?;
            let all = named(&namespace, args.schedules)?;
            for_each_item(context.out, all, async |s| {
                client.delete_schedule(&s, None).await?;
                context.out.note(format!("deleted schedule {}", s.name));
                Ok(())
            })
            .await
            .1
        }
    }
}

/// Writes the warnings about schedules that were accepted, and a hint if there are any.
pub(super) fn warn<'a>(out: Output, schedules: impl IntoIterator<Item = (&'a String, &'a Vec<Warning>)>) {
    let (mut of_times, mut of_guarantees) = (false, false);
    for (name, warnings) in schedules {
        for warning in warnings {
            out.warn(format!("schedule `{}`: {}", escape(name), escape(&warning.message)));
            match warning.code {
                WarningCode::ContradictsGuarantee => of_guarantees = true,
                _ => of_times = true,
            }
        }
    }
    if of_guarantees {
        out.help("remove the field or the guarantee, and apply the schedule again");
    }
    if of_times {
        out.help("correct the rules and apply the schedule again; a schedule that is only triggered manually needs no rules");
    }
}

fn show(context: &Context, done: &[model::api::Schedule]) -> Result<(), Failure> {
    if done.is_empty() { Ok(()) } else { context.out.list(done, "schedules") }
}

fn named(namespace: &Namespace, names: Vec<String>) -> Result<Vec<ScheduleRef>, Failure> {
    names.into_iter().map(|name| one(namespace, name)).collect()
}

fn one(namespace: &Namespace, name: String) -> Result<ScheduleRef, Failure> {
    let namespace = match name.parse::<ScheduleId>() {
        Ok(_) => None,
        Err(_) => Some(namespace.one()?.to_owned()),
    };
    Ok(ScheduleRef { name, namespace })
}

async fn list(context: &Context, args: ScheduleListArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let filter = ScheduleFilter {
        status: args.status,
        owner: args.owner,
        namespace: namespace.filter(),
        text: args.text,
        labels: args.labels.into_iter().map(|Pair(key, value)| (key, value)).collect(),
        due_before: args.due_before,
        specs: false,
    };
    let (found, more) = read_items(client.schedules(filter), &args.many).await?;
    context.out.list(&found, "schedules")?;
    note_truncated(context.out, more, &args.many);
    Ok(())
}

fn check_count(count: usize) -> Result<(), Failure> {
    if (1..=PREVIEW_MAX).contains(&count) {
        return Ok(());
    }
    Err(Failure::usage(format!("`-n {count}` is out of range: expected 1 to {PREVIEW_MAX}")))
}

async fn next(context: &Context, args: &NextArgs) -> Result<(), Failure> {
    check_count(args.count)?;
    let (client, namespace) = context.connect()?;
    let schedule = one(&namespace, args.schedule.clone().unwrap_or_default())?;
    let answer = client.next_firings(&schedule, args.count, args.from).await?;
    show_preview(context, &answer, args)
}

/// Previews the firings of timing options without a server. The server computes the same preview.
pub(super) fn next_of_draft(context: &Context, args: &NextArgs) -> Result<(), Failure> {
    check_count(args.count)?;
    let (zones, calendars) = (Zones::bundled(), CalendarMap::default());
    let reading = TimingContext { zones: &zones, calendars: &calendars, seed: seed() };
    let timing = args.when.timing();
    let from = args.from.map(|from| from - model::Duration::from_millis(1));
    let after = from.unwrap_or(context.out.look.now);
    let answer = preview(&timing, &reading, after, args.count).map_err(|problems| {
        let fields = problems.iter().map(|problem| model::api::FieldError {
            pointer: String::new(),
            path: problem.path.clone(),
            detail: problem.message.clone(),
        });
        let failure = Failure::usage("invalid timing").fields(fields.collect());
        with_carets(failure, |path| expression(&timing, path))
    })?;
    show_preview(context, &answer, args)
}

/// Returns the seed of `H` and `~`. It depends on the name of a schedule; a draft has no name, so the preview
/// of these fields may differ.
fn seed() -> u64 {
    server::preview::seed(model::spec::DEFAULT, "")
}

fn show_preview(context: &Context, answer: &model::api::Preview, args: &NextArgs) -> Result<(), Failure> {
    context.out.data(schedules::preview(&context.out.look, answer, args.lang())?)?;
    answer.warnings.iter().for_each(|warning| context.out.warn(&warning.message));
    Ok(())
}

async fn upcoming(context: &Context, args: &UpcomingArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let until = args.until.unwrap_or(context.out.look.now + model::Duration::from_hours(24));
    let answer = client.upcoming_firings(namespace.filter().as_deref(), until).await?;
    let shown = if args.many.all { answer.items.len() } else { args.many.limit.min(answer.items.len()) };
    context.out.list(&answer.items[..shown], "firings")?;
    note_truncated(context.out, shown < answer.items.len(), &args.many);
    if shown == answer.items.len() && answer.until < until {
        context.out.note(format!("the list ends at {}: the range has too many firings", answer.until));
    }
    Ok(())
}

async fn trigger(context: &Context, args: TriggerArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let schedule = one(&namespace, args.schedule)?;
    let how = TriggerSchedule { reason: args.reason, overlap: args.overlap };
    let triggered = client.trigger_schedule(&schedule, &how).await?;
    triggered.job_id.into_iter().for_each(|job| context.created(&client, job));
    triggered.run_id.into_iter().for_each(|run| context.created(&client, run));
    let created = triggered.job_id.map(|job| job.to_string()).or(triggered.run_id.map(|run| run.to_string()));
    match (created, context.out.look.format) {
        // Only the id, as for `belfry submit`: scripts capture it.
        (Some(id), Format::Table) => context.out.data(format!("{id}\n"))?,
        _ => context.out.row(&triggered)?,
    }
    let waiting = match triggered.outcome {
        FiringOutcome::Buffered => Some("the firing is buffered until earlier runs have ended"),
        FiringOutcome::Coalesced => {
            Some("the firing was merged with a buffered firing that waits for earlier runs to end")
        }
        _ => None,
    };
    match (triggered.job_id, triggered.run_id, waiting) {
        (Some(job), ..) if args.wait => wait::for_jobs(context, &client, &[job], args.wait_timeout).await,
        (_, Some(run), _) if args.wait => runs::for_runs(context, &client, &[run], args.wait_timeout).await,
        (Some(_), ..) | (_, Some(_), _) => Ok(()),
        (None, None, Some(waiting)) if args.wait => {
            let told = format!("cannot wait: {waiting}");
            Err(Failure::message(Exit::Failed, told).help("use `--overlap allow_all` to start a run now"))
        }
        (None, None, Some(waiting)) => {
            context.out.note(waiting);
            Ok(())
        }
        (None, None, None) if triggered.outcome == FiringOutcome::NotStarted => {
            let told =
                "no run was started: the workflow does not exist, or rejects the parameters of the schedule";
            Err(Failure::message(Exit::Failed, told)
                .help(format!("run `belfry schedule ledger {}` for the reason", schedule.name)))
        }
        (None, None, None) => Err(Failure::message(
            Exit::Failed,
            format!("no run was started: outcome `{}`", triggered.outcome),
        )
        .help("earlier runs have not ended: use `--overlap allow_all` to start another run now")),
    }
}

async fn backfill(context: &Context, args: BackfillArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let schedule = one(&namespace, args.schedule)?;
    let defaults = StartBackfill::new(args.from, args.until.unwrap_or(context.out.look.now));
    let range = StartBackfill {
        newest_first: args.newest_first,
        concurrency: args.concurrency,
        priority: args.priority,
        overlap: args.overlap.unwrap_or(defaults.overlap),
        reprocess: match args.reprocess.as_str() {
            "failed" => Reprocess::Failed,
            "all" => Reprocess::All,
            _ => Reprocess::None,
        },
        note: args.note,
        ..defaults
    };
    if args.dry_run {
        let plan = client.plan_backfill(&schedule, &range).await?;
        return context.out.data(schedules::plan(&context.out.look, &plan)?);
    }
    let started = client.start_backfill(&schedule, &range).await?;
    context.created(&client, started.id);
    context.out.one(&started)
}

async fn ledger(context: &Context, args: LedgerArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let schedule = one(&namespace, args.schedule)?;
    if args.counts {
        let counts = client.ledger_counts(&schedule, args.from).await?;
        let rows: Vec<_> =
            counts.into_iter().map(|(outcome, count)| OutcomeCount { outcome, count }).collect();
        return context.out.list(&rows, "scheduled times");
    }
    let filter =
        LedgerFilter { outcome: args.outcome, from: args.from, until: args.until, ..LedgerFilter::default() };
    let (lines, more) = read_items(client.ledger(schedule, filter), &args.many).await?;
    context.out.list(&lines, "scheduled times")?;
    note_truncated(context.out, more, &args.many);
    Ok(())
}

pub(super) async fn run_backfills(context: &Context, command: BackfillCommand) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    match command {
        BackfillCommand::List { schedule, many } => {
            let schedule = match schedule {
                Some(name) => Some(id(&client, &one(&namespace, name)?).await?),
                None => None,
            };
            let (found, more) = read_items(client.backfills(schedule, namespace.filter()), &many).await?;
            context.out.list(&found, "backfills")?;
            note_truncated(context.out, more, &many);
            Ok(())
        }
        BackfillCommand::Get { id } => context.out.one(&client.backfill(context.id(&client, id)?).await?),
        BackfillCommand::Cancel { id, cancel_runs } => {
            context.out.one(&client.cancel_backfill(context.id(&client, id)?, cancel_runs).await?)
        }
    }
}

async fn id(client: &Client, schedule: &ScheduleRef) -> Result<ScheduleId, Failure> {
    match schedule.name.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(client.schedule(schedule).await?.id),
    }
}
