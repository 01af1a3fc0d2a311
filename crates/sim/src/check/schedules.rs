//! Checks of schedules: every scheduled time has one ledger entry, with the right outcome, in time. A run is
//! the job or workflow run that a firing created.
//!
//! - `account`: scheduled times, according to the independent oracle, against ledger entries (I14, I15).
//! - `one_run_per_time`, `one_commit_per_firing`, `never_early`, [`in_time`]: the runs of firings (I14, I16).
//! - `overlap_limits`: concurrent runs, and firings that were skipped for older runs (I17, I18).
//! - `missed_runs_wait`, `skipped_missed_runs`, `caught_up`: the policy for missed firings (I18).
//!
//! A schedule whose rules the oracle does not support is counted as not judged. Where a history has only the
//! feed, checks that need the exact order within a commit are left out.

use std::collections::{BTreeMap, BTreeSet};

use model::firing::{DetailCode, FiringCause, FiringOutcome, LedgerRecord, ScheduleStatus, Work};
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::{BackfillId, Cause, ScheduleId, ScheduleSpec, Timestamp};

use super::facts::{Facts, ScheduleFacts};
use super::oracle::{held, instants};
use super::{Findings, Invariant};
use crate::history::Row;

pub(super) fn check(facts: &Facts<'_>, findings: &mut Findings) {
    for (&id, schedule) in &facts.schedules {
        one_run_per_time(facts, id, schedule, findings);
        never_early(facts, id, schedule, findings);
        if account(facts, id, schedule, findings).is_none() {
            findings.0.schedules_not_judged += 1;
        }
        caught_up(facts, id, schedule, findings);
        skipped_missed_runs(facts, id, schedule, findings);
        missed_runs_wait(id, schedule, findings);
    }
    one_commit_per_firing(facts, findings);
    overlap_limits(facts, findings);
}

fn is_scheduled(cause: FiringCause) -> bool {
    matches!(cause, FiringCause::Timer | FiringCause::CatchUp)
}

/// I14: no ledger entry names two runs, and no scheduled time has two runs.
fn one_run_per_time(
    facts: &Facts<'_>,
    id: ScheduleId,
    schedule: &ScheduleFacts<'_>,
    findings: &mut Findings,
) {
    let mut named: BTreeMap<_, (Work, usize)> = BTreeMap::new();
    for (index, record) in &schedule.written {
        let Some(work) = record.work else { continue };
        let (known, at) = *named.entry(super::facts::ledger_key(record)).or_insert((work, *index));
        if known != work {
            let message = format!("scheduled time {} has {known} and {work}", record.first);
            findings.add(Invariant::I14, id, message, [at, *index]);
        }
    }
    let mut fired: BTreeMap<(u64, Timestamp), (Work, usize)> = BTreeMap::new();
    for &run in &schedule.runs {
        let (Some(origin), Some((index, _))) = (facts.origin_of(run), facts.begin_of(run)) else { continue };
        if !is_scheduled(origin.cause) {
            continue;
        }
        if let Some((other, at)) = fired.insert((origin.generation, origin.scheduled_for), (run, index)) {
            let message = format!("scheduled time {} has {other} and {run}", origin.scheduled_for);
            findings.add(Invariant::I14, id, message, [at, index]);
        }
    }
}

/// I14: the run, its ledger entry and the cursor are committed together.
fn one_commit_per_firing(facts: &Facts<'_>, findings: &mut Findings) {
    for (index, commit) in &facts.commits {
        let mut lines = BTreeSet::new();
        let mut cursors: BTreeMap<ScheduleId, Timestamp> = BTreeMap::new();
        for row in &commit.rows {
            match row {
                Row::Ledger(record) => lines.extend(record.work),
                Row::Schedule(row) => {
                    let first = cursors.entry(row.schedule).or_insert(row.cursor);
                    *first = row.cursor.min(*first);
                }
                _ => {}
            }
        }
        for row in &commit.rows {
            let (work, origin) = match row {
                Row::Job(row) if row.new => (Work::Job(row.job), row.origin.as_deref()),
                Row::Run(row) if row.new && row.caller.is_none() => {
                    (Work::Run(row.run), row.origin.as_deref())
                }
                _ => continue,
            };
            let Some(origin) = origin else { continue };
            if origin.cause == FiringCause::Retry {
                continue;
            }
            if !lines.contains(&work) {
                findings.add(Invariant::I14, work, "fired without a ledger entry", [*index]);
            }
            let is_behind =
                cursors.get(&origin.schedule).is_some_and(|cursor| *cursor < origin.scheduled_for);
            if is_scheduled(origin.cause) && is_behind {
                findings.add(Invariant::I14, work, "fired, but the cursor is before it", [*index]);
            }
        }
    }
}

