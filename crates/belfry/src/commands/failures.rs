//! `belfry failure`: shows failure groups and sets their states.

use client::FailureFilter;
use model::Timestamp;
use model::api::SetFailureState;
use model::failures::FailureState;

use super::Context;
use crate::args::failure::{FailureCommand, FailureListArgs, StateChoice};
use crate::failure::Failure;

/// Most groups of one list.
const LIMIT_MAX: u64 = 1_000;

pub(super) async fn run(context: &Context, command: FailureCommand) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    match command {
        FailureCommand::List(args) => {
            let groups = client.failure_groups(&filter(args, namespace.filter())).await?;
            context.out.list(&groups.items, "failure groups")?;
            let more = groups.total.saturating_sub(groups.items.len() as u64);
            if more > 0 {
                let how = match groups.total {
                    total @ ..=LIMIT_MAX => format!("show them with `--limit {total}`"),
                    _ => "find them with `--name`, `--text` or `--since`".to_owned(),
                };
                context.out.note(format!("{more} more; {how}"));
            }
            Ok(())
        }
        FailureCommand::Get(args) => {
            context.out.one(&client.failure_group(namespace.one()?, &args.id).await?)
        }
        FailureCommand::Mark(args) => {
            let state = SetFailureState { state: args.state, note: args.note };
            context.out.one(&client.set_failure_state(namespace.one()?, &args.id, &state).await?)
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
