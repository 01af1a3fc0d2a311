//! `belfry failure`: shows failure groups and sets their states.

use client::FailureFilter;
use model::Timestamp;
use model::api::SetFailureState;
use model::failures::FailureState;
use model::spec::DEFAULT;

use super::Context;
use crate::args::failure::{FailureCommand, FailureListArgs, StateChoice};
use crate::failure::Failure;

pub(super) async fn run(context: &Context, command: FailureCommand) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let one = namespace.filter().unwrap_or_else(|| DEFAULT.to_owned());
    match command {
        FailureCommand::List(args) => {
            let groups = client.failure_groups(&filter(args, namespace.filter())).await?;
            context.out.list(&groups.items, "failure groups")?;
            let more = groups.total.saturating_sub(groups.items.len() as u64);
            if more > 0 {
                context
                    .out
                    .note(format!("{more} more; show them with `--limit {}`", groups.total.min(1_000)));
            }
            Ok(())
        }
        FailureCommand::Get(args) => context.out.one(&client.failure_group(&one, &args.id).await?),
        FailureCommand::Mark(args) => {
            let state = SetFailureState { state: args.state, note: args.note };
            context.out.one(&client.set_failure_state(&one, &args.id, &state).await?)
        }
    }
}

fn filter(args: FailureListArgs, namespace: Option<String>) -> FailureFilter {
    let mut states = Vec::new();
    for choice in &args.state {
        match choice {
            StateChoice::All => states.extend(FailureState::ALL),
            StateChoice::One(state) => states.push(*state),
        }
    }
    if states.is_empty() {
        states = vec![FailureState::Open, FailureState::Known];
    }
    states.sort_unstable();
    states.dedup();
    FailureFilter {
        namespace,
        name: args.name,
        states,
        text: args.text,
        since: args.since.map(|since| Timestamp::from(jiff::Timestamp::now()) - since),
        order: args.order.unwrap_or_default(),
        limit: args.limit,
    }
}