/// I16: no firing is decided before its scheduled time.
fn never_early(facts: &Facts<'_>, id: ScheduleId, schedule: &ScheduleFacts<'_>, findings: &mut Findings) {
    for (index, record) in &schedule.written {
        if is_scheduled(record.cause) && record.decided_at < record.last {
            let message = format!("scheduled time {} was decided at {}", record.last, record.decided_at);
            findings.add(Invariant::I16, id, message, [*index]);
        }
    }
    for &run in &schedule.runs {
        let Some((index, at)) = facts.begin_of(run) else { continue };
        let origin = facts.origin_of(run);
        if origin.is_some_and(|origin| is_scheduled(origin.cause) && at < origin.scheduled_for) {
            findings.add(Invariant::I16, id, format!("a run was created early, at {at}"), [index]);
        }
    }
}

/// I16: a job does not start after its start deadline, and not again after a completion deadline that ends it.
pub(super) fn in_time(facts: &Facts<'_>, findings: &mut Findings) {
    for (id, job) in &facts.jobs {
        if job.steps().any(|(_, step)| step.cause == Cause::Updated) {
            continue;
        }
        let own = job.spec.and_then(|spec| {
            let from = spec.run_at.unwrap_or(id.created_at());
            // Ids contain only milliseconds.
            spec.start_deadline.map(|deadline| from + deadline + model::Duration::from_millis(1))
        });
        if let Some(deadline) = job.ended_by_deadline(*id) {
            let executions = job.executions.iter().filter_map(|id| facts.executions.get(id));
            let mut first = executions.filter_map(|execution| execution.rows.first());
            if let Some((index, row)) = first.find(|(_, row)| row.assigned_at > deadline) {
                let message =
                    format!("assigned at {}, after its completion deadline {deadline}", row.assigned_at);
                findings.add(Invariant::I16, id, message, [*index]);
            }
        }
        let deadline = job.origin.map_or(own, |origin| origin.start_by);
        let Some(deadline) = deadline else { continue };
        for execution in job.executions.iter().filter_map(|id| facts.executions.get(id)) {
            let Some((index, row)) = execution.rows.first() else { continue };
            if row.assigned_at > deadline {
                let message = format!("assigned at {}, after its start deadline {deadline}", row.assigned_at);
                findings.add(Invariant::I16, id, message, [*index]);
            }
            if execution.rows.iter().any(|(_, row)| row.started) {
                break;
            }
        }
    }
}

/// A spec of a schedule, and the time from which it was in force.
struct SpecPeriod<'a> {
    spec: &'a ScheduleSpec,
    from: Timestamp,
}

/// I14 and I15: scheduled times and ledger entries correspond one to one. Returns `None` if the oracle does not
/// support the rules.
fn account(
    facts: &Facts<'_>,
    id: ScheduleId,
    schedule: &ScheduleFacts<'_>,
    findings: &mut Findings,
) -> Option<()> {
    let periods = spec_periods(schedule);
    let (last_index, last, _) = schedule.rows.last()?;
    let mut decided: BTreeMap<Timestamp, usize> = BTreeMap::new();
    for (index, record) in schedule.ledger.values() {
        if !is_scheduled(record.cause) {
            continue;
        }
        let Some(period) = periods.get(&record.generation) else { continue };
        let before = Timestamp::from_micros(record.first.as_micros() - 1);
        let named = instants(&period.spec.timing, before, record.last)?;
        let right = !record.exact || named.len() as u64 == record.count;
        if !right || !named.contains(&record.first) || !named.contains(&record.last) {
            let message = format!(
                "a ledger entry has {} times from {} to {}, but the rules have {}",
                record.count,
                record.first,
                record.last,
                named.len()
            );
            findings.add(Invariant::I15, id, message, [*index]);
        }
        let held = held(&period.spec.timing, &named)?;
        let is_held = matches!(record.outcome, FiringOutcome::SkippedCalendar | FiringOutcome::SkippedWindow);
        let wrongly = named.iter().find(|at| record.exact && held.contains(*at) != is_held);
        if let Some(at) = wrongly {
            let word = if is_held { "no filter excludes it" } else { "a filter excludes it" };
            let message = format!("scheduled time {at} became {}, but {word}", record.outcome);
            findings.add(Invariant::I15, id, message, [*index]);
        }
        for at in named {
            if let Some(other) = decided.insert(at, *index) {
                findings.add(Invariant::I14, id, format!("time {at} has two entries"), [other, *index]);
            }
        }
    }
    let tolerance = facts.history.setup.tolerance;
    let ordered: Vec<&SpecPeriod<'_>> = periods.values().collect();
    for (place, period) in ordered.iter().enumerate() {
        // When the rules change, the exact time of the change is uncertain by the tolerance.
        let until = match ordered.get(place + 1) {
            Some(next) if next.spec.timing == period.spec.timing => next.from,
            Some(next) => next.from - tolerance,
            None => last.cursor,
        };
        let is_owed = |at: Timestamp| last.owed.iter().any(|gap| gap.after < at && at <= gap.until);
        for at in instants(&period.spec.timing, period.from, until)? {
            if !decided.contains_key(&at) && !is_owed(at) {
                let message = format!("scheduled time {at} has no ledger entry");
                findings.add(Invariant::I14, id, message, [schedule.rows.first()?.0, *last_index]);
            }
        }
    }
    if let (Some(_), Some((end, _)), false) = (facts.calm, facts.end, schedule.removed) {
        let now = facts.commits.last().map_or(last.cursor, |(_, commit)| commit.now) - tolerance;
        let newest = ordered.last()?.spec;
        let no_hurry = newest.missed.catch_up_per_minute.is_some() || last.status != ScheduleStatus::Active;
        if let Some(gap) = last.owed.first().filter(|_| !no_hurry) {
            let message = format!("missed times from {} to {} were never caught up", gap.after, gap.until);
            findings.add(Invariant::I14, id, message, [*last_index, end]);
        }
        let owed = instants(&newest.timing, last.cursor, now)?;
        if let Some(at) = owed.first().filter(|_| last.status != ScheduleStatus::Completed) {
            findings.add(
                Invariant::I14,
                id,
                format!("scheduled time {at} was never decided"),
                [*last_index, end],
            );
        }
    }
    Some(())
}

fn spec_periods<'a>(schedule: &ScheduleFacts<'a>) -> BTreeMap<u64, SpecPeriod<'a>> {
    let mut found = BTreeMap::new();
    let mut spec = None;
    for (_, row, commit) in &schedule.rows {
        spec = row.spec.as_deref().or(spec);
        let Some(spec) = spec else { continue };
        // A schedule that was created and changed before its first commit has no row of its first generation.
        let from = if row.new && row.generation == 1 { row.created_at } else { commit.now };
        found.entry(row.generation).or_insert(SpecPeriod { spec, from });
    }
    found
}

/// I17: the number of concurrent runs stays within the limit, whatever created them.
fn overlap_limits(facts: &Facts<'_>, findings: &mut Findings) {
    let mut live: BTreeMap<ScheduleId, BTreeSet<Work>> = BTreeMap::new();
    let mut specs: BTreeMap<ScheduleId, &ScheduleSpec> = BTreeMap::new();
    let mut asked: BTreeMap<BackfillId, usize> = BTreeMap::new();
    let mut widest: BTreeMap<ScheduleId, usize> = BTreeMap::new();
    for (index, commit) in &facts.commits {
        let mut before = BTreeMap::new();
        // Whether any of them was not created by a backfill.
        let mut begun: BTreeMap<ScheduleId, bool> = BTreeMap::new();
        // A feed delivers ends and ledger entries after their commit, so it cannot show which runs blocked a firing.
        let rows = if facts.exact() { commit.rows.as_slice() } else { &[] };
        let skipped: Vec<&LedgerRecord> = rows.iter().filter_map(skipped_by_itself).collect();
        // All runs that may have blocked a firing at some time within the commit.
        let mut in_the_way: BTreeMap<ScheduleId, BTreeSet<Work>> = BTreeMap::new();
        for record in &skipped {
            in_the_way.insert(record.schedule, live.get(&record.schedule).cloned().unwrap_or_default());
        }
        let mut stands = |work: Work, over: bool| {
            let Some(origin) = facts.origin_of(work) else { return };
            let runs = live.entry(origin.schedule).or_default();
            if let Some(met) = in_the_way.get_mut(&origin.schedule) {
                met.insert(work);
            }
            if over {
                runs.remove(&work);
            } else if runs.insert(work) {
                *begun.entry(origin.schedule).or_default() |= origin.backfill.is_none();
            }
        };
        for row in &commit.rows {
            match row {
                Row::Schedule(row) => {
                    if let Some(spec) = row.spec.as_deref() {
                        let old = specs.insert(row.schedule, spec);
                        before.entry(row.schedule).or_insert(old);
                    }
                }
                Row::Backfill { backfill, asked: Some((schedule, most)), .. } => {
                    asked.insert(*backfill, *most as usize);
                    // Other firings of the schedule may use this limit, even before the backfill has a run.
                    let widest = widest.entry(*schedule).or_default();
                    *widest = (*widest).max(*most as usize);
                }
                Row::Job(row) => stands(row.job.into(), row.status.is_final()),
                Row::Run(row) => stands(row.run.into(), row.status.is_final()),
                _ => {}
            }
        }
        for (id, own_begun) in begun {
            let old_and_new = [before.get(&id).copied().flatten(), specs.get(&id).copied()];
            let Some(most) = old_and_new.into_iter().flatten().map(run_limit).max() else { continue };
            let none = BTreeSet::new();
            let live = live.get(&id).unwrap_or(&none);
            let mut of_backfills: BTreeMap<BackfillId, usize> = BTreeMap::new();
            for backfill in live.iter().filter_map(|run| facts.origin_of(*run)?.backfill) {
                *of_backfills.entry(backfill).or_default() += 1;
            }
            let own = live.len() - of_backfills.values().sum::<usize>();
            // A limit below the number of live runs only prevents new ones.
            if own_begun && own > most {
                let message = format!("{own} concurrent runs exceed the limit of {most}");
                findings.add(Invariant::I17, id, message, [*index]);
            }
            // A backfill may have a higher concurrency than the schedule; the total then stays within the higher
            // value.
            let widest = widest.entry(id).or_default();
            for backfill in of_backfills.keys() {
                *widest = asked.get(backfill).copied().unwrap_or(usize::MAX).max(*widest);
            }
            let all_together = most.max(*widest);
            if live.len() > all_together {
                let message = format!("{} concurrent runs exceed the total of {all_together}", live.len());
                findings.add(Invariant::I17, id, message, [*index]);
            }
            for (backfill, count) in of_backfills {
                if let Some(most) = asked.get(&backfill).filter(|most| count > **most) {
                    let message = format!("{count} concurrent runs exceed the concurrency of {most}");
                    findings.add(Invariant::I17, backfill, message, [*index]);
                }
            }
        }
        for record in skipped {
            let old_and_new =
                [before.get(&record.schedule).copied().flatten(), specs.get(&record.schedule).copied()];
            let Some(limit) = old_and_new.into_iter().flatten().map(run_limit).min() else { continue };
            let of_past = |run: &&Work| {
                facts
                    .origin_of(**run)
                    .is_some_and(|origin| origin.backfill.is_some() || origin.cause == FiringCause::CatchUp)
            };
            let met = in_the_way.get(&record.schedule);
            let of_present = met.map_or(0, |met| met.iter().filter(|run| !of_past(run)).count());
            if of_present < limit {
                let message = format!("scheduled time {} was skipped for older runs", record.last);
                findings.add(Invariant::I18, record.schedule, message, [*index]);
            }
        }
    }
}

fn run_limit(spec: &ScheduleSpec) -> usize {
    match spec.overlap.policy {
        OverlapPolicy::AllowAll => usize::MAX,
        _ => spec.overlap.limit.max(1) as usize,
    }
}

/// Returns the entry of a timer firing that was skipped because of the overlap policy.
fn skipped_by_itself(row: &Row) -> Option<&LedgerRecord> {
    let Row::Ledger(record) = row else { return None };
    let skipped = record.outcome == FiringOutcome::SkippedOverlap && record.cause == FiringCause::Timer;
    skipped.then_some(&**record)
}

/// I18: a missed firing waits for its turn; no overlap policy skips it.
fn missed_runs_wait(id: ScheduleId, schedule: &ScheduleFacts<'_>, findings: &mut Findings) {
    for (index, record) in &schedule.written {
        let lost = matches!(record.outcome, FiringOutcome::SkippedOverlap | FiringOutcome::SkippedLimit);
        let says = |code: DetailCode| record.detail.as_deref() == Some(code.sentence());
        let for_another = says(DetailCode::MergedIntoWaiting) || says(DetailCode::MergedIntoLater);
        if record.cause == FiringCause::CatchUp && (lost || for_another) {
            let message = format!("missed time {} became {} instead of waiting", record.last, record.outcome);
            findings.add(Invariant::I18, id, message, [*index]);
        }
    }
}

/// I18: a missed firing is skipped only as the policy states.
///
/// The times of one ledger entry were skipped one after the other: the last one is judged.
fn skipped_missed_runs(
    facts: &Facts<'_>,
    id: ScheduleId,
    schedule: &ScheduleFacts<'_>,
    findings: &mut Findings,
) {
    let periods = spec_periods(schedule);
    for (index, record) in schedule.ledger.values() {
        let by_policy = matches!(record.outcome, FiringOutcome::SkippedPolicy | FiringOutcome::Coalesced);
        if record.cause != FiringCause::CatchUp || !by_policy || schedule.waited(record) {
            continue;
        }
        let Some(spec) = periods.get(&record.generation).map(|period| period.spec) else { continue };
        let missed = &spec.missed;
        let is_old = record.decided_at.since(record.last) >= missed.catch_up_window;
        let says = |code: DetailCode| record.detail.as_deref() == Some(code.sentence());
        // It had its turn, and another firing waits: the overlap policy or a backfill skipped it.
        let had_its_turn = says(DetailCode::MergedIntoWaiting) || says(DetailCode::MergedIntoLater);
        let too_many = says(DetailCode::TooManyOutages);
        // With jitter, each scheduled time is missed at a different time.
        if is_old || had_its_turn || too_many || spec.jitter.is_some() {
            continue;
        }
        let kept = match missed.policy {
            MissedPolicy::Skip => continue,
            MissedPolicy::FireOnce => 1,
            MissedPolicy::FireLast => missed.last.max(1) as usize,
            MissedPolicy::FireAll => missed.limit as usize,
        };
        // While new work is held, a request treats every due time as missed, however short its delay.
        let held = facts.may_hold_new_work(record.decided_at);
        let until = if held { record.decided_at } else { record.decided_at - missed.threshold };
        let Some(later) = instants(&spec.timing, record.last, until) else { continue };
        if later.len() < kept {
            let message = format!(
                "missed time {} was skipped at {} in favour of {} later ones",
                record.last,
                record.decided_at,
                later.len()
            );
            findings.add(Invariant::I18, id, message, [*index]);
        }
    }
}

/// Generation, engine time and commit of a decision about missed firings.
type Decision = (u64, Timestamp, usize);

/// I18: missed firings are caught up as the policy states, in the order of their scheduled times.
fn caught_up(facts: &Facts<'_>, id: ScheduleId, schedule: &ScheduleFacts<'_>, findings: &mut Findings) {
    let periods = spec_periods(schedule);
    // One decision is in one commit. Engine time alone does not separate decisions: it stops while the wall clock is
    // behind it, and several outages may be caught up meanwhile.
    let mut at_once: BTreeMap<Decision, Vec<(usize, &LedgerRecord)>> = BTreeMap::new();
    for (index, record) in schedule.ledger.values() {
        let fired = matches!(record.outcome, FiringOutcome::Fired | FiringOutcome::FiredLate);
        if record.cause == FiringCause::CatchUp && fired && !schedule.waited(record) {
            at_once.entry((record.generation, record.decided_at, *index)).or_default().push((*index, record));
        }
    }
    for ((generation, at, _), records) in at_once {
        let Some(spec) = periods.get(&generation).map(|period| period.spec) else { continue };
        // With jitter, each scheduled time is missed at a different time.
        if spec.jitter.is_some() {
            continue;
        }
        // The last version of a ledger entry does not show whether its firing had waited.
        let may_wait = !matches!(spec.overlap.policy, OverlapPolicy::Skip | OverlapPolicy::AllowAll);
        if may_wait && !facts.exact() {
            continue;
        }
        let missed = spec.missed;
        let most = match missed.policy {
            MissedPolicy::Skip => 0,
            MissedPolicy::FireOnce => 1,
            MissedPolicy::FireLast => missed.last.max(1) as usize,
            MissedPolicy::FireAll => missed.limit as usize,
        };
        if records.len() > most {
            let message = format!("{} missed runs were caught up at {at}, not {most}", records.len());
            findings.add(Invariant::I18, id, message, records.iter().map(|(index, _)| *index));
        }
    }
    let mut last: Option<(Timestamp, usize)> = None;
    for &run in &schedule.runs {
        let (Some(origin), Some((index, _))) = (facts.origin_of(run), facts.begin_of(run)) else { continue };
        if origin.cause != FiringCause::CatchUp {
            continue;
        }
        if let Some((before, at)) = last.filter(|(before, _)| *before > origin.scheduled_for) {
            let message = format!("{before} was caught up before {}", origin.scheduled_for);
            findings.add(Invariant::I18, id, message, [at, index]);
        }
        last = Some((origin.scheduled_for, index));
    }
}
